package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
)

// scriptedStates answers writes one after the other, and keeps them and the notifications.
type scriptedStates struct {
	mu      sync.Mutex
	answers []func([]StateWrite) ([]StateWriteResult, error)
	noteErr error // of the next notification
	deaf    bool  // nothing is confirmed
	writes  [][]StateWrite
	notes   [][]cluster.TopicPartition
	notedAt []time.Time
}

func (s *scriptedStates) WriteStates(_ context.Context, w []StateWrite) ([]StateWriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, w)
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer(w)
}

func (s *scriptedStates) NotifyISRChange(_ context.Context, tps []cluster.TopicPartition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.noteErr; err != nil {
		s.noteErr = nil
		return err
	}
	s.notes, s.notedAt = append(s.notes, tps), append(s.notedAt, time.Now())
	return nil
}

func (s *scriptedStates) Confirm(ctx context.Context) error {
	if s.deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func written(code cluster.ErrorCode) func([]StateWrite) ([]StateWriteResult, error) {
	return func(ws []StateWrite) ([]StateWriteResult, error) {
		out := make([]StateWriteResult, len(ws))
		for i, w := range ws {
			out[i] = StateWriteResult{State: w.State, Code: code}
			out[i].State.PartitionEpoch++
		}
		return out, nil
	}
}

// Below 2.7-IV2 no controller is asked: the leader writes, tries again while the store is away, and tells the controller once of all
// that it changed. A write that met another version is not told of.
func TestALeaderOfAnOldProtocolWritesItsISRAndNotifiesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		states := &scriptedStates{noteErr: errors.New("away"), answers: []func([]StateWrite) ([]StateWriteResult, error){
			func([]StateWrite) ([]StateWriteResult, error) { return nil, errors.New("away") },
			written(cluster.None), written(cluster.None), written(cluster.InvalidUpdateVersion),
		}}
		old := VersionsFor(config.ProtocolVersion{Major: 2, Minor: 6})
		a := newAlterPartitions(Options{Config: Config{BrokerID: 1, ReplicaLagTimeMax: 30 * time.Second, Versions: old}, Registered: func() bool { return true }, States: states, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.run(ctx) })
		running.Go(func() { a.runNotices(ctx) })
		answers := map[cluster.TopicPartition]isrAnswer{}
		proposed := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2}, PartitionEpoch: 6, ControllerEpoch: 9}
		start := time.Now()
		for i := range 3 {
			a.submit(&alterPartitionItem{tp: testTP(i), proposed: proposed,
				done: func(s cluster.LeaderAndISR, code cluster.ErrorCode) { answers[testTP(i)] = isrAnswer{s, code} }})
			<-time.After(300 * time.Millisecond)
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		after := proposed
		after.PartitionEpoch++
		want := map[cluster.TopicPartition]isrAnswer{
			testTP(0): {after, cluster.None}, testTP(1): {after, cluster.None}, testTP(2): {after, cluster.InvalidUpdateVersion},
		}
		if d := cmp.Diff(want, answers); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
		if len(states.writes) != 4 || !cmp.Equal(states.writes[0], states.writes[1]) {
			t.Errorf("writes %v", states.writes)
		}
		if d := cmp.Diff([][]cluster.TopicPartition{{testTP(0), testTP(1)}}, states.notes); d != "" {
			t.Errorf("notifications (-want +got):\n%s", d)
		} else if took := states.notedAt[0].Sub(start); took > 4*time.Second {
			t.Errorf("notified after %v", took)
		}
		stop()
		running.Wait()
	})
}

func TestANotificationIsNotPutOffForEver(t *testing.T) {
	var n isrNotices
	start := time.Unix(1000, 0)
	for at := start; at.Before(start.Add(isrNoticeMax)); at = at.Add(isrNoticeLinger / 2) {
		n.add(testTP(0), at)
		if due := n.takeDue(at); due != nil {
			t.Fatalf("told after %v", at.Sub(start))
		}
	}
	n.add(testTP(1), start.Add(isrNoticeMax))
	if due := n.takeDue(start.Add(isrNoticeMax)); len(due) != 2 {
		t.Errorf("told of %v", due)
	}
}

// A controller that does not answer, or says that it is none, holds nobody up whom a follower holds up: who leaves an ISR is written without
// it once it has had its time; who joins one waits. But a leader that has no session, or does not hear the store, takes nobody out, not even
// through a controller that would do it.
func TestAnISRShrinksWithoutAControllerThatDoesNotAnswer(t *testing.T) {
	silent := func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		return nil, errors.New("link down")
	}
	for _, tc := range []struct {
		name    string
		answers []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) // before it falls silent
		expired bool                                                                      // this broker's session
		deaf    bool                                                                      // it does not hear the store
		states  []func([]StateWrite) ([]StateWriteResult, error)
		want    map[cluster.TopicPartition]isrAnswer
		after   time.Duration // of the first write
		notes   int
	}{
		{name: "silent", states: []func([]StateWrite) ([]StateWriteResult, error){written(cluster.None)}, after: 2 * time.Second, notes: 1,
			want: map[cluster.TopicPartition]isrAnswer{testTP(0): {shrunk(7), cluster.None}}},
		{name: "refusing connections, then no controller", answers: repeat(100, silent, answerTop(cluster.NotController)),
			states: []func([]StateWrite) ([]StateWriteResult, error){written(cluster.None)}, after: 2 * time.Second, notes: 1,
			want: map[cluster.TopicPartition]isrAnswer{testTP(0): {shrunk(7), cluster.None}}},
		{name: "somebody else has written", states: []func([]StateWrite) ([]StateWriteResult, error){written(cluster.InvalidUpdateVersion)}, after: 2 * time.Second,
			want: map[cluster.TopicPartition]isrAnswer{testTP(0): {shrunk(7), cluster.InvalidUpdateVersion}}},
		{name: "away with the store", after: 5 * time.Second, notes: 1, states: []func([]StateWrite) ([]StateWriteResult, error){
			func([]StateWrite) ([]StateWriteResult, error) { return nil, errors.New("away") }, written(cluster.None),
		}, want: map[cluster.TopicPartition]isrAnswer{testTP(0): {shrunk(7), cluster.None}}},
		{name: "without a session", expired: true, answers: repeat(1, answerAll(cluster.None), answerAll(cluster.None)), want: map[cluster.TopicPartition]isrAnswer{}},
		{name: "not hearing the store", deaf: true, answers: repeat(1, answerAll(cluster.None), answerAll(cluster.None)), want: map[cluster.TopicPartition]isrAnswer{}},
		{name: "it answers in time", answers: repeat(1, silent, answerAll(cluster.None)), want: map[cluster.TopicPartition]isrAnswer{
			testTP(0): {shrunk(7), cluster.None}, testTP(1): {cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2}, PartitionEpoch: 7, ControllerEpoch: 9}, cluster.None},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				states := &scriptedStates{answers: tc.states, deaf: tc.deaf}
				a := newAlterPartitions(Options{
					Config:     Config{BrokerID: 1, ReplicaLagTimeMax: 8 * time.Second, Versions: DefaultVersions()},
					Controller: &scriptedController{answers: tc.answers}, States: states, Log: slog.New(slog.DiscardHandler),
					BrokerEpoch: func() cluster.BrokerEpoch { return 44 }, Registered: func() bool { return !tc.expired },
				})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { a.run(ctx) })
				running.Go(func() { a.runNotices(ctx) })
				answers, start := map[cluster.TopicPartition]isrAnswer{}, time.Now()
				for i, isr := range [][]cluster.BrokerID{{1}, {1, 2}} {
					proposed := shrunk(6)
					proposed.ISR = isr
					a.submit(&alterPartitionItem{tp: testTP(i), topicID: testTopicID, proposed: proposed, epochs: make([]cluster.BrokerEpoch, len(isr)), shrinks: i == 0,
						done: func(s cluster.LeaderAndISR, code cluster.ErrorCode) { answers[testTP(i)] = isrAnswer{s, code} }})
				}
				<-time.After(tc.after + time.Second)
				synctest.Wait()
				if d := cmp.Diff(tc.want, answers); d != "" {
					t.Errorf("answers %v after the start (-want +got):\n%s", time.Since(start), d)
				}
				if len(states.answers) > 0 {
					t.Errorf("writes %v, %d more expected", states.writes, len(states.answers))
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				var notes [][]cluster.TopicPartition
				for range tc.notes {
					notes = append(notes, []cluster.TopicPartition{testTP(0)})
				}
				if d := cmp.Diff(notes, states.notes); d != "" {
					t.Errorf("notifications (-want +got):\n%s", d)
				}
				stop()
				running.Wait()
			})
		})
	}
}

var testTopicID = cluster.NewTopicID()

// shrunk is the state of a partition that only its leader is in sync in.
func shrunk(epoch cluster.PartitionEpoch) cluster.LeaderAndISR {
	return cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1}, PartitionEpoch: epoch, ControllerEpoch: 9}
}

// repeat is n times the first, and then the other for ever, or as good as that.
func repeat[T any](n int, first, then T) []T {
	return append(slices.Repeat([]T{first}, n), slices.Repeat([]T{then}, 1000)...)
}
