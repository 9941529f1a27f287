package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
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
	ID   cluster.BrokerID
	Addr string // where it was asked
	Err  string // why there is no answer; "" when there is one
	// ClusterID is of the cluster that the broker belongs to; "" when it does not say.
	ClusterID  string
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

// answerTimeout bounds what one broker may take for one answer: less than the session of a broker that hangs lasts, so that it is
// still registered when the tree is read again.
const answerTimeout = 5 * time.Second

// Connect makes a client for the broker at an address.
type Connect func(addr string) (*kgo.Client, error)

// Ask asks the bootstrap servers for the brokers, and each of these. All bootstrap servers are asked, since a broker that was cut
// off from the others is named by nobody but itself.
func Ask(ctx context.Context, connect Connect, bootstrap []string) (*Answers, error) {
	servers := make([]BrokerAnswer, len(bootstrap))
	named := make([][]kmsg.MetadataResponseBroker, len(bootstrap))
	inParallel(len(bootstrap), func(i int) {
		servers[i] = BrokerAnswer{Addr: bootstrap[i]}
		servers[i].ask(ctx, connect, func(b *kgo.Broker) (err error) {
			named[i], err = servers[i].askForBrokers(ctx, b)
			return err
		})
	})
	out := &Answers{}
	for _, brokers := range named {
		for _, b := range brokers {
			if id := cluster.BrokerID(b.NodeID); !slices.ContainsFunc(out.Brokers, func(a BrokerAnswer) bool { return a.ID == id }) {
				out.Brokers = append(out.Brokers, BrokerAnswer{ID: id, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
			}
		}
	}
	if len(out.Brokers) == 0 {
		return nil, unanswered(servers)
	}
	slices.SortFunc(out.Brokers, func(a, b BrokerAnswer) int { return int(a.ID) - int(b.ID) })
	inParallel(len(out.Brokers), func(i int) { out.Brokers[i].askAll(ctx, connect) })
	return out, nil
}

// inParallel calls do for 0 to n-1, each in a goroutine of its own, and waits for all.
func inParallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func unanswered(servers []BrokerAnswer) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, fmt.Errorf("bootstrap server %s: %s", s.Addr, cmp.Or(s.Err, "it knows of no broker")))
	}
	return errors.Join(errs...)
}

// ask puts questions to the broker. What keeps it from answering goes to Err.
func (a *BrokerAnswer) ask(ctx context.Context, connect Connect, questions func(*kgo.Broker) error) {
	client, err := connect(a.Addr)
	if err == nil {
		defer client.Close()
		err = questions(client.SeedBrokers()[0])
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v", answerTimeout)
	}
	if err != nil {
		a.Err = err.Error()
	}
}

// answer asks for one thing. ctx ends the wait before answerTimeout does.
func answer[R kmsg.Response](ctx context.Context, b *kgo.Broker, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := b.RetriableRequest(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return resp.(R), nil
}

func (a *BrokerAnswer) askForBrokers(ctx context.Context, b *kgo.Broker) ([]kmsg.MetadataResponseBroker, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	m, err := answer[*kmsg.MetadataResponse](ctx, b, req)
	if err != nil {
		return nil, err
	}
	return m.Brokers, nil
}

func (a *BrokerAnswer) askAll(ctx context.Context, connect Connect) {
	a.Controller, a.Topics = cluster.NoBroker, map[string]TopicAnswer{}
	a.ask(ctx, connect, func(b *kgo.Broker) error {
		m, err := answer[*kmsg.MetadataResponse](ctx, b, kmsg.NewPtrMetadataRequest()) // all topics
		if err != nil {
			return err
		}
		a.takeMetadata(m)
		d, err := answer[*kmsg.DescribeLogDirsResponse](ctx, b, kmsg.NewPtrDescribeLogDirsRequest()) // all
		if err != nil {
			a.DirsErr = err.Error()
			return nil
		}
		if d.ErrorCode != 0 {
			a.DirsErr = cluster.ErrorCode(d.ErrorCode).String()
		}
		for _, dir := range d.Dirs {
			a.Dirs = append(a.Dirs, dirAnswer(dir))
		}
		return nil
	})
}

func (a *BrokerAnswer) takeMetadata(m *kmsg.MetadataResponse) {
	a.Controller = cluster.BrokerID(m.ControllerID)
	if m.ClusterID != nil {
		a.ClusterID = *m.ClusterID
	}
	for _, t := range m.Topics {
		if t.Topic == nil {
			continue
		}
		known := TopicAnswer{ID: t.TopicID, Leaders: map[int32]cluster.BrokerID{}}
		for _, p := range t.Partitions {
			known.Leaders[p.Partition] = cluster.BrokerID(p.Leader)
		}
		a.Topics[*t.Topic] = known
	}
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

// of gives the answer of a broker; nil when there is none.
func (a *Answers) of(id cluster.BrokerID) *BrokerAnswer {
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Brokers, func(b BrokerAnswer) bool { return b.ID == id && b.Err == "" })
	if i < 0 {
		return nil
	}
	return &a.Brokers[i]
}

// failedDirs gives the log dirs of the broker that failed.
func (b *BrokerAnswer) failedDirs() []Evidence {
	if b == nil {
		return nil
	}
	var out []Evidence
	for _, d := range b.Dirs {
		if d.Err != cluster.None {
			out = append(out, Evidence{brokerName(b.ID) + " " + d.Path, d.Err.String()})
		}
	}
	return out
}

// replicasOf gives the directories that the broker has of a topic.
func (b *BrokerAnswer) replicasOf(topic string) []Evidence {
	if b == nil {
		return nil
	}
	var out []Evidence
	for _, d := range b.Dirs {
		for _, r := range d.Replicas {
			if r.Topic == topic {
				out = append(out, Evidence{brokerName(b.ID) + " " + d.Path + "/" + r.String(), fmt.Sprintf("%d bytes", r.Bytes)})
			}
		}
	}
	return out
}

// withFailedDirs gives those of the brokers that have a failed log dir, and these dirs.
func (a *Answers) withFailedDirs(among []cluster.BrokerID) (ids []cluster.BrokerID, dirs []Evidence) {
	for _, id := range among {
		if failed := a.of(id).failedDirs(); failed != nil {
			ids, dirs = append(ids, id), append(dirs, failed...)
		}
	}
	return ids, dirs
}

// withReplicas gives those of the brokers that have directories of a topic, and these.
func (a *Answers) withReplicas(among []cluster.BrokerID, topic string) (ids []cluster.BrokerID, dirs []Evidence) {
	for _, id := range among {
		if there := a.of(id).replicasOf(topic); there != nil {
			ids, dirs = append(ids, id), append(dirs, there...)
		}
	}
	return ids, dirs
}

func brokerName(id cluster.BrokerID) string { return "broker " + strconv.Itoa(int(id)) }
