package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// harness runs a consumer in a synctest bubble and records what it handles.
type harness struct {
	*testing.T
	engine *memstore.Engine
	writer *memstore.Client
	reader *memstore.Client
	log    strings.Builder

	mu struct {
		sync.Mutex
		handled []string
	}
}

func newHarness(t *testing.T) *harness {
	e := memstore.New()
	h := &harness{T: t, engine: e, writer: e.Client(), reader: e.Client()}
	if err := coord.EnsurePath(t.Context(), h.writer, coord.ConfigChangesPath, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *harness) handle(_ context.Context, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if string(data) == "bad" {
		return errors.New("malformed")
	}
	h.mu.handled = append(h.mu.handled, string(data))
	return nil
}

func (h *harness) start(c *Consumer) (stop func()) {
	ctx, cancel := context.WithCancel(h.Context())
	c.Root, c.Handle, c.Log = coord.ConfigChangesPath, h.handle, slog.New(slog.NewTextHandler(&h.log, nil))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, h.reader) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			h.Errorf("run: %v", err)
		}
	}
}

func (h *harness) notify(texts ...string) {
	h.Helper()
	for _, text := range texts {
		if _, err := h.writer.Multi(h.Context(), coord.CreateSequential(coord.ConfigChangePrefix, []byte(text))); err != nil {
			h.Fatal(err)
		}
	}
	synctest.Wait()
}

func (h *harness) want(handled ...string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.mu.handled, handled) {
		h.Errorf("handled %v, want %v", h.mu.handled, handled)
	}
}

func (h *harness) left() int {
	h.Helper()
	names, err := h.writer.Children(h.Context(), coord.ConfigChangesPath)
	if err != nil {
		h.Fatal(err)
	}
	return len(names)
}

func TestExistingNotificationsAreReplayedThenTheCurrentStateIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.notify("a", "b")
		stop := h.start(&Consumer{OnStart: func(ctx context.Context) error { return h.handle(ctx, []byte("start")) }})
		h.notify("c")
		h.want("a", "b", "start", "c")
		stop()
	})
}

func TestNotificationsAreHandledOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.start(&Consumer{})
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprint(i))
		}
		h.notify(want...)
		h.want(want...)
		stop()
	})
}

func TestAMalformedNotificationIsSkippedWithAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.notify("a", "bad", "b")
		stop := h.start(&Consumer{})
		h.want("a", "b")
		stop()
		if !strings.Contains(h.log.String(), "change notification skipped") {
			t.Errorf("log is %q", h.log.String())
		}
	})
}

func TestNodesThatAreNoNotificationsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		if err := coord.EnsurePath(t.Context(), h.writer, coord.ConfigChangesPath+"/other", []byte("x")); err != nil {
			t.Fatal(err)
		}
		stop := h.start(&Consumer{})
		h.notify("a")
		h.want("a")
		stop()
	})
}

func TestNotificationsOlderThanFifteenMinutesArePurgedByTheNextPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.notify("a")
		stop := h.start(&Consumer{})
		<-time.After(10 * time.Minute)
		h.notify("b")
		if n := h.left(); n != 2 {
			t.Errorf("%d notifications after 10 minutes, want 2", n)
		}
		<-time.After(6 * time.Minute)
		h.notify("c")
		if n := h.left(); n != 2 {
			t.Errorf("%d notifications after 16 minutes, want b and c", n)
		}
		h.want("a", "b", "c")
		stop()
	})
}

func TestManyChangesDuringAPassNeedOneMorePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		gate, passes := make(chan struct{}), 0
		h.reader.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Children" {
				passes++
				return memstore.Fault{Wait: gate}
			}
			return memstore.Fault{}
		})
		stop := h.start(&Consumer{})
		h.notify("a", "b", "c")
		close(gate)
		synctest.Wait()
		h.want("a", "b", "c")
		stop()
		if passes != 2 {
			t.Errorf("%d passes, want the held one and one more", passes)
		}
	})
}

func TestANewSessionLooksForMissedNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		changed := make(chan struct{})
		passes := 0
		h.reader.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Children" {
				passes++
			}
			return memstore.Fault{}
		})
		stop := h.start(&Consumer{SessionChanged: changed})
		changed <- struct{}{}
		synctest.Wait()
		stop()
		if passes != 2 {
			t.Errorf("%d passes, want 2", passes)
		}
	})
}

func TestAnUnreachableStoreIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.notify("a")
		h.reader.Disconnect()
		stop := h.start(&Consumer{})
		h.want()
		h.reader.Reconnect()
		<-time.After(2 * retryPause)
		h.want("a")
		stop()
	})
}

func TestAClosedStoreEndsTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		c := &Consumer{Root: coord.ConfigChangesPath, Handle: h.handle, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context(), h.reader) }()
		synctest.Wait()
		if err := h.reader.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, coord.ErrClosed) {
			t.Errorf("run: %v", err)
		}
	})
}
