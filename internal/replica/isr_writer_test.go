package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/config"
)

// scriptedStates answers writes one after the other, and keeps them and the notifications.
type scriptedStates struct {
	mu      sync.Mutex
	answers []func([]StateWrite) ([]StateWriteResult, error)
	noteErr error // of the next notification
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
		a := newAlterPartitions(Options{Config: Config{BrokerID: 1, Versions: old}, States: states, Log: slog.New(slog.DiscardHandler)})
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
