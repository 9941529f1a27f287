package api

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/metadata"
	"klamm/internal/wire"
)

func TestControllerChannelFollowsTheController(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		cache := metadata.New(log)
		ctx, cancel := context.WithCancel(b.ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cache.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		dials := []string{}
		ch := NewControllerChannel(ControllerChannelOptions{Log: log, Cache: cache, Listener: "INTERNAL", SocketTimeout: 30 * time.Second,
			Dial: func(ctx context.Context, addr string) (*wire.ClientConn, error) {
				dials = append(dials, addr)
				return wire.Dial(ctx, addr, wire.ClientConfig{Dial: b.net.Dial, ClientID: "1"})
			}})
		ask := func() (*kmsg.AllocateProducerIDsResponse, error) {
			req := kmsg.NewPtrAllocateProducerIDsRequest()
			req.BrokerEpoch = 7
			resp, err := ch.Request(b.ctx, req)
			if err != nil {
				return nil, err
			}
			return resp.(*kmsg.AllocateProducerIDsResponse), nil
		}
		answers := make(chan error, 1)
		go func() { _, err := ask(); answers <- err }()
		synctest.Wait() // nobody knows a controller: the request waits
		cache.Apply(knownController(0, "b0"))
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
		if got, err := ask(); err != nil || got.ProducerIDLen != 1000 {
			t.Fatalf("second request: %+v, %v", got, err)
		}
		cache.Apply(knownController(1, "nowhere"))
		if _, err := ask(); err == nil {
			t.Error("no error although the new controller cannot be reached")
		}
		cache.Apply(knownController(0, "b0"))
		if _, err := ask(); err != nil {
			t.Error(err)
		}
		same(t, []string{"b0:9093", "nowhere:9093", "b0:9093"}, dials)
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
		if _, err := ask(); err == nil {
			t.Error("a closed channel still works")
		}
	})
}

// A controller that is frozen keeps its connections and answers nothing: whoever waits for it goes on with the next one as soon
// as that is known, and with the same one after controller.socket.timeout.ms.
func TestControllerChannelLeavesAFrozenController(t *testing.T) {
	for name, tc := range map[string]struct {
		next int32 // the controller that is announced after a second
		want time.Duration
	}{
		"another controller is announced": {1, time.Second},
		"the same one stays":              {0, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				frozen, err := b.net.Listen("frozen:9093")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = frozen.Close() }()
				log := slog.New(slog.DiscardHandler)
				cache := metadata.New(log)
				ctx, cancel := context.WithCancel(b.ctx)
				ended := make(chan struct{})
				go func() { defer close(ended); _ = cache.Run(ctx) }()
				defer func() { cancel(); <-ended }()
				ch := NewControllerChannel(ControllerChannelOptions{Log: log, Cache: cache, Listener: "INTERNAL", SocketTimeout: 30 * time.Second,
					Dial: func(ctx context.Context, addr string) (*wire.ClientConn, error) {
						return wire.Dial(ctx, addr, wire.ClientConfig{Dial: b.net.Dial, ClientID: "1"})
					}})
				defer func() { _ = ch.Close() }()
				cache.Apply(knownController(0, "frozen"))
				failed := make(chan error, 1)
				begin := time.Now()
				go func() {
					_, err := ch.Request(b.ctx, kmsg.NewPtrAllocateProducerIDsRequest())
					failed <- err
				}()
				<-time.After(time.Second)
				host := "frozen"
				if tc.next != 0 {
					host = "b1"
				}
				cache.Apply(knownController(tc.next, host))
				select {
				case err := <-failed:
					if took := time.Since(begin); err == nil || took != tc.want {
						t.Errorf("ended after %v with %v, want an error after %v", took, err, tc.want)
					}
				case <-time.After(time.Hour):
					t.Error("the request still waits for the frozen controller after an hour")
				}
			})
		})
	}
}

func knownController(id int32, host string) *kmsg.UpdateMetadataRequest {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerID = 8, id
	req.LiveBrokers = []kmsg.UpdateMetadataRequestLiveBroker{{ID: id, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{{Port: 9093, Host: host, ListenerName: "INTERNAL"}}}}
	return req
}

func TestControllerChannelGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		ch := NewControllerChannel(ControllerChannelOptions{Log: log, Cache: metadata.New(log), Listener: "INTERNAL", SocketTimeout: 30 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		if _, err := ch.Request(ctx, kmsg.NewPtrAllocateProducerIDsRequest()); err == nil {
			t.Error("no error without a controller")
		}
	})
}

func TestHostPort(t *testing.T) {
	for host, want := range map[string]string{"b0": "b0:1", "127.0.0.1": "127.0.0.1:1", "::1": "[::1]:1"} {
		if got := hostPort(host, 1); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
