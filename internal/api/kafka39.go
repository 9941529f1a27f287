package api

import "github.com/twmb/franz-go/pkg/kmsg"

// kafka39 are the highest versions that Kafka 3.9.1 offers in ZooKeeper mode, of the APIs that klamm serves in newer ones; -1 for one that
// it does not have there. Seen with kafka-broker-api-versions.
var kafka39 = map[kmsg.Key]int16{
	kmsg.Produce: 11, kmsg.Fetch: 17, kmsg.ListOffsets: 9, kmsg.Metadata: 12, kmsg.DescribeLogDirs: 4, kmsg.DescribeCluster: 1,
	kmsg.DescribeTopicPartitions: -1,
}

// offered is what of the served versions is offered to clients; false when nothing is.
func (d *Deps) offered(a servedAPI) (servedAPI, bool) {
	if top, newer := kafka39[a.key]; newer && d.LikeKafka39 {
		a.max = top
	}
	return a, a.max >= 0
}
