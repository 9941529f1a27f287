package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// Answers are what the brokers say about themselves and the cluster, by id.
type Answers struct {
	Brokers []BrokerAnswer
}

// BrokerAnswer is what one broker says.
type BrokerAnswer struct {
	ID         cluster.BrokerID
	Err        string // why there is no answer; "" when there is one
	Controller cluster.BrokerID
	Topics     map[string]TopicAnswer
	Dirs       []DirAnswer
	DirsErr    string // why the log dirs are not known
}

// TopicAnswer is a topic in a broker's metadata.
type TopicAnswer struct {
	ID      cluster.TopicID // zero when the broker does not say
	Leaders map[int32]cluster.BrokerID
}

// DirAnswer is one log dir of a broker. Failed dirs have an error and, with Kafka, no path that could be trusted.
type DirAnswer struct {
	Path     string
	Err      cluster.ErrorCode
	Replicas []ReplicaDir
}

// ReplicaDir is a replica's directory.
type ReplicaDir struct {
	cluster.TopicPartition
	Bytes int64
}

// answerTimeout bounds what one broker may take.
const answerTimeout = 10 * time.Second

// Ask asks every broker that the bootstrap servers know.
func Ask(ctx context.Context, client *kgo.Client) (*Answers, error) {
	first, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	m, err := req.RequestWith(first, client)
	if err != nil {
		return nil, fmt.Errorf("ask the bootstrap servers for the brokers: %w", err)
	}
	out := &Answers{}
	for _, b := range m.Brokers {
		out.Brokers = append(out.Brokers, askOne(ctx, client.Broker(int(b.NodeID)), cluster.BrokerID(b.NodeID)))
	}
	slices.SortFunc(out.Brokers, func(a, b BrokerAnswer) int { return int(a.ID) - int(b.ID) })
	return out, nil
}

func askOne(ctx context.Context, b *kgo.Broker, id cluster.BrokerID) BrokerAnswer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	a := BrokerAnswer{ID: id, Controller: cluster.NoBroker, Topics: map[string]TopicAnswer{}}
	resp, err := b.RetriableRequest(ctx, kmsg.NewPtrMetadataRequest()) // all topics
	if err != nil {
		a.Err = err.Error()
		return a
	}
	m := resp.(*kmsg.MetadataResponse)
	a.Controller = cluster.BrokerID(m.ControllerID)
	for _, t := range m.Topics {
		if t.Topic == nil {
			continue
		}
		answer := TopicAnswer{ID: t.TopicID, Leaders: map[int32]cluster.BrokerID{}}
		for _, p := range t.Partitions {
			answer.Leaders[p.Partition] = cluster.BrokerID(p.Leader)
		}
		a.Topics[*t.Topic] = answer
	}
	resp, err = b.RetriableRequest(ctx, kmsg.NewPtrDescribeLogDirsRequest()) // all
	if err != nil {
		a.DirsErr = err.Error()
		return a
	}
	d := resp.(*kmsg.DescribeLogDirsResponse)
	if d.ErrorCode != 0 {
		a.DirsErr = cluster.ErrorCode(d.ErrorCode).String()
	}
	for _, dir := range d.Dirs {
		a.Dirs = append(a.Dirs, dirAnswer(dir))
	}
	return a
}

func dirAnswer(d kmsg.DescribeLogDirsResponseDir) DirAnswer {
	out := DirAnswer{Path: d.Dir, Err: cluster.ErrorCode(d.ErrorCode)}
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			if !p.IsFuture {
				out.Replicas = append(out.Replicas, ReplicaDir{cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, p.Size})
			}
		}
	}
	slices.SortFunc(out.Replicas, func(a, b ReplicaDir) int { return a.Compare(b.TopicPartition) })
	return out
}

// failedDirs gives those of the brokers that have a failed log dir.
func (a *Answers) failedDirs(of []cluster.BrokerID) []cluster.BrokerID {
	if a == nil {
		return nil
	}
	var out []cluster.BrokerID
	for _, b := range a.Brokers {
		if slices.Contains(of, b.ID) && slices.ContainsFunc(b.Dirs, func(d DirAnswer) bool { return d.Err != cluster.None }) {
			out = append(out, b.ID)
		}
	}
	return out
}

func brokerName(id cluster.BrokerID) string { return "broker " + strconv.Itoa(int(id)) }
