//go:build interop

package zookeeper

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sameReplicas stops all brokers and compares what each of them has of a topic: the bytes of every partition's segments
// in order. Kafka's own tool reads each segment.
func (c *cluster) sameReplicas(topic string) {
	c.Helper()
	c.awaitISR(topic)
	for _, b := range c.brokers {
		c.stop(b.id)
	}
	partitions, err := filepath.Glob(filepath.Join(c.brokers[0].dir, "data", topic+"-[0-9]"))
	if err != nil || len(partitions) == 0 {
		c.Fatalf("no partitions of %s: %v", topic, err)
	}
	var files []string
	for _, p := range partitions {
		first, segments := c.content(c.brokers[0], filepath.Base(p))
		files = append(files, segments...)
		for _, b := range c.brokers[1:] {
			other, segments := c.content(b, filepath.Base(p))
			files = append(files, segments...)
			if !bytes.Equal(first, other) {
				c.Errorf("%s has %d bytes at broker 0 and %d others at broker %d", filepath.Base(p), len(first), len(other), b.id)
			}
		}
	}
	out, err := exec.Command("java", java(c.T, kafka, "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", strings.Join(files, ","))...).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("isvalid: false")) || bytes.Contains(out, []byte("Found")) {
		c.Errorf("kafka-dump-log: %v\n%s", err, out[max(0, len(out)-4000):])
	}
}

func (c *cluster) content(b *broker, partition string) (all []byte, segments []string) {
	c.Helper()
	segments, err := filepath.Glob(filepath.Join(b.dir, "data", partition, "*.log"))
	if err != nil || len(segments) == 0 {
		c.Fatalf("no segments of %s at broker %d: %v", partition, b.id, err)
	}
	slices.Sort(segments)
	for _, s := range segments {
		data, err := os.ReadFile(s)
		if err != nil {
			c.Fatal(err)
		}
		all = append(all, data...)
	}
	return all, segments
}
