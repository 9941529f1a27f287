package driver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/wire/wiretest"
)

// senderUnderTest is a sender to broker 2 with what it delivered.
type senderUnderTest struct {
	*sender
	events []controller.Event
	end    func()
}

func startSender(t *testing.T, n *wiretest.Net, change ...func(*sender)) *senderUnderTest {
	u := &senderUnderTest{sender: &sender{
		broker: brokerOf(2), dial: dialer(n, 1), log: quiet(),
		builder:       requestBuilder{mustVersions(t, "3.9"), "PLAINTEXT"},
		socketTimeout: 30 * time.Second, requestTimeout: 30 * time.Second, queueMax: 100, entriesMax: 1000,
		stopped: make(chan struct{}), wake: make(chan struct{}, 1),
	}}
	u.deliver = func(_ context.Context, ev controller.Event) bool { u.events = append(u.events, ev); return true }
	for _, f := range change {
		f(u.sender)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go u.run(ctx)
	u.end = func() { cancel(); <-u.stopped }
	return u
}

func mustVersions(t *testing.T, ibp string) Versions {
	v, err := VersionsFor(ibp)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// update is an UpdateMetadata request told apart by its controller epoch.
func update(epoch cluster.ControllerEpoch) *updateMetadata {
	u := &controller.MetadataUpdate{}
	return &updateMetadata{controller.SendUpdateMetadata{Target: controller.Target{Broker: 2, ControllerEpoch: epoch}, Update: u}, newMetadataBody(u)}
}

func epochs(reqs []kmsg.Request) []int32 {
	var out []int32
	for _, r := range reqs {
		out = append(out, r.(*kmsg.UpdateMetadataRequest).ControllerEpoch)
	}
	return out
}

func TestRequestsArriveInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		b := newFakeBroker(t, n, 2).start()
		defer b.stop()
		b.setHold(true)
		s := startSender(t, n)
		defer s.end()
		for i := range 3 {
			s.push(update(cluster.ControllerEpoch(i)))
		}
		synctest.Wait()
		if got := b.take(); len(got) != 1 || s.queueSize() != 2 {
			t.Fatalf("%d requests in flight, %d waiting; want 1 and 2", len(got), s.queueSize())
		}
		b.setHold(false)
		synctest.Wait()
		if got := epochs(b.take()); len(got) != 2 || got[0] != 1 || got[1] != 2 {
			t.Errorf("then came %v, want 1 and 2", got)
		}
		for i, ev := range s.events {
			if e := ev.(controller.UpdateMetadataReply).Request.Target.ControllerEpoch; int(e) != i {
				t.Errorf("reply %d is for request %d", i, e)
			}
		}
		if len(s.events) != 3 || s.waits.snapshot().Count != 3 {
			t.Errorf("%d replies, %d timed", len(s.events), s.waits.snapshot().Count)
		}
	})
}

func TestWhoWaitsForAnswersHearsOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		b := newFakeBroker(t, n, 2).start()
		defer b.stop()
		s := startSender(t, n)
		var told []string
		wait := func(name string) { s.afterAnswers(func() { told = append(told, name) }) }
		want := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(told, want) {
				t.Errorf("%s: %v, want %v", when, told, want)
			}
		}
		wait("nothing sent")
		want("nothing was sent", "nothing sent")
		b.setHold(true)
		s.push(update(1))
		wait("first")
		s.push(update(2))
		wait("second")
		wait("second again")
		want("the broker does not answer", "nothing sent")
		b.setHold(false)
		want("it answers", "nothing sent", "first", "second", "second again")
		b.setHold(true)
		s.push(update(3))
		s.push(update(4))
		wait("at the end")
		s.end()
		want("the sender has ended", "nothing sent", "first", "second", "second again", "at the end")
		wait("after the end")
		want("after the end", "nothing sent", "first", "second", "second again", "at the end", "after the end")
	})
}

func TestTheSameRequestIsSentUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		s := startSender(t, n)
		defer s.end()
		start := time.Now()
		s.push(update(1))
		s.push(update(2))
		<-time.After(950 * time.Millisecond) // nobody listens: a connect every 100 ms
		synctest.Wait()
		if got := s.resends.Load(); got != 10 {
			t.Errorf("%d attempts in 950 ms, want 10", got)
		}
		b := newFakeBroker(t, n, 2)
		drops := 3
		b.setReply(func(req kmsg.Request) kmsg.Response {
			if drops--; drops >= 0 {
				return nil // closes the connection instead of answering
			}
			return allWell(req)
		})
		b.start()
		defer b.stop()
		<-time.After(time.Second)
		synctest.Wait()
		if got := epochs(b.take()); len(got) != 5 || got[3] != 1 || got[4] != 2 {
			t.Errorf("requests %v, want 1 four times, then 2", got)
		}
		if len(s.events) != 2 {
			t.Errorf("%d replies after %v", len(s.events), time.Since(start))
		}
	})
}

func TestAnAnswerThatDoesNotComeIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		b := newFakeBroker(t, n, 2).start()
		defer b.stop()
		b.setHold(true)
		s := startSender(t, n)
		defer s.end()
		s.push(update(1))
		<-time.After(31 * time.Second)
		synctest.Wait()
		if got := epochs(b.take()); len(got) != 2 {
			t.Errorf("%d deliveries within 31 s, want 2", len(got))
		}
		b.setHold(false)
		synctest.Wait()
		if len(s.events) != 1 {
			t.Errorf("%d replies, want 1", len(s.events))
		}
	})
}

func TestAConnectionThatTheBrokerClosedWhileIdleCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		b := newFakeBroker(t, n, 2).start()
		s := startSender(t, n)
		defer s.end()
		s.push(update(1))
		synctest.Wait()
		b.stop()
		b.start()
		defer func() { b.stop() }()
		synctest.Wait()
		s.push(update(2))
		synctest.Wait()
		if got := epochs(b.take()); len(got) != 2 || s.resends.Load() != 0 || len(s.events) != 2 {
			t.Errorf("requests %v, %d resends, %d replies", got, s.resends.Load(), len(s.events))
		}
	})
}

func TestAStoppedSenderDropsItsQueueAndEndsInEveryPlace(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, n *wiretest.Net) (stop func()){
		"connecting": func(*testing.T, *wiretest.Net) func() { return func() {} },
		"waiting for an answer": func(t *testing.T, n *wiretest.Net) func() {
			b := newFakeBroker(t, n, 2).start()
			b.setHold(true)
			return b.stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := wiretest.NewNet()
				stop := prepare(t, n)
				s := startSender(t, n)
				s.push(update(1))
				s.push(update(2))
				<-time.After(250 * time.Millisecond)
				s.end()
				stop()
				if len(s.events) != 0 {
					t.Errorf("replies %v after the end", s.events)
				}
			})
		})
	}
}

func TestAQueueTakesNoMoreThanItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, wiretest.NewNet(), func(s *sender) { s.queueMax, s.entriesMax = 3, 10 })
		defer s.end()
		s.push(update(0))
		synctest.Wait() // in flight, out of the queue
		big := newLeaderAndISR(controller.SendLeaderAndISR{Topics: []controller.LeaderAndISRTopic{{Partitions: make([]controller.LeaderAndISRPartition, 20)}}})
		for i, c := range []struct {
			r    outgoing
			want bool
		}{{big, true}, {newLeaderAndISR(controller.SendLeaderAndISR{}), false}, {update(1), false}} {
			if got := s.push(c.r); got != c.want {
				t.Errorf("push %d taken: %t", i, got)
			}
		}
		s.pop()
		for i, want := range []bool{true, true, true, false} {
			if got := s.push(update(1)); got != want {
				t.Errorf("push %d into the emptied queue taken: %t", i, got)
			}
		}
	})
}
