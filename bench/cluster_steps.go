package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clusterStep takes figures from a cluster of three. Unlike those of single brokers the systems do not take turns: three
// JVMs that idle beside the one that is measured would take half a core. One runs all its steps, then the next.
type clusterStep struct {
	name string
	take func(ctx context.Context, o options, c *column, t *trio) error
}

var clusterSteps = []clusterStep{
	{"cluster-load", loadThree},
	{"cluster-topics", topicsOfThree},
	{"cluster-big", bigOfThree},
	{"cluster-thousand", thousandOfThree},
	{"cluster-moves", moves},
	{"cluster-10k", tenThousand},
}

// clusterStepTimeout bounds a step: 10,000 partitions take Kafka 3.9 one to two minutes to create.
const clusterStepTimeout = 6 * time.Minute

// runClusters takes the steps that are asked for.
func (r *runner) runClusters(ctx context.Context) error {
	for _, c := range r.columns {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.runCluster(ctx, c); err != nil {
			err = fmt.Errorf("%s: %w", c.name, err)
			fmt.Println("FAILED:", err)
			r.failed = append(r.failed, err)
		}
	}
	return errors.Join(r.failed...)
}

func (r *runner) runCluster(ctx context.Context, c *column) (err error) {
	dir := filepath.Join(r.work, c.name+"-cluster")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	began := time.Now()
	t, err := c.cluster.startCluster(ctx, dir)
	if t != nil {
		defer func() { err = errors.Join(err, t.close()) }()
	}
	if err == nil {
		err = t.open()
	}
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := t.firstTopic(ctx); err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	c.add(startThreeFigure, ms(time.Since(began)))
	t.settle(ctx)
	c.add(idleThreeFigure, t.asServer().rssMiB())
	r.report(c, "start")
	for _, s := range clusterSteps {
		if !stepListed(r.opts.steps, s.name) {
			continue
		}
		if err := r.takeCluster(ctx, s, c, t); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
		r.report(c, s.name)
	}
	return nil
}

func (r *runner) takeCluster(ctx context.Context, s clusterStep, c *column, t *trio) error {
	ctx, cancel := context.WithTimeout(ctx, clusterStepTimeout)
	defer cancel()
	t.settle(ctx)
	return s.take(ctx, r.opts, c, t)
}

// firstTopic waits for the first record that three replicas hold.
func (t *trio) firstTopic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	all := func(_ *member, v view) bool { return len(v.brokers) == clusterSize }
	if _, err := eachUntil(ctx, t.members, 10*time.Millisecond, []string{"first"}, all); err != nil {
		return err
	}
	if err := t.createSpread(ctx, 1, "first"); err != nil {
		return err
	}
	return t.writeAll(ctx, t.members, allOf([]string{"first"}, 1), -1)
}

// loadThree produces to three replicas as fast as one client can, and one record at a time. Before that a quarter of it is
// sent unmeasured, for the JVMs to compile.
func loadThree(ctx context.Context, o options, c *column, t *trio) error {
	srv := t.asServer()
	kib, small := "kib", "small"
	for _, topic := range []string{"warm", kib, small, "latency"} {
		if err := t.createSpread(ctx, 6, topic); err != nil {
			return err
		}
	}
	records, acks := o.records/2, kgo.RequiredAcks(kgo.AllISRAcks())
	if _, _, err := produceAll(ctx, srv, "warm", 1024, records/4, acks); err != nil {
		return err
	}
	cpu, rate, err := produceAll(ctx, srv, kib, 1024, records, acks)
	if err != nil {
		return err
	}
	c.add(kibThreeFigure, rate)
	c.add(kibThreeCPUFigure, cpu)
	if cpu, rate, err = produceAll(ctx, srv, small, 100, 2*records, acks); err != nil {
		return err
	}
	c.add(smallThreeFigure, rate)
	c.add(smallThreeCPUFigure, cpu)
	t.settle(ctx)
	p50, p99, err := oneAtATime(ctx, srv, "latency", 4000)
	if err != nil {
		return err
	}
	c.add(p50ThreeFigure, ms(p50))
	c.add(p99ThreeFigure, ms(p99))
	c.add(loadThreeRSSFigure, srv.rssMiB())
	return nil
}

// topicsOfThree creates and deletes topics of one partition, one after the other.
func topicsOfThree(ctx context.Context, _ options, c *column, t *trio) error {
	for i := range 20 {
		name := fmt.Sprint("single-", i)
		began := time.Now()
		if err := t.createSpread(ctx, 1, name); err != nil {
			return err
		}
		c.add(createThreeFigure, ms(time.Since(began)))
		answered, gone, err := t.deleteAll(ctx, name+"-", []string{name})
		if err != nil {
			return err
		}
		c.add(deleteThreeFigure, ms(answered))
		c.add(deleteGoneThreeFigure, ms(gone))
	}
	return nil
}

func bigOfThree(ctx context.Context, _ options, c *column, t *trio) error {
	return createAndDelete(ctx, c, t, []string{"big"}, 2000, bigThree)
}

func thousandOfThree(ctx context.Context, _ options, c *column, t *trio) error {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("many-", i))
	}
	return createAndDelete(ctx, c, t, names, 1, manyThree)
}

// creation names the figures of createAndDelete.
type creation struct{ response, usable, held, gone string }

func createAndDelete(ctx context.Context, c *column, t *trio, names []string, partitions int, f creation) error {
	began := time.Now()
	if err := t.createSpread(ctx, partitions, names...); err != nil {
		return err
	}
	c.add(f.response, ms(time.Since(began)))
	if err := t.writeAll(ctx, t.members, allOf(names, partitions), 1); err != nil {
		return err
	}
	c.add(f.usable, ms(time.Since(began)))
	if err := t.writeAll(ctx, t.members, allOf(names, partitions), -1); err != nil {
		return err
	}
	c.add(f.held, ms(time.Since(began)))
	t.settle(ctx)
	_, gone, err := t.deleteAll(ctx, names[0][:3], names)
	if err != nil {
		return err
	}
	c.add(f.gone, ms(gone))
	return nil
}

// moves kills and stops brokers of a cluster with 3,000 partitions, of which each broker leads 1,000.
func moves(ctx context.Context, _ options, c *column, t *trio) error {
	const topics, partitions = 30, 100
	names, err := t.fill(ctx, topics, partitions, topics)
	if err != nil {
		return err
	}
	t.settle(ctx)
	c.add(rssThousandsFigure, t.asServer().rssMiB())
	for _, what := range []struct {
		controller bool
		f          failoverFigures
	}{{true, controllerFigures}, {false, brokerFigures}} {
		if err := t.kill(ctx, c, names, what.controller, what.f); err != nil {
			return fmt.Errorf("kill -9, controller %v: %w", what.controller, err)
		}
		if err := t.ready(ctx, names); err != nil {
			return err
		}
		t.settle(ctx)
	}
	if err := t.shutDown(ctx, c, names, shutdownFigures); err != nil {
		return fmt.Errorf("controlled shutdown: %w", err)
	}
	if err := t.ready(ctx, names); err != nil {
		return err
	}
	return deleteTopics(ctx, t.members[0].client, names...)
}

// tenThousand kills the controller of a cluster with 10,000 partitions, stops a broker that leads a third of them, and
// deletes all.
func tenThousand(ctx context.Context, _ options, c *column, t *trio) error {
	const topics, partitions = 100, 100
	began := time.Now()
	names, err := t.fill(ctx, topics, partitions, 10)
	if err != nil {
		return err
	}
	c.add(createTenFigure, ms(time.Since(began)))
	t.settle(ctx)
	c.add(rssTenFigure, t.asServer().rssMiB())
	if err := t.kill(ctx, c, names, true, tenFigures); err != nil {
		return fmt.Errorf("kill -9 of the controller: %w", err)
	}
	if err := t.ready(ctx, names); err != nil {
		return err
	}
	t.settle(ctx)
	if err := t.shutDown(ctx, c, names, shutdownTenFigures); err != nil {
		return fmt.Errorf("controlled shutdown: %w", err)
	}
	if err := t.ready(ctx, names); err != nil {
		return err
	}
	t.settle(ctx)
	answered, gone, err := t.deleteAll(ctx, "full-", names)
	if err != nil {
		return err
	}
	c.add(deleteTenFigure, ms(answered))
	c.add(goneTenFigure, ms(gone))
	return nil
}

// fill creates topics, some by each request, and returns when each partition's leader has taken a record.
func (t *trio) fill(ctx context.Context, topics, partitions, perRequest int) ([]string, error) {
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("full-%d-%d", partitions*topics, i))
	}
	for i := 0; i < topics; i += perRequest {
		if err := t.createSpread(ctx, partitions, names[i:min(i+perRequest, topics)]...); err != nil {
			return nil, err
		}
	}
	return names, t.writeAll(ctx, t.members, allOf(names, partitions), 1)
}

// led gives the partitions that a broker leads, as another one sees it.
func led(v view, id int32) map[partitionID]bool {
	out := map[partitionID]bool{}
	for p, pv := range v.partitions {
		if pv.leader == id {
			out[p] = true
		}
	}
	return out
}

// moved reports whether all partitions that the broker led have another leader.
func moved(v view, from int32, ps map[partitionID]bool) bool {
	for p := range ps {
		if pv := v.partitions[p]; !pv.ready || pv.leader == from {
			return false
		}
	}
	return true
}

// victim is the controller, or the first broker that is not.
func (t *trio) victim(ctx context.Context, controller bool) (*member, error) {
	id, err := t.controller(ctx)
	if err != nil {
		return nil, err
	}
	if controller {
		return t.member(id)
	}
	return t.without(id)[0], nil
}

type moveFigures struct{ moved, exit string }

// shutDown stops a broker that is not the controller by SIGTERM and starts it again.
func (t *trio) shutDown(ctx context.Context, c *column, topics []string, f moveFigures) error {
	m, err := t.victim(ctx, false)
	if err != nil {
		return err
	}
	survivors := t.without(m.id)
	before, err := survivors[0].look(ctx, topics...)
	if err != nil {
		return err
	}
	pid, err := m.pid()
	if err != nil {
		return err
	}
	ps := led(before, m.id)
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	exited := make(chan time.Duration, 1)
	go func() {
		for alive(pid) && time.Since(began) < clusterStepTimeout {
			time.Sleep(2 * time.Millisecond)
		}
		exited <- time.Since(began)
	}()
	last, err := eachUntil(ctx, survivors, 20*time.Millisecond, topics, func(_ *member, v view) bool { return moved(v, m.id, ps) })
	exit := <-exited
	if err != nil {
		return err
	}
	c.add(f.moved, ms(last.Sub(began)))
	c.add(f.exit, ms(exit))
	return m.restart(ctx)
}

type failoverFigures struct {
	sinceKill string // until all have a leader, from the kill on
	leaders   string // the same after the registration is gone
	records   string // until each has taken a record, after the registration is gone
}

// kill kills a broker, follows what the survivors make of it, and starts it again. Where no registration can be seen to
// vanish only the time since the kill is known.
func (t *trio) kill(ctx context.Context, c *column, topics []string, controller bool, f failoverFigures) error {
	m, err := t.victim(ctx, controller)
	if err != nil {
		return err
	}
	survivors := t.without(m.id)
	before, err := survivors[0].look(ctx, topics...)
	if err != nil {
		return err
	}
	ps := led(before, m.id)
	if len(ps) == 0 {
		return fmt.Errorf("broker %d leads nothing", m.id)
	}
	var reg registry
	if t.registry != nil {
		if reg, err = t.registry(ctx); err != nil {
			return err
		}
		defer reg.Close()
	}
	pid, err := m.pid()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	var gone time.Time
	if reg != nil {
		if gone, err = awaitGone(ctx, reg, m.id); err != nil {
			return err
		}
	}
	last, err := eachUntil(ctx, survivors, 20*time.Millisecond, topics, func(_ *member, v view) bool { return moved(v, m.id, ps) })
	if err != nil {
		return err
	}
	if err := t.writeAll(ctx, survivors, ps, 1); err != nil {
		return err
	}
	c.add(f.sinceKill, ms(last.Sub(began)))
	if reg != nil {
		c.add(f.leaders, ms(last.Sub(gone)))
		c.add(f.records, ms(time.Since(gone)))
	}
	return m.restart(ctx)
}
