package api

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// UpdateFeatures of the test's controller accepts everything and tells the version that the test wants.
func (c *testController) UpdateFeatures(_ context.Context, req *kmsg.UpdateFeaturesRequest, done func(*kmsg.UpdateFeaturesResponse, int32)) {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	resp.Results = []kmsg.UpdateFeaturesResponseResult{{Feature: "f"}, {Feature: "g", ErrorCode: int16(cluster.InvalidRequest)}}
	done(resp, c.featuresVersion)
}

func setFeatures(t *testing.T, s coord.Store, levels map[string]coord.VersionRange) {
	t.Helper()
	data := coord.EncodeFeatures(coord.Features{Enabled: true, Levels: levels})
	if _, err := s.Multi(t.Context(), coord.Set(coord.FeaturePath, data, coord.AnyVersion)); err == nil {
		return
	}
	if _, err := s.Multi(t.Context(), coord.Create(coord.FeaturePath, data)); err != nil {
		t.Fatal(err)
	}
}

func TestUpdateFeaturesAnswersWhenThisBrokerHasSeenTheChange(t *testing.T) {
	for version := range int16(2) {
		inBubble(t, nil, func(b *testBroker) {
			ask := func() (f, g cluster.ErrorCode, waited time.Duration) {
				req := kmsg.NewPtrUpdateFeaturesRequest()
				req.TimeoutMillis = 1000
				began := time.Now()
				resp := b.do(version, req).(*kmsg.UpdateFeaturesResponse)
				return cluster.ErrorCode(resp.Results[0].ErrorCode), cluster.ErrorCode(resp.Results[1].ErrorCode), time.Since(began)
			}
			setFeatures(t, b.ctl.store, nil)
			synctest.Wait()
			b.ctl.featuresVersion = 0
			if f, g, waited := ask(); f != cluster.None || g != cluster.InvalidRequest || waited >= time.Second {
				t.Errorf("v%d seen: %s, %s after %v", version, f, g, waited)
			}
			b.ctl.featuresVersion = 1
			if f, g, waited := ask(); f != cluster.FeatureUpdateFailed || g != cluster.InvalidRequest || waited != time.Second {
				t.Errorf("v%d not seen: %s, %s after %v", version, f, g, waited)
			}
			b.ctl.featuresVersion = -1
			if f, g, waited := ask(); f != cluster.None || g != cluster.InvalidRequest || waited >= time.Second {
				t.Errorf("v%d nothing written: %s, %s after %v", version, f, g, waited)
			}
		})
	}
}

func TestFinalizedFeaturesFollowTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New().Client()
		f := NewFinalizedFeatures(store, map[string]cluster.VersionRange{"f": {Min: 1, Max: 2}}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		synctest.Wait()
		if _, version := f.Now(); version != -1 {
			t.Errorf("without a node: version %d", version)
		}
		seen := make(chan bool, 2)
		f.Await(1, time.Now().Add(time.Minute), func(ok bool) { seen <- ok })
		setFeatures(t, store, nil)
		setFeatures(t, store, map[string]coord.VersionRange{"f": {Max: 2}})
		if !<-seen {
			t.Error("the wait ended without the change")
		}
		if levels, version := f.Now(); levels["f"] != 2 || version != 1 {
			t.Errorf("levels %v, version %d", levels, version)
		}
		// What this broker does not support ends it: it must not serve in such a cluster.
		f.Await(9, time.Now().Add(time.Minute), func(ok bool) { seen <- ok })
		setFeatures(t, store, map[string]coord.VersionRange{"f": {Max: 3}})
		if err := <-ended; err == nil || <-seen {
			t.Errorf("went on with an incompatible feature: %v", err)
		}
		f.Await(9, time.Now().Add(time.Minute), func(ok bool) { seen <- ok })
		if <-seen {
			t.Error("a wait after the end succeeded")
		}
	})
}
