package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
)

// A store that refuses at once, as an etcd whose disk is full does, is not asked as fast as it refuses.
func TestWritesAtStartAreRepeatedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, began := 0, time.Now()
		err := settle(t.Context(), func() error { tries++; return coord.ErrUnavailable })
		if took := time.Since(began); !errors.Is(err, coord.ErrUnavailable) || took < settleFor || took > settleFor+time.Second || tries > 1000 {
			t.Errorf("ended with %v after %v and %d tries", err, took, tries)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if err := settle(ctx, func() error { return coord.ErrUnknownOutcome }); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("ended with %v after %v, want the end of the context", err, time.Since(began))
		}
	})
}
