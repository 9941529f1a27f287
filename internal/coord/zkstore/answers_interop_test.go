//go:build interop

package zkstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"klamm/internal/coord"
)

// A list of some 20,000 topics with long names is read; one above 4 MiB fails by itself, and the connection lives on.
func TestAnswersOfFourMebibytesAreRead(t *testing.T) {
	s, err := Open(t.Context(), Options{Connect: startServer(t, ""), SessionTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const nameBytes, perMulti = 200, 1000
	fits := (replyBytesMax - 200) / (nameBytes + 4)
	create := func(from, to int) {
		var ops []coord.Op
		for i := from; i < to; i++ {
			ops = append(ops, coord.Create(fmt.Sprintf("/many/%0*d", nameBytes, i), nil))
		}
		if _, err := s.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Multi(t.Context(), coord.Create("/many", nil)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < fits; i += perMulti {
		create(i, min(i+perMulti, fits))
	}
	if names, err := s.Children(t.Context(), "/many"); err != nil || len(names) != fits {
		t.Errorf("%d of %d names, %v", len(names), fits, err)
	}
	create(fits, fits+perMulti)
	var large *replyTooLargeError
	if _, err := s.Children(t.Context(), "/many"); !errors.As(err, &large) {
		t.Errorf("a list above the limit: %v", err)
	}
	if _, err := s.Get(t.Context(), "/many"); err != nil {
		t.Errorf("and then: %v", err)
	}
	if n := s.o.Stats.Connects.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}
