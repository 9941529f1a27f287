package admin

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/config"
)

// kafkaVersion is the release whose tool this one stands in for; --version prints it, as scripts that ask expect.
const kafkaVersion = "3.9.1"

var internalTopics = []string{"__consumer_offsets", "__transaction_state"}

// option is one option of the tool.
type option struct {
	name    string
	arg     string // what its argument is, for the help; "" when it takes none
	numeric bool
	many    bool // may be given several times
	help    string
}

var (
	topicsActions = []string{"list", "create", "delete", "alter", "describe"}
	reportOptions = []string{"under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions"}
)

// topicsOptions is a parsed and checked command line.
type topicsOptions struct {
	values           map[string][]string // by option; a flag has an empty list
	action           string              // one of topicsActions
	requestTimeoutMs int32
}

func (o *topicsOptions) has(name string) bool { return o.values[name] != nil }

// value is the argument of an option, "" when it was not given.
func (o *topicsOptions) value(name string) string {
	if len(o.values[name]) == 0 {
		return ""
	}
	return o.values[name][0]
}

// number is the argument of a numeric option.
func (o *topicsOptions) number(name string) (int32, bool) {
	if !o.has(name) {
		return 0, false
	}
	n, _ := strconv.ParseInt(o.value(name), 10, 32) // parseTopicsOptions has checked it
	return int32(n), true
}

// usageError is a mistake in the options that is answered with the help.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func wrongUsage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// optionError is a mistake in the options that is answered with its text alone, which is Kafka's.
type optionError struct{ message string }

func (e *optionError) Error() string { return e.message }

func badOption(format string, args ...any) error { return &optionError{fmt.Sprintf(format, args...)} }

// parseTopicsOptions reads the arguments as Kafka's option parser does and checks them in the order of Kafka's tool.
func parseTopicsOptions(args []string) (*topicsOptions, error) {
	o := &topicsOptions{values: map[string][]string{}, requestTimeoutMs: defaultRequestTimeoutMs}
	if err := o.parse(args); err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, wrongUsage("Create, delete, describe, or change a topic.")
	}
	if o.has("help") || o.has("version") {
		return o, nil
	}
	actions := slices.DeleteFunc(slices.Clone(topicsActions), func(a string) bool { return !o.has(a) })
	if len(actions) != 1 {
		return nil, wrongUsage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
	}
	o.action = actions[0]
	if err := o.checkRequired(); err != nil {
		return nil, err
	}
	if err := o.checkExclusive(); err != nil {
		return nil, err
	}
	return o, o.checkValues()
}

// parse takes --name value, --name=value and the same with one dash. Arguments that belong to no option are passed over, as in Kafka.
func (o *topicsOptions) parse(args []string) error {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return nil
		}
		if !strings.HasPrefix(args[i], "-") || args[i] == "-" {
			continue
		}
		name, arg, inline := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-"), "=")
		at := slices.IndexFunc(topicsOptionTable, func(x option) bool { return x.name == name })
		if at < 0 {
			return unknownOption(name)
		}
		if o.values[name] == nil {
			o.values[name] = []string{}
		}
		if topicsOptionTable[at].arg == "" {
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return badOption("Option %s requires an argument", name)
			}
			arg = args[i]
		}
		o.values[name] = append(o.values[name], arg)
	}
	return nil
}

func unknownOption(name string) error {
	if name == "zookeeper" {
		return badOption("zookeeper is not a recognized option\nKafka's tools have not had it since 3.0: give the address of a broker with --bootstrap-server")
	}
	return badOption("%s is not a recognized option\n'klamm topics --help' lists the options", name)
}

func (o *topicsOptions) checkRequired() error {
	if !o.has("bootstrap-server") {
		return badOption("--bootstrap-server must be specified")
	}
	if o.action == "describe" && o.has("if-exists") && !o.has("topic") && !o.has("topic-id") {
		return wrongUsage(`Missing required argument "[topic]"`)
	}
	if o.action != "list" && o.action != "describe" && !o.has("topic") {
		return wrongUsage(`Missing required argument "[topic]"`)
	}
	if o.action != "alter" {
		return nil
	}
	if o.has("config") {
		return wrongUsage(`Option combination "[[bootstrap-server], [config]]" can't be used with option "[alter]" ` +
			`(the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)`)
	}
	if !o.has("partitions") {
		return wrongUsage(`Missing required argument "[partitions]"`)
	}
	return nil
}

// checkExclusive refuses options that do not go with each other (Kafka: TopicCommandOptions.checkInvalidArgs).
func (o *topicsOptions) checkExclusive() error {
	allBut := func(keep ...string) []string {
		return slices.DeleteFunc(slices.Clone(topicsActions), func(a string) bool { return slices.Contains(keep, a) })
	}
	type rule struct {
		option string
		not    []string
	}
	rules := []rule{
		{"config", []string{"describe", "list", "delete"}},
		{"delete-config", []string{"bootstrap-server"}},
		{"partitions", []string{"describe", "list", "delete"}},
		{"replication-factor", []string{"describe", "list", "delete", "alter"}},
		{"replica-assignment", []string{"describe", "list", "delete"}},
	}
	if o.action == "create" {
		rules = append(rules, rule{"replica-assignment", []string{"partitions", "replication-factor"}})
	}
	for _, report := range reportOptions {
		rules = append(rules, rule{report, append(allBut("describe"), "topics-with-overrides")})
	}
	rules = append(rules,
		rule{"topics-with-overrides", append(allBut("describe"), reportOptions...)},
		rule{"if-exists", []string{"list", "create"}},
		rule{"if-not-exists", allBut("create")},
		rule{"exclude-internal", allBut("list", "describe")},
		rule{"web", allBut("list", "describe")},
	)
	for _, r := range rules {
		for _, other := range r.not {
			if o.has(r.option) && o.has(other) {
				return wrongUsage(`Option "[%s]" can't be used with option "[%s]"`, r.option, other)
			}
		}
	}
	return nil
}

// checkValues judges arguments by themselves.
func (o *topicsOptions) checkValues() error {
	for _, x := range topicsOptionTable {
		if len(o.values[x.name]) > 1 && !x.many {
			return badOption("Found multiple arguments for option %s, but you asked for only one", x.name)
		}
		if !x.numeric || !o.has(x.name) {
			continue
		}
		if _, err := strconv.ParseInt(o.value(x.name), 10, 32); err != nil {
			return badOption("Cannot parse argument '%s' of option %s", o.value(x.name), x.name)
		}
	}
	return nil
}

// includeList compiles --topic: expressions parted by commas or bars that match whole names (Kafka: TopicFilter.IncludeList).
func (o *topicsOptions) includeList() (func(string) bool, error) {
	if !o.has("topic") {
		return func(string) bool { return true }, nil
	}
	text := strings.NewReplacer(",", "|", " ", "").Replace(strings.TrimSpace(o.value("topic")))
	text = strings.Trim(text, `"'`)
	re, err := regexp.Compile(`^(?:` + text + `)$`)
	if err != nil {
		return nil, &failure{class: "java.lang.RuntimeException", message: text + " is an invalid regex.", cause: err}
	}
	return re.MatchString, nil
}

var configParts = regexp.MustCompile(`\s*=\s*`)

// configs reads --config and checks names and values as the broker will.
func (o *topicsOptions) configs() ([]kmsg.CreateTopicsRequestTopicConfig, error) {
	set := map[string]*string{}
	var out []kmsg.CreateTopicsRequestTopicConfig
	for _, text := range o.values["config"] {
		parts := configParts.Split(text, -1)
		for len(parts) > 0 && parts[len(parts)-1] == "" {
			parts = parts[:len(parts)-1]
		}
		if len(parts) != 2 {
			return nil, illegalArgument(`requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".`)
		}
		name, value := strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1])
		if set[name] == nil {
			out = append(out, kmsg.CreateTopicsRequestTopicConfig{Name: name})
		}
		set[name] = &value
	}
	for i := range out {
		out[i].Value = set[out[i].Name]
	}
	if _, err := config.NewDynamic(config.Default()).ValidateTopic(set); err != nil {
		class := kafkaError("InvalidConfigurationException")
		if strings.HasPrefix(err.Message, "Invalid value ") {
			class = "org.apache.kafka.common.config.ConfigException"
		}
		return nil, &failure{class: class, message: err.Message}
	}
	return out, nil
}

// assignment reads --replica-assignment: the replicas of partition 0, then of 1 and so on, like 0:1,1:2.
func (o *topicsOptions) assignment() ([][]int32, error) {
	if o.value("replica-assignment") == "" {
		return nil, nil
	}
	var out [][]int32
	for i, list := range strings.Split(o.value("replica-assignment"), ",") {
		var replicas, twice []int32
		for _, text := range strings.Split(list, ":") {
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
			if err != nil {
				return nil, &failure{class: "java.lang.NumberFormatException", message: fmt.Sprintf("For input string: %q", strings.TrimSpace(text))}
			}
			if slices.Contains(replicas, int32(id)) && !slices.Contains(twice, int32(id)) {
				twice = append(twice, int32(id))
			}
			replicas = append(replicas, int32(id))
		}
		if len(twice) > 0 {
			return nil, &failure{class: serverError("AdminCommandFailedException"), message: "Partition replica lists may not contain duplicate entries: " + join(twice, ",")}
		}
		out = append(out, replicas)
		if len(replicas) != len(out[0]) {
			return nil, &failure{class: serverError("AdminOperationException"), message: fmt.Sprintf("Partition %d has different replication factor: [%s]", i, join(replicas, ", "))}
		}
	}
	return out, nil
}

func join(ids []int32, separator string) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(int(id))
	}
	return strings.Join(parts, separator)
}

// commandConfig reads the file of --command-config.
func (o *topicsOptions) commandConfig() (map[string]string, error) {
	return readProperties(o.value("command-config"))
}
