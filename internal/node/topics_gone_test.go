package node

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/metadata"
)

// A marker alone says that a topic goes only once this broker knows topics: before, it may be one that the controller is about to refuse.
func TestTopicsAreGoneWithoutTheirNodeOrWithAMarker(t *testing.T) {
	store := memstore.New().Client()
	b := &broker{store: store, cache: metadata.New(quietLog())}
	if err := coord.EnsurePersistentPaths(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{coord.TopicPath("lives"), coord.TopicPath("going"), coord.DeleteTopicPath("going")} {
		if err := coord.EnsurePath(t.Context(), store, path, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := func(gone ...string) {
		t.Helper()
		got, err := b.topicsGone(t.Context(), []string{"lives", "going", "gone"})
		if err != nil || !slices.Equal(got, gone) {
			t.Errorf("gone: %v, %v, want %v", got, err, gone)
		}
	}
	want("gone")
	b.cache.Apply(&kmsg.UpdateMetadataRequest{Version: 8, TopicStates: []kmsg.UpdateMetadataRequestTopicState{{Topic: "other",
		PartitionStates: []kmsg.UpdateMetadataRequestTopicPartition{{Leader: 1}}}}})
	want("going", "gone")
}
