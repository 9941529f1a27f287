package doctor

import (
	"context"
	"strings"
	"time"

	"klamm/internal/coord"
)

// Read takes a snapshot of the tree. ZooKeeper's own nodes, and the offsets of consumers before Kafka 0.9, are left out.
func Read(ctx context.Context, s coord.Store, progress func(nodes int)) (*Snapshot, error) {
	out := &Snapshot{}
	nodes, err := coord.ReadTree(ctx, s, coord.TreeReading{
		Skip: func(path string) bool {
			return path == "/zookeeper" || strings.HasPrefix(path, coord.ConsumersPath+"/")
		},
		Progress: progress,
		Refused:  func(path string, err error) { out.Refused = append(out.Refused, Evidence{path, err.Error()}) },
	})
	if err != nil {
		return nil, err
	}
	out.Taken, out.Nodes = time.Now(), nodes
	return out, nil
}

// Observe takes two snapshots, the second one a pause after the first, and asks the brokers in between; ask is nil to
// leave them out.
func Observe(ctx context.Context, s coord.Store, pause time.Duration, ask func(context.Context) (*Answers, error), progress func(nodes int)) (Observation, error) {
	var o Observation
	var err error
	if o.First, err = Read(ctx, s, progress); err != nil {
		return o, err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	if ask != nil {
		if o.Brokers, err = ask(ctx); err != nil {
			return o, err
		}
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
		return o, ctx.Err()
	}
	o.Second, err = Read(ctx, s, progress)
	return o, err
}
