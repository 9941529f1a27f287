package api

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

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
		ch := NewControllerChannel(ControllerChannelOptions{Log: log, Cache: cache, Listener: "INTERNAL",
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

func knownController(id int32, host string) *kmsg.UpdateMetadataRequest {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerID = 8, id
	req.LiveBrokers = []kmsg.UpdateMetadataRequestLiveBroker{{ID: id, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{{Port: 9093, Host: host, ListenerName: "INTERNAL"}}}}
	return req
}

func TestControllerChannelGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		ch := NewControllerChannel(ControllerChannelOptions{Log: log, Cache: metadata.New(log), Listener: "INTERNAL"})
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
