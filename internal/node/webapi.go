package node

import (
	"fmt"
	"net/http"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/wire"
)

// The views are what the web API shows; their JSON names are a contract with its users.
type (
	brokerView struct {
		ID           cluster.BrokerID    `json:"id"`
		Epoch        cluster.BrokerEpoch `json:"epoch"`
		ClusterID    string              `json:"clusterId"`
		Version      string              `json:"version"`
		Started      time.Time           `json:"started"`
		Listeners    []listenerView      `json:"listeners"`
		LogDirs      []logDirView        `json:"logDirs"`
		Coordination string              `json:"coordination"`
		APIs         []apiView           `json:"apis"`
	}
	listenerView struct {
		Name       string `json:"name"`
		Protocol   string `json:"protocol"`
		Bound      string `json:"bound"`
		Advertised string `json:"advertised"`
	}
	logDirView struct {
		Path           string `json:"path"`
		Online         bool   `json:"online"`
		Error          string `json:"error,omitempty"`
		TotalBytes     int64  `json:"totalBytes"`
		UsableBytes    int64  `json:"usableBytes"`
		Partitions     int    `json:"partitions"`
		PendingRemoval int    `json:"directoriesToRemove"`
	}
	apiView struct {
		Key  int16  `json:"key"`
		Name string `json:"name"`
		Min  int16  `json:"min"`
		Max  int16  `json:"max"`
	}
	topicView struct {
		Name       string          `json:"name"`
		ID         string          `json:"id,omitempty"`
		Internal   bool            `json:"internal"`
		Partitions []partitionView `json:"partitions"`
	}
	partitionView struct {
		Partition   int32               `json:"partition"`
		Leader      cluster.BrokerID    `json:"leader"` // -1 when there is none
		LeaderEpoch cluster.LeaderEpoch `json:"leaderEpoch"`
		Replicas    []cluster.BrokerID  `json:"replicas"`
		ISR         []cluster.BrokerID  `json:"isr"`
		Offline     []cluster.BrokerID  `json:"offline,omitempty"`
	}
)

func (w *web) brokerInfo(*http.Request) (any, error) {
	b := w.b
	v := brokerView{ID: b.cfg.ID, Epoch: b.reg.epoch(), ClusterID: b.clusterID, Version: b.opts.Version, Started: b.started,
		Coordination: b.coordination.Name}
	for _, l := range b.bound {
		v.Listeners = append(v.Listeners, listenerView{l.name, l.protocol, l.net.Addr().String(), hostPort(l.advertised.Host, l.advertised.Port)})
	}
	partitions, removals := map[string]int{}, map[string]int{}
	for _, l := range b.logs.Logs() {
		partitions[l.Dir()]++
	}
	for _, p := range b.logs.PendingDeletes() {
		removals[p.Dir]++
	}
	for _, d := range b.logs.Dirs() {
		lv := logDirView{Path: d.Path, Online: d.Online, TotalBytes: d.Usage.Total, UsableBytes: d.Usage.Usable,
			Partitions: partitions[d.Path], PendingRemoval: removals[d.Path]}
		if d.Err != nil {
			lv.Error = d.Err.Error()
		}
		v.LogDirs = append(v.LogDirs, lv)
	}
	for _, a := range b.table.APIs(true) {
		v.APIs = append(v.APIs, apiView{a.Key, wire.APIName(a.Key), a.Min, a.Max})
	}
	return v, nil
}

func (w *web) topics(*http.Request) (any, error) {
	out := []topicView{}
	for t := range w.b.cache.Image().Topics() {
		out = append(out, topicViewOf(t))
	}
	return out, nil
}

func (w *web) topic(r *http.Request) (any, error) {
	name := r.PathValue("topic")
	t, ok := w.b.cache.Image().Topic(name)
	if !ok {
		return nil, &httpError{http.StatusNotFound, fmt.Sprintf("topic %q does not exist, as far as broker %d knows", name, w.b.cfg.ID)}
	}
	return topicViewOf(t), nil
}

func topicViewOf(t *metadata.Topic) topicView {
	v := topicView{Name: t.Name, Internal: t.Internal, Partitions: []partitionView{}}
	if !t.ID.IsZero() {
		v.ID = t.ID.String()
	}
	for _, p := range t.Partitions {
		v.Partitions = append(v.Partitions, partitionView{p.Index, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas})
	}
	return v
}
