package coord_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// faulty is a client whose n-th write meets a fault.
func faulty(t *testing.T, e *memstore.Engine, write int, fault memstore.Fault) *memstore.Client {
	t.Helper()
	c := e.Client()
	t.Cleanup(func() { _ = c.Close() })
	writes := 0
	c.SetHook(func(call memstore.Call) memstore.Fault {
		if slices.Contains([]string{"Multi", "Batch", "DeleteTree"}, call.Method) {
			if writes++; writes == write {
				return fault
			}
		}
		return memstore.Fault{}
	})
	return c
}

func open(t *testing.T, s coord.Store) coord.Session {
	t.Helper()
	sess, err := s.OpenSession(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return sess
}

// The faults of a write whose outcome its caller cannot know: applied with its answer lost, and not applied.
var unknownOutcomes = map[string]memstore.Fault{
	"applied":     {LoseAnswer: true},
	"not applied": {Err: coord.ErrUnknownOutcome},
}

func TestElectionSurvivesAnyLostAnswer(t *testing.T) {
	for name, fault := range unknownOutcomes {
		for write := 1; write <= 2; write++ { // creation of the epoch, election
			t.Run(fmt.Sprintf("write %d %s", write, name), func(t *testing.T) {
				e := memstore.New()
				s := faulty(t, e, write, fault)
				term, err := coord.TryElect(t.Context(), s, open(t, s), 1)
				if want := (coord.Term{Controller: 1, Epoch: 1, EpochVersion: 1}); err == nil && term != want {
					t.Errorf("term %+v, want %+v", term, want)
				}
				// Only the loss of the epoch's creation, not applied, is an error: nothing was elected then.
				if failed := write == 1 && name == "not applied"; (err != nil) != failed {
					t.Errorf("error is %v", err)
				}
			})
		}
	}
}

func TestElectionErrorsLeaveARetryThatFindsTheTerm(t *testing.T) {
	e := memstore.New()
	s := faulty(t, e, 2, memstore.Fault{LoseAnswer: true})
	sess := open(t, s)
	c := e.Client()
	reads := 0
	// The verification cannot be read, either: the broker is elected and does not know.
	s.SetHook(func(call memstore.Call) memstore.Fault {
		switch call.Method {
		case "Multi":
			return memstore.Fault{LoseAnswer: len(call.Ops) == 2}
		case "GetMany":
			reads++
			return memstore.Fault{Err: coord.ErrUnavailable}
		}
		return memstore.Fault{}
	})
	if _, err := coord.TryElect(t.Context(), s, sess, 1); !errors.Is(err, coord.ErrUnavailable) || reads != 1 {
		t.Fatalf("error %v after %d reads", err, reads)
	}
	if id, err := coord.ActiveController(t.Context(), c); id != 1 || err != nil {
		t.Fatalf("the controller is %d, %v", id, err)
	}
	s.SetHook(nil)
	if term, err := coord.TryElect(t.Context(), s, sess, 1); err != nil || term.Epoch != 1 || term.EpochVersion != 1 {
		t.Errorf("the retry gave %+v, %v", term, err)
	}
}

func TestElectionOfTwoBrokersHasOneWinnerWhateverAnswersAreLost(t *testing.T) {
	e := memstore.New()
	a := faulty(t, e, 2, memstore.Fault{LoseAnswer: true})
	b := e.Client()
	term, err := coord.TryElect(t.Context(), a, open(t, a), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := coord.TryElect(t.Context(), b, open(t, b), 2); !errors.Is(err, coord.ErrControllerMoved) {
		t.Errorf("the loser got %v", err)
	}
	if _, err := b.Batch(t.Context(), term.Guard(), []coord.Op{coord.Create("/a", nil)}); err != nil {
		t.Errorf("the winner's term does not hold: %v", err)
	}
}

func TestRegistrationSurvivesALostAnswer(t *testing.T) {
	for name, fault := range unknownOutcomes {
		t.Run(name, func(t *testing.T) {
			e := memstore.New()
			if err := coord.EnsurePersistentPaths(t.Context(), e.Client()); err != nil {
				t.Fatal(err)
			}
			s := faulty(t, e, 1, fault)
			epoch, err := coord.RegisterBroker(t.Context(), s, open(t, s), 1, coord.BrokerNode{}, coord.RegisterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n, err := s.Get(t.Context(), coord.BrokerPath(1))
			if err != nil || cluster.BrokerEpoch(n.Stat.Czxid) != epoch || n.Stat.Version != 1 {
				t.Errorf("epoch %d, node %+v, %v", epoch, n.Stat, err)
			}
		})
	}
}

func TestClusterIDSurvivesALostAnswer(t *testing.T) {
	for name, fault := range unknownOutcomes {
		for write := 1; write <= 2; write++ { // without and with its parent
			t.Run(fmt.Sprintf("write %d %s", write, name), func(t *testing.T) {
				e := memstore.New()
				s := faulty(t, e, write, fault)
				first, err := coord.ClusterID(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if second, err := coord.ClusterID(t.Context(), e.Client()); err != nil || second != first {
					t.Errorf("%q, then %q, %v", first, second, err)
				}
			})
		}
	}
}

func TestResignationWithALostAnswerIsReported(t *testing.T) {
	e := memstore.New()
	s := e.Client()
	term, err := coord.TryElect(t.Context(), s, open(t, s), 1)
	if err != nil {
		t.Fatal(err)
	}
	lossy := faulty(t, e, 1, memstore.Fault{LoseAnswer: true})
	if err := coord.Resign(t.Context(), lossy, term); !errors.Is(err, coord.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if err := coord.Resign(t.Context(), lossy, term); err != nil {
		t.Errorf("again: %v", err)
	}
}
