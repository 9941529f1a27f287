package controller

import (
	"maps"
	"testing"

	"klamm/internal/cluster"
)

var rangeTo3 = map[string]cluster.VersionRange{"f": {Min: 1, Max: 3}}

// featuresRig is a rig whose brokers 1 and 2 support f at 1 to 3, and broker 3 g only; f is finalized at 2.
func featuresRig(t *testing.T) *rig {
	r := newRig(t, 1, 2)
	r.c.cfg.FeatureVersioning = true
	r.c.cfg.SupportedFeatures = map[string]cluster.VersionRange{"f": {Min: 1, Max: 3}, "g": {Min: 1, Max: 9}}
	r.c.ctx.addBroker(cluster.Broker{ID: 1, Epoch: 101, Features: map[string]cluster.VersionRange{"f": {Min: 1, Max: 3}, "g": {Min: 1, Max: 9}}})
	r.c.ctx.addBroker(cluster.Broker{ID: 2, Epoch: 102, Features: rangeTo3})
	r.answer = func(s Store) StoreResult {
		switch op := s.Op.(type) {
		case ReadFeatures:
			return StoreResult{Outcome: Applied, Value: FeaturesRead{Levels: map[string]int16{"f": 2}, Version: 7}}
		case SetFeatures:
			if !s.Fenced || s.ZkVersion != 50 || op.Version != 7 { // W23
				t.Errorf("written %+v", s)
			}
			return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemOK, Version: 8}}}}
		}
		return r.accept(s)
	}
	return r
}

// W23: the write is fenced.
func TestFeatureUpdatesAreJudgedInKafkasOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		update FeatureUpdate
		ok     bool
		level  int16 // afterwards; 0 for deleted
	}{
		{"no name, before the unknown type", FeatureUpdate{"", 1, 0}, false, 2},
		{"unknown type 0", FeatureUpdate{"f", 3, 0}, false, 2},
		{"unknown type 4", FeatureUpdate{"f", 3, 4}, false, 2},
		{"delete what is not finalized", FeatureUpdate{"h", 0, SafeDowngradeFeature}, false, 2},
		{"delete", FeatureUpdate{"f", 0, SafeDowngradeFeature}, true, 0},
		{"delete, the unsafe way", FeatureUpdate{"f", -1, UnsafeDowngradeFeature}, true, 0},
		{"delete by an upgrade", FeatureUpdate{"f", 0, UpgradeFeature}, false, 2},
		{"the same level", FeatureUpdate{"f", 2, UpgradeFeature}, false, 2},
		{"the same level by a downgrade", FeatureUpdate{"f", 2, SafeDowngradeFeature}, false, 2},
		{"up", FeatureUpdate{"f", 3, UpgradeFeature}, true, 3},
		{"up by a downgrade", FeatureUpdate{"f", 3, SafeDowngradeFeature}, false, 2},
		{"down", FeatureUpdate{"f", 1, SafeDowngradeFeature}, true, 1},
		{"down by an upgrade", FeatureUpdate{"f", 1, UpgradeFeature}, false, 2},
		{"down the unsafe way", FeatureUpdate{"f", 1, UnsafeDowngradeFeature}, false, 2},
		{"beyond what the controller supports", FeatureUpdate{"f", 4, UpgradeFeature}, false, 2},
		{"unknown to the controller", FeatureUpdate{"h", 1, UpgradeFeature}, false, 2},
		{"a broker does not support it", FeatureUpdate{"g", 1, UpgradeFeature}, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := featuresRig(t)
			got, _ := r.request(UpdateFeatures{Updates: []FeatureUpdate{c.update}})
			answer := got.(UpdateFeaturesResult)
			want, version := cluster.InvalidRequest, int32(-1)
			if c.ok {
				want, version = cluster.None, 8
			}
			if len(answer.Features) != 1 || answer.Features[0].Err != want || (answer.Features[0].Message == "") != c.ok || answer.Version != version {
				t.Errorf("answer %+v", answer)
			}
			if level := written(r)["f"]; c.ok && level != c.level || !c.ok && written(r) != nil {
				t.Errorf("written %v", written(r))
			}
		})
	}
}

func written(r *rig) (levels map[string]int16) {
	for _, s := range effectsOf[Store](r) {
		if op, ok := s.Op.(SetFeatures); ok {
			levels = op.Levels
		}
	}
	return levels
}

func TestFeaturesOfOneRequestAreIndependentAndOnlyTried(t *testing.T) {
	updates := []FeatureUpdate{{"f", 3, UpgradeFeature}, {"g", 1, UpgradeFeature}, {"f", 1, SafeDowngradeFeature}}
	r := featuresRig(t)
	got, _ := r.request(UpdateFeatures{Updates: updates, ValidateOnly: true})
	if a := got.(UpdateFeaturesResult); len(a.Features) != 2 || a.Features[0].Err != cluster.None || a.Features[1].Err != cluster.InvalidRequest || written(r) != nil {
		t.Errorf("validated only: %+v", a)
	}
	r = featuresRig(t)
	if got, _ := r.request(UpdateFeatures{Updates: updates}); got.(UpdateFeaturesResult).Version != 8 || !maps.Equal(written(r), map[string]int16{"f": 3}) {
		t.Errorf("%+v, written %v", got, written(r))
	}
	r = featuresRig(t)
	r.c.cfg.FeatureVersioning = false
	if got, _ := r.request(UpdateFeatures{Updates: updates}); got.(UpdateFeaturesResult).Err != cluster.InvalidRequest {
		t.Errorf("before features were versioned: %+v", got)
	}
}

func TestAFeatureUpdateThatCannotBeWrittenFailsAndOneWithALostAnswerIsResolved(t *testing.T) {
	up := UpdateFeatures{Updates: []FeatureUpdate{{"f", 3, UpgradeFeature}, {"h", 1, UpgradeFeature}}}
	for _, c := range []struct {
		name  string
		item  ItemResult // of the first write; the zero value loses the answer
		after FeaturesRead
		want  cluster.ErrorCode
	}{
		{"refused", ItemResult{Status: ItemFailed, Err: "no"}, FeaturesRead{Levels: map[string]int16{"f": 2}, Version: 7}, cluster.FeatureUpdateFailed},
		{"changed meanwhile", ItemResult{Status: ItemConflict}, FeaturesRead{Levels: map[string]int16{"f": 1}, Version: 8}, cluster.None},
		{"lost after it was applied", ItemResult{}, FeaturesRead{Levels: map[string]int16{"f": 3}, Version: 8}, cluster.None},
		{"lost before it was applied", ItemResult{}, FeaturesRead{Levels: map[string]int16{"f": 2}, Version: 7}, cluster.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := featuresRig(t)
			writes, read := 0, FeaturesRead{Levels: map[string]int16{"f": 2}, Version: 7}
			r.answer = func(s Store) StoreResult {
				switch s.Op.(type) {
				case ReadFeatures:
					return StoreResult{Outcome: Applied, Value: read}
				case SetFeatures:
					writes++
					read = c.after
					switch {
					case writes > 1:
						return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemOK, Version: 9}}}}
					case c.item.Status == 0:
						return StoreResult{Outcome: UnknownOutcome}
					}
					return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{c.item}}}
				}
				return r.accept(s)
			}
			got, _ := r.request(up)
			a := got.(UpdateFeaturesResult)
			if a.Features[0].Err != c.want || a.Features[1].Err != cluster.InvalidRequest {
				t.Errorf("answer %+v after %d writes", a, writes)
			}
		})
	}
}

// W22: a broker that does not support what is finalized gets nothing, once and at every later change; when the feature is
// deleted it comes in.
func TestABrokerIncompatibleWithTheFinalizedFeaturesIsLeftOut(t *testing.T) {
	r := featuresRig(t)
	r.c.ctx.features = map[string]int16{"f": 2}
	features := r.answer
	registered := append(r.c.ctx.liveBrokers(), cluster.Broker{ID: 3, Epoch: 103, Features: map[string]cluster.VersionRange{"f": {Min: 3, Max: 4}}})
	r.answer = func(s Store) StoreResult {
		if _, ok := s.Op.(ReadBrokers); ok {
			return StoreResult{Outcome: Applied, Value: BrokersRead{Brokers: registered}}
		}
		return features(s)
	}
	for range 2 {
		if err := r.do(r.c.handleBrokerChange); err != nil {
			t.Fatal(err)
		}
	}
	if notes := effectsOf[Note](r); len(notes) != 1 || notes[0].Broker != 3 || len(effectsOf[StartSender](r)) != 0 || len(effectsOf[SendUpdateMetadata](r)) != 0 || r.c.ctx.isLive(3) {
		t.Errorf("effects %v", r.effects)
	}
	if got, _ := r.request(UpdateFeatures{Updates: []FeatureUpdate{{"f", 0, SafeDowngradeFeature}}}); got.(UpdateFeaturesResult).Version != 8 {
		t.Errorf("answer %+v", got)
	}
	if len(effectsOf[StartSender](r)) != 1 || !r.c.ctx.isLive(3) {
		t.Errorf("after the feature was deleted: %v", r.effects)
	}
}

func TestALiveBrokerWhoseFeaturesShrinkIsGone(t *testing.T) {
	r := featuresRig(t)
	r.c.ctx.features = map[string]int16{"f": 2}
	r.answer = func(Store) StoreResult {
		return StoreResult{Outcome: Applied, Value: BrokersRead{Brokers: []cluster.Broker{r.c.ctx.brokers[1], {ID: 2, Epoch: 102}}}}
	}
	if err := r.do(func() error { return r.c.handleBrokerModifications(2) }); err != nil {
		t.Fatal(err)
	}
	if r.c.ctx.isLive(2) || len(effectsOf[StopSender](r)) != 1 {
		t.Errorf("effects %v", r.effects)
	}
}
