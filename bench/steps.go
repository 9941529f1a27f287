package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// step takes one or a few figures from a running server.
type step struct {
	name   string
	rounds int  // at most; fewer when the budget is used up
	long   bool // left out of a quick run
	take   func(ctx context.Context, o options, c *column, round int) error
}

// steps in their order. Starts come first, each on a folder of its own; the others share one server per system.
var steps = []step{
	{"start", 5, true, nil},
	{"idle", 1, false, idle},
	{"topics", 4, false, oneTopic},
	{"latency", 3, false, oneByOne},
	{"big", 2, false, bigTopic},
	{"thousand", 2, true, thousandTopics},
	{"load", 3, false, load},
	{"exit", 1, true, exitBig},
}

func stepNames() []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	for _, s := range clusterSteps {
		names = append(names, s.name)
	}
	return names
}

// stepTimeout bounds one step of one system: Kafka in ZooKeeper mode needs half a minute for 1,000 topics here when the
// machine is busy.
const stepTimeout = 90 * time.Second

type runner struct {
	opts     options
	work     string
	columns  []*column
	deadline time.Time
	failed   []error
}

// run takes every step of every system. What fails is noted and the rest goes on: one system's fault must not hide the
// others' figures.
func (r *runner) run(ctx context.Context) error {
	for _, s := range steps {
		if r.opts.steps == "" && r.opts.quick && s.long || r.opts.steps != "" && !stepListed(r.opts.steps, s.name) {
			continue
		}
		for round := range s.rounds {
			if round > 0 && time.Now().After(r.deadline) {
				break
			}
			for _, c := range r.columns {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if !c.dead {
					r.one(ctx, s, c, round)
				}
			}
		}
	}
	return errors.Join(r.failed...)
}

func (r *runner) one(ctx context.Context, s step, c *column, round int) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := func() error {
		if s.take == nil {
			return r.start(ctx, c, fmt.Sprint("start-", round))
		}
		if c.srv == nil {
			srv, err := r.launch(ctx, c, "main")
			if err != nil {
				c.dead = true
				return err
			}
			c.srv = srv
			if r.opts.quick { // the only start of such a run
				c.add(startFigure, ms(srv.firstRecord))
			}
		}
		c.srv.settle(ctx)
		return s.take(ctx, r.opts, c, round)
	}()
	if err != nil {
		err = fmt.Errorf("%s, step %s: %w", c.name, s.name, err)
		fmt.Println("FAILED:", err)
		r.failed = append(r.failed, err)
		return
	}
	r.report(c, s.name)
}

// report prints what a step has found.
func (r *runner) report(c *column, step string) {
	fmt.Printf("%-10s %-9s", c.name, step)
	for _, v := range c.flush() {
		fmt.Printf("  %s", v)
	}
	fmt.Println()
}

// launch starts a system on an empty folder and waits for its first acknowledged record.
func (r *runner) launch(ctx context.Context, c *column, name string) (*server, error) {
	dir := filepath.Join(r.work, c.name+"-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	srv, err := c.system.start(ctx, dir)
	if err != nil {
		c.dead = true
		return nil, err
	}
	if err := firstRecord(ctx, srv.addr); err != nil {
		_, stopErr := srv.stop()
		return nil, errors.Join(fmt.Errorf("first record: %w", err), stopErr)
	}
	srv.firstRecord = time.Since(srv.began)
	return srv, nil
}

// start measures a start on an empty folder and the stop of the empty broker.
func (r *runner) start(ctx context.Context, c *column, name string) error {
	srv, err := r.launch(ctx, c, name)
	if err != nil {
		return err
	}
	c.add(startFigure, ms(srv.firstRecord))
	took, err := srv.stop()
	c.add(exitEmptyFigure, ms(took))
	return err
}

func (r *runner) stopAll() error {
	var errs []error
	for _, c := range r.columns {
		if c.srv != nil {
			_, err := c.srv.stop()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// idle measures a broker with one topic of one record that nobody uses.
func idle(ctx context.Context, o options, c *column, _ int) error {
	c.add(idleCPUFigure, c.srv.cpuOver(ctx, o.idleTime()))
	c.add(idleRSSFigure, c.srv.rssMiB())
	return ctx.Err()
}

// rest lets what a broker puts off for a few seconds be over.
func (o options) rest(ctx context.Context) {
	select {
	case <-time.After(o.idleTime()):
	case <-ctx.Done():
	}
}

func (o options) idleTime() time.Duration {
	if o.quick {
		return 2 * time.Second
	}
	return 6 * time.Second
}

// exitBig stops a server that leads a topic of 2,000 partitions with a record in each.
func exitBig(ctx context.Context, o options, c *column, _ int) error {
	_, err := createBig(ctx, c, "leaving")
	if err != nil {
		return err
	}
	c.srv.settle(ctx)
	took, err := c.srv.stop()
	c.srv = nil
	if err != nil && !strings.Contains(err.Error(), "signal") {
		return err
	}
	c.add(exitBigFigure, ms(took))
	return nil
}
