package metadata

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// run starts the cache's loop in the bubble and returns the function that ends it.
func run(t *testing.T, c *Cache) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func hasTopic(name string) func(*Image) bool {
	return func(im *Image) bool { _, ok := im.Topic(name); return ok }
}

func TestAWaiterIsToldByTheUpdateThatMakesItsConditionTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		defer run(t, c)()
		var got []string
		tell := func(name string) func(bool) { return func(ok bool) { got = append(got, fmt.Sprint(name, ok)) } }
		deadline := time.Now().Add(time.Minute)
		c.Await([]string{"a"}, deadline, hasTopic("a"), tell("a "))
		c.Await([]string{"b", "c"}, deadline, hasTopic("c"), tell("c "))
		c.Await(nil, deadline, func(im *Image) bool { return im.HasBroker(2) }, tell("broker "))
		synctest.Wait()
		if len(got) != 0 {
			t.Fatalf("told too early: %v", got)
		}
		c.Apply(request(topicState("x", 1, entry(0, 1, 1))))
		synctest.Wait()
		c.Apply(request(topicState("c", 2, entry(0, 1, 1))))
		synctest.Wait()
		c.Apply(request(topicState("a", 3, entry(0, 1, 1))))
		synctest.Wait()
		if want := []string{"broker true", "c true", "a true"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
	})
}

func TestAConditionThatHoldsAlreadyIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		c.Apply(request(topicState("a", 1, entry(0, 1, 1))))
		answers := 0
		c.Await([]string{"a", "a"}, time.Now(), hasTopic("a"), func(ok bool) {
			if ok {
				answers++
			}
		})
		stop := run(t, c) // waiters may come before the loop
		synctest.Wait()
		stop()
		if answers != 1 {
			t.Errorf("%d positive answers, want 1", answers)
		}
	})
}

func TestWaitersAreToldAtTheirDeadlinesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		defer run(t, c)()
		start := time.Now()
		var got []time.Duration
		for _, d := range []time.Duration{3 * time.Second, time.Second, 2 * time.Hour, 2 * time.Second} {
			c.Await([]string{"a"}, start.Add(d), hasTopic("a"), func(ok bool) {
				if ok {
					t.Error("told true")
				}
				got = append(got, time.Since(start))
			})
		}
		for range 121 {
			<-time.After(time.Minute)
		}
		synctest.Wait()
		if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Hour}; !slices.Equal(got, want) {
			t.Errorf("told after %v, want %v", got, want)
		}
		if n := len(c.waiters.byTopic); n != 0 {
			t.Errorf("%d topics still have waiters", n)
		}
	})
}

func TestWhoeverStillWaitsWhenRunEndsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		stop := run(t, c)
		answers := 0
		done := func(ok bool) {
			answers++
			if ok {
				t.Error("told true")
			}
		}
		for i := range 100 {
			c.Await([]string{fmt.Sprint(i % 7)}, time.Now().Add(time.Hour), hasTopic("a"), done)
			if i == 50 {
				synctest.Wait()
			}
		}
		stop()
		c.Await([]string{"a"}, time.Now().Add(time.Hour), hasTopic("a"), done)
		if answers != 101 {
			t.Errorf("%d of 101 told", answers)
		}
	})
}

func TestDoneMayAddTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		defer run(t, c)()
		told := false
		c.Await([]string{"a"}, time.Now().Add(time.Hour), hasTopic("a"), func(bool) {
			c.Await([]string{"b"}, time.Now().Add(time.Hour), hasTopic("b"), func(ok bool) { told = ok })
		})
		c.Apply(request(topicState("a", 1, entry(0, 1, 1))))
		c.Apply(request(topicState("b", 2, entry(0, 1, 1))))
		synctest.Wait()
		if !told {
			t.Error("the second waiter was not told")
		}
	})
}

// A condition may ask about more than the image.
func TestAWaiterIsAskedAgainWhenSomebodySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(quiet())
		defer run(t, c)()
		var decided atomic.Bool
		var got []bool
		c.Await([]string{"a"}, time.Now().Add(time.Minute), func(*Image) bool { return decided.Load() }, func(ok bool) { got = append(got, ok) })
		synctest.Wait()
		decided.Store(true)
		c.LookAgain("b")
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("told %v by a look at another topic", got)
		}
		c.LookAgain("a")
		synctest.Wait()
		if !slices.Equal(got, []bool{true}) {
			t.Errorf("told %v, want true once", got)
		}
	})
}
