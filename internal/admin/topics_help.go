package admin

import (
	"fmt"
	"strings"

	"klamm/internal/config"
)

// topicsOptionTable is every option, in the order of the help.
var topicsOptionTable = []option{
	{name: "list", help: "print the names of all topics, or of those that --topic matches"},
	{name: "create", help: "create the topic --topic"},
	{name: "describe", help: "show topics with their partitions, replicas and settings"},
	{name: "alter", help: "add partitions, up to the number in --partitions"},
	{name: "delete", help: "delete the topics that --topic matches"},

	{name: "bootstrap-server", arg: "host:port,...", help: "brokers to connect to first; needed"},
	{name: "command-config", arg: "file", help: "properties of the client: client.id, request.timeout.ms, default.api.timeout.ms, security.protocol, ssl.*, sasl.*"},

	{name: "web", arg: "URL", help: "with --list and --describe: the web address (web.listen) of any broker; topics that are being deleted are named too, with what they wait for"},

	{name: "topic", arg: "name", help: "the topic; with all actions but --create a list of regular expressions, parted by commas, that match whole names (quote a dot as '\\.')"},
	{name: "topic-id", arg: "id", help: "with --describe: the topic by its id"},
	{name: "exclude-internal", help: "with --list and --describe: leave internal topics out"},
	{name: "if-exists", help: "with --alter, --delete and --describe: no match is no error"},
	{name: "if-not-exists", help: "with --create: a topic that is there already is no error"},
	{name: "force", help: "with --delete: do not ask when --topic matches several topics; never asked unless at a terminal"},

	{name: "partitions", arg: "n", numeric: true, help: "number of partitions, the broker's default if left out; adding some later moves keys to other partitions"},
	{name: "replication-factor", arg: "n", numeric: true, help: "with --create: replicas of each partition, the broker's default if left out"},
	{name: "replica-assignment", arg: "a:b,c:d,...", help: "brokers of each partition, the preferred leader first, instead of letting the cluster choose"},
	{name: "config", arg: "name=value", many: true, help: "with --create: a setting of the topic; may be given several times"},
	{name: "delete-config", arg: "name", many: true, help: "not supported, as in Kafka: use kafka-configs"},

	{name: "under-replicated-partitions", help: "only partitions with replicas out of sync"},
	{name: "unavailable-partitions", help: "only partitions without a live leader"},
	{name: "under-min-isr-partitions", help: "only partitions with fewer replicas in sync than min.insync.replicas"},
	{name: "at-min-isr-partitions", help: "only partitions with exactly min.insync.replicas in sync"},
	{name: "topics-with-overrides", help: "only topics with settings of their own, without their partitions"},
	{name: "partition-size-limit-per-response", arg: "n", numeric: true, help: "accepted for Kafka's sake"},

	{name: "help", help: "print this help"},
	{name: "version", help: "print the Kafka release whose tool this stands in for"},
}

// helpSections says before which option a new heading comes.
var helpSections = map[string]string{
	"list":                        "What to do (exactly one)",
	"bootstrap-server":            "Where",
	"topic":                       "Which topics",
	"partitions":                  "What they are like",
	"under-replicated-partitions": "What --describe shows",
	"help":                        "Other",
}

const (
	helpColumn = 38
	helpWidth  = 100
)

// topicsHelp is the text of --help.
func topicsHelp() string {
	var b strings.Builder
	b.WriteString("klamm topics creates, deletes, describes and changes topics, with the options of kafka-topics.sh.\n\n")
	b.WriteString("  klamm topics --bootstrap-server localhost:9092 --create --topic orders --partitions 12\n")
	b.WriteString("  klamm topics --bootstrap-server localhost:9092 --describe --topic 'orders.*'\n")
	for _, o := range topicsOptionTable {
		if title, ok := helpSections[o.name]; ok {
			fmt.Fprintf(&b, "\n%s:\n", title)
		}
		left := "  --" + o.name
		if o.arg != "" {
			left += " <" + o.arg + ">"
		}
		wrap(&b, left, o.help)
	}
	b.WriteString("\nSettings for --config:\n")
	var names []string
	for _, d := range config.TopicKeys() {
		names = append(names, d.Name)
	}
	wrapAt(&b, "  ", 2, strings.Join(names, ", "))
	return b.String()
}

func wrap(b *strings.Builder, left, text string) { wrapAt(b, left, helpColumn, text) }

// wrapAt writes left, padded to the column, and text behind it in lines of the help's width.
func wrapAt(b *strings.Builder, left string, column int, text string) {
	line := left
	if len(left) >= column && strings.TrimSpace(left) != "" {
		b.WriteString(left + "\n")
		line = ""
	}
	start := column
	for _, word := range strings.Fields(text) {
		if len(line) > start && len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = ""
		}
		if len(line) <= start {
			line += strings.Repeat(" ", start-len(line)) + word
		} else {
			line += " " + word
		}
	}
	b.WriteString(line + "\n")
}
