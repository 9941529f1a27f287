package node

import (
	"context"
	"errors"
	"fmt"
)

// supervisor runs the broker's long-lived parts and ends them in a chosen order. A part that ends by itself is a
// failure of the broker: failed then yields it. Owned by one goroutine; only failed may be read by others.
type supervisor struct {
	parts  []*part
	failed chan error // buffered; the first part to end by itself
}

type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

func newSupervisor() *supervisor { return &supervisor{failed: make(chan error, 1)} }

// start runs a part until stop or until it fails. Parts get a context of their own, not one that dies with the
// caller's: they are ended one by one.
func (s *supervisor) start(name string, run func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	s.parts = append(s.parts, p)
	go func() {
		p.err = run(ctx)
		close(p.done)
		if ctx.Err() == nil {
			err := p.err
			if err == nil {
				err = errors.New("ended unexpectedly")
			}
			select {
			case s.failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}
	}()
	return p
}

// stop ends a part and waits for it; a part may be stopped twice.
func (p *part) stop() error {
	p.cancel()
	<-p.done
	if p.err != nil && !errors.Is(p.err, context.Canceled) {
		return fmt.Errorf("stop %s: %w", p.name, p.err)
	}
	return nil
}

// stopAll ends the remaining parts, the youngest first.
func (s *supervisor) stopAll() error {
	var errs []error
	for i := len(s.parts) - 1; i >= 0; i-- {
		errs = append(errs, s.parts[i].stop())
	}
	s.parts = nil
	return errors.Join(errs...)
}

// cleanup collects what has to be closed, and closes it once, the youngest first.
type cleanup []func() error

func (c *cleanup) add(what string, fn func() error) {
	*c = append(*c, func() error {
		if err := fn(); err != nil {
			return fmt.Errorf("close %s: %w", what, err)
		}
		return nil
	})
}

func (c *cleanup) run() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}
