package api

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/wire"
)

// TestRandomRequestsAreAnsweredOrRefused sends requests with random fields of every API and version: each is answered
// or its connection closed, and nothing panics (see panicWatch).
func TestRandomRequestsAreAnsweredOrRefused(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0, 1}, []cluster.BrokerID{1, 2})
		// What is led here takes requests to the log and to the groups.
		id := b.lead("led", 3)
		b.produce(9, "led", 1, batch(t, record.BuilderOptions{}, "a", "b"))
		b.lead(cluster.GroupOffsetsTopic, 3)
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, a := range b.h.apis() {
			for version := a.min; version <= a.max; version++ {
				for range 60 {
					req := kmsg.RequestForKey(a.key.Int16())
					fill(rnd, reflect.ValueOf(req).Elem(), id)
					req.SetVersion(version)
					b.ask(req)
				}
			}
		}
	})
}

// ask sends a request on a connection of its own and waits for the answer or the end of the connection.
func (b *testBroker) ask(req kmsg.Request) {
	b.t.Helper()
	c := b.dial("b0:9093", "random")
	ctx, cancel := context.WithTimeout(b.ctx, 100*second)
	defer cancel()
	_, _ = c.Request(ctx, req)
	if p, ok := req.(*kmsg.ProduceRequest); ctx.Err() != nil && (!ok || p.Acks != 0) {
		b.t.Errorf("%T version %d was never answered: %+v", req, req.GetVersion(), req)
	}
	_ = c.Close()
	synctest.Wait()
}

// fill sets the fields of a request to values that are often meaningful.
func fill(rnd *rand.Rand, v reflect.Value, id cluster.TopicID) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; name {
			case "Version", "UnknownTags":
			case "TimeoutMillis", "MaxWaitMillis":
				v.Field(i).SetInt(rnd.Int64N(3000) - 10)
			case "SessionTimeoutMillis", "RebalanceTimeoutMillis": // a join waits no longer than that
				v.Field(i).SetInt(rnd.Int64N(40_000) - 10)
			default:
				fill(rnd, v.Field(i), id)
			}
		}
	case reflect.Pointer:
		if rnd.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rnd, v.Elem(), id)
		}
	case reflect.Slice:
		if rnd.IntN(8) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), rnd.IntN(4), 4))
		for i := range v.Len() {
			fill(rnd, v.Index(i), id)
		}
	case reflect.Array:
		if rnd.IntN(2) == 0 {
			v.Set(reflect.ValueOf([16]byte(id)))
		} else if rnd.IntN(2) == 0 {
			v.Index(0).SetUint(rnd.Uint64() % 256)
		}
	case reflect.String:
		words := []string{"t", "led", "led", "nosuch", "", "..", "a/b", "a.b", "a_b", "0", "1", "retention.ms", "cleanup.policy", "compact", "9999999999999999999"}
		v.SetString(words[rnd.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		numbers := []int64{0, 0, 1, 2, 3, 7, -1, -2, -3, 1 << 20, 1<<31 - 1, -1 << 31, 1<<63 - 1}
		n := numbers[rnd.IntN(len(numbers))]
		if v.OverflowInt(n) {
			n = int64(int8(n))
		}
		v.SetInt(n)
	case reflect.Uint8:
		v.SetUint(rnd.Uint64() % 256)
	}
}

// FuzzHandle feeds bodies that decode to the handlers, on top of the random requests.
func FuzzHandle(f *testing.F) {
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			f.Add(key, req.MaxVersion(), wire.AppendRequestBody(nil, req))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			return
		}
		req.SetVersion(version)
		inBubble(t, nil, func(b *testBroker) {
			if lo, hi, ok := b.h.d.Table.Range(key, true); !ok || version < lo || version > hi || wire.DecodeRequestBody(req, body) != nil {
				return
			}
			b.topic("t", []cluster.BrokerID{0})
			b.ask(req)
		})
	})
}
