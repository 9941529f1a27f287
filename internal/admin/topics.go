// Package admin is what people manage a cluster with from outside. So far that is the topics tool, which takes the options of Kafka's
// kafka-topics.sh 3.9, checks them in its order and prints what it prints.
package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// TopicsMain runs the topics tool with the arguments behind its name and returns its exit code: 0 when all went well, else 1.
func TopicsMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := &topicsTool{stdin: os.Stdin, stdout: stdout, stderr: stderr, interactive: isTerminal(os.Stdin), now: time.Now}
	return t.main(ctx, args)
}

// isTerminal reports whether somebody may sit at f. The null device is a character device too.
func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(st, null)
}

// requester sends a request to the broker it belongs to and returns the answer; *kgo.Client is one.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// topicsTool is one run of the tool.
type topicsTool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	interactive    bool // a person can answer questions
	now            func() time.Time

	opts    *topicsOptions
	brokers requester
}

func (t *topicsTool) main(ctx context.Context, args []string) int {
	opts, err := parseTopicsOptions(args)
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(t.stderr, "%s\n\n%s", usage.message, topicsHelp())
		return 1
	case err != nil:
		fmt.Fprintln(t.stderr, err)
		return 1
	case opts.has("help"):
		fmt.Fprint(t.stdout, topicsHelp())
		return 0
	case opts.has("version"):
		fmt.Fprintln(t.stdout, kafkaVersion)
		return 0
	}
	client, timeout, err := connect(opts, t.noteUnreachable)
	if err != nil {
		fmt.Fprintln(t.stderr, err)
		return 1
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t.opts, t.brokers = opts, client
	return t.run(ctx)
}

// noteUnreachable tells a person why nothing happens yet. Scripts wait in silence, as with Kafka's tool.
func (t *topicsTool) noteUnreachable(addr string, err error) {
	if t.interactive {
		fmt.Fprintf(t.stderr, "%s cannot be reached yet (%v), trying on ...\n", addr, err)
	}
}

// run does what the options ask for and reports a failure in both of Kafka's ways: a line for people and one like its log's.
func (t *topicsTool) run(ctx context.Context) int {
	actions := map[string]func(context.Context) error{
		"create": t.create, "alter": t.alter, "delete": t.delete,
		"list":     func(ctx context.Context) error { return t.withDeletions(ctx, t.list) },
		"describe": func(ctx context.Context) error { return t.withDeletions(ctx, t.describe) },
	}
	err := actions[t.opts.action](ctx)
	if err == nil {
		return 0
	}
	f := asFailure(err)
	fmt.Fprintf(t.stdout, "Error while executing topic command : %s\n", f.message)
	fmt.Fprintf(t.stderr, "[%s] ERROR %s: %s\n (org.apache.kafka.tools.TopicCommand)\n", t.now().Format("2006-01-02 15:04:05,000"), f.class, f.message)
	if f.cause != nil {
		fmt.Fprintf(t.stderr, "cause: %v\n", f.cause)
	}
	return 1
}

// call sends a request.
func call[R kmsg.Response](ctx context.Context, brokers requester, name string, req kmsg.Request) (R, error) {
	var none R
	resp, err := brokers.Request(ctx, req)
	if tooOld(err) {
		return none, refused(cluster.UnsupportedVersion, nil)
	}
	if err != nil {
		return none, unanswered(name, err)
	}
	r, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("%s was answered with a %T", name, resp)
	}
	return r, nil
}

// allTopics lists the topics of the cluster, sorted by name.
func (t *topicsTool) allTopics(ctx context.Context) ([]kmsg.MetadataResponseTopic, error) {
	resp, err := call[*kmsg.MetadataResponse](ctx, t.brokers, "listTopics", kmsg.NewPtrMetadataRequest())
	if err != nil {
		return nil, err
	}
	topics := slices.DeleteFunc(resp.Topics, func(m kmsg.MetadataResponseTopic) bool { return m.Topic == nil })
	slices.SortFunc(topics, func(a, b kmsg.MetadataResponseTopic) int { return strings.Compare(*a.Topic, *b.Topic) })
	return topics, nil
}

// matching lists the topics that --topic, an include list of expressions, stands for: all when it is not there.
func (t *topicsTool) matching(ctx context.Context) ([]string, error) {
	all, err := t.allTopics(ctx)
	if err != nil {
		return nil, err
	}
	include, err := t.opts.includeList()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range all {
		internal := slices.Contains(internalTopics, *m.Topic)
		if include(*m.Topic) && !(internal && t.opts.has("exclude-internal")) {
			names = append(names, *m.Topic)
		}
	}
	return names, nil
}

// matchingOrFail is matching, but nothing found is an error unless --if-exists.
func (t *topicsTool) matchingOrFail(ctx context.Context) ([]string, error) {
	names, err := t.matching(ctx)
	if err == nil && len(names) == 0 && t.opts.value("topic") != "" && !t.opts.has("if-exists") {
		// Kafka 3.9 prints "Topic 'Optional[name]' ..." here by mistake.
		err = illegalArgument("Topic '%s' does not exist as expected", t.opts.value("topic"))
	}
	return names, err
}

func (t *topicsTool) list(ctx context.Context) error {
	names, err := t.matching(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(t.stdout, strings.Join(names, "\n"))
	return nil
}

const collisionWarning = "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. " +
	"To avoid issues it is best to use either, but not both."

func (t *topicsTool) create(ctx context.Context) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = t.opts.value("topic")
	topic.NumPartitions, topic.ReplicationFactor = -1, -1
	assignment, err := t.opts.assignment()
	if err != nil {
		return err
	}
	if topic.Configs, err = t.opts.configs(); err != nil {
		return err
	}
	if strings.ContainsAny(topic.Topic, "._") {
		fmt.Fprintln(t.stdout, collisionWarning)
	}
	if rf, ok := t.opts.number("replication-factor"); ok {
		if rf < 1 || rf > 1<<15-1 {
			return illegalArgument("The replication factor must be between 1 and 32767 inclusive")
		}
		topic.ReplicationFactor = int16(rf)
	}
	if n, ok := t.opts.number("partitions"); ok {
		if n < 1 {
			return illegalArgument("The partitions must be greater than 0")
		}
		topic.NumPartitions = n
	}
	if topic.Topic == "" {
		return &failure{class: kafkaError("InvalidTopicException"), message: "The given topic name '' cannot be represented in a request."}
	}
	for i, replicas := range assignment {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: replicas})
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = []kmsg.CreateTopicsRequestTopic{topic}, t.opts.requestTimeoutMs
	resp, err := call[*kmsg.CreateTopicsResponse](ctx, t.brokers, "createTopics", req)
	if err != nil {
		return err
	}
	for _, r := range resp.Topics {
		code := cluster.ErrorCode(r.ErrorCode)
		if code == cluster.TopicAlreadyExists && t.opts.has("if-not-exists") {
			return nil
		}
		if code != cluster.None {
			return refused(code, r.ErrorMessage)
		}
	}
	fmt.Fprintf(t.stdout, "Created topic %s.\n", topic.Topic)
	return nil
}

func (t *topicsTool) alter(ctx context.Context) error {
	assignment, err := t.opts.assignment()
	if err != nil {
		return err
	}
	names, err := t.matchingOrFail(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	partitions, err := t.partitionCounts(ctx, names)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = t.opts.requestTimeoutMs
	for _, name := range names {
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic = name
		topic.Count, _ = t.opts.number("partitions")
		// The lists of the partitions that exist already are skipped: what is given describes the whole topic.
		for i := partitions[name]; i < len(assignment); i++ {
			topic.Assignment = append(topic.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: assignment[i]})
		}
		req.Topics = append(req.Topics, topic)
	}
	resp, err := call[*kmsg.CreatePartitionsResponse](ctx, t.brokers, "createPartitions", req)
	if err != nil {
		return err
	}
	for _, r := range resp.Topics {
		if code := cluster.ErrorCode(r.ErrorCode); code != cluster.None {
			return refused(code, r.ErrorMessage)
		}
	}
	return nil
}

// partitionCounts says how many partitions the topics have.
func (t *topicsTool) partitionCounts(ctx context.Context, names []string) (map[string]int, error) {
	topics, err := t.metadataOf(ctx, names)
	counts := map[string]int{}
	for _, m := range topics {
		counts[*m.Topic] = len(m.Partitions)
	}
	return counts, err
}

func (t *topicsTool) delete(ctx context.Context) error {
	names, err := t.matchingOrFail(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	if len(names) > 1 && !t.opts.has("force") && t.interactive && !t.confirmed(names) {
		return &failure{class: "klamm.Cancelled", message: "Nothing was deleted."}
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = t.opts.requestTimeoutMs, names
	for _, name := range names {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := call[*kmsg.DeleteTopicsResponse](ctx, t.brokers, "deleteTopics", req)
	if err != nil {
		return err
	}
	for _, r := range resp.Topics {
		if code := cluster.ErrorCode(r.ErrorCode); code != cluster.None {
			return refused(code, r.ErrorMessage)
		}
	}
	return nil
}

const namesShown = 20

// confirmed shows what an expression stands for and asks. Kafka's tool deletes whatever it matches without a word.
func (t *topicsTool) confirmed(names []string) bool {
	fmt.Fprintf(t.stderr, "'%s' matches %d topics:\n", t.opts.value("topic"), len(names))
	for _, name := range names[:min(namesShown, len(names))] {
		fmt.Fprintf(t.stderr, "  %s\n", name)
	}
	if more := len(names) - namesShown; more > 0 {
		fmt.Fprintf(t.stderr, "  ... and %d more\n", more)
	}
	fmt.Fprint(t.stderr, "Delete all of them? [y/N] ")
	answer, _ := bufio.NewReader(t.stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}
