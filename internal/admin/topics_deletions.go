package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// withDeletions runs --list or --describe and, with --web, names the topics that are being deleted below its output: clients' metadata does not
// have them any more (Kafka shows nothing of them). One that is asked for by name is then no error.
func (t *topicsTool) withDeletions(ctx context.Context, action func(context.Context) error) error {
	if !t.opts.has("web") {
		return action(ctx)
	}
	lines, err := t.deletionLines(ctx)
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		t.opts.values["if-exists"] = []string{}
	}
	if err := action(ctx); err != nil {
		return err
	}
	for _, line := range lines {
		fmt.Fprintln(t.stdout, line)
	}
	return nil
}

// deletionLines tells of the topics that --topic stands for and that are being deleted, or were while a broker was away.
func (t *topicsTool) deletionLines(ctx context.Context) ([]string, error) {
	include, err := t.opts.includeList()
	if err != nil {
		return nil, err
	}
	tool := &deletionTool{web: webURL(t.opts.value("web")), now: t.now}
	var ds []deletionInfo
	var left []leftoverInfo
	if err := tool.get(ctx, "/api/v1/deletions", &ds); err != nil {
		return nil, err
	}
	if err := tool.get(ctx, "/api/v1/leftovers", &left); err != nil {
		return nil, err
	}
	var lines []string
	for i := range ds {
		if d := &ds[i]; include(d.Topic) {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s - being deleted for %s: %s", d.Topic, tool.age(d.QueuedAt), d.reasons()), ": "))
		}
	}
	for _, l := range left {
		if include(l.Topic) {
			lines = append(lines, fmt.Sprintf("%s - deleted, broker %d has %s to remove when it, or their log dir, is back; for %s now (id %s)",
				l.Topic, l.Broker, replicas(len(l.Partitions)), tool.age(l.Since), l.TopicID))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// webURL gives the URL of a web address without a path.
func webURL(text string) string {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	return strings.TrimSuffix(text, "/")
}
