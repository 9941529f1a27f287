package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller/driver"
	"klamm/internal/coord"
)

const (
	// forwardedHeader marks a request that another broker passed on: it is not passed on again.
	forwardedHeader = "Klamm-Forwarded"
	forwardTimeout  = 5 * time.Second
)

// leftoverView is what a broker has to remove of a topic whose deletion ended without it; its JSON names are a contract.
type leftoverView struct {
	Broker     cluster.BrokerID `json:"broker"`
	Topic      string           `json:"topic"`
	TopicID    string           `json:"topicId"`
	Partitions []int32          `json:"partitions"`
	Since      time.Time        `json:"since"`
}

// deletions answers from any broker: the controller knows, the others ask its web address, which its registration tells.
func (w *web) deletions(r *http.Request) (any, error) { return w.allDeletions(r) }

func (w *web) allDeletions(r *http.Request) ([]deletionView, error) {
	ds, err := w.b.driver.Deletions(r.Context())
	if errors.Is(err, driver.ErrNotController) {
		return w.askController(r)
	}
	if err != nil {
		return nil, err
	}
	out := make([]deletionView, 0, len(ds))
	for _, d := range ds {
		out = append(out, viewOf(d))
	}
	return out, nil
}

func (w *web) deletion(r *http.Request) (any, error) {
	all, err := w.allDeletions(r)
	if err != nil {
		return nil, err
	}
	topic := r.PathValue("topic")
	for _, d := range all {
		if d.Topic == topic {
			return d, nil
		}
	}
	return nil, &httpError{http.StatusNotFound, fmt.Sprintf("topic %q is not being deleted", topic)}
}

// askController passes a request for deletions on to the controller.
func (w *web) askController(r *http.Request) ([]deletionView, error) {
	id := w.b.driver.ActiveControllerID()
	if id == cluster.NoBroker || r.Header.Get(forwardedHeader) != "" {
		return nil, &httpError{http.StatusServiceUnavailable, fmt.Sprintf("broker %d is not the controller, and knows of none at the moment; ask again", w.b.cfg.ID)}
	}
	ctx, cancel := context.WithTimeout(r.Context(), forwardTimeout)
	defer cancel()
	addr, err := w.webAddressOf(ctx, id)
	if err != nil {
		return nil, err
	}
	out, err := fetchDeletions(ctx, addr)
	if err != nil {
		return nil, &httpError{http.StatusBadGateway, fmt.Sprintf("broker %d, the controller, does not answer on %s: %v; ask it directly, or set web.listen there to an address that brokers reach", id, addr, err)}
	}
	return out, nil
}

// webAddressOf reads where a broker serves its API.
func (w *web) webAddressOf(ctx context.Context, id cluster.BrokerID) (string, error) {
	node, err := w.b.store.Get(ctx, coord.BrokerPath(id))
	if err != nil {
		return "", fmt.Errorf("find the web address of broker %d: %w", id, err)
	}
	reg, err := coord.DecodeBroker(node.Data)
	if err != nil {
		return "", fmt.Errorf("find the web address of broker %d: %w", id, err)
	}
	if reg.Klamm == nil || reg.Klamm.Web == "" {
		return "", &httpError{http.StatusConflict, fmt.Sprintf("broker %d, the controller, has no web address: it runs Kafka, or its web.listen is empty", id)}
	}
	return reg.Klamm.Web, nil
}

func fetchDeletions(ctx context.Context, addr string) ([]deletionView, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/deletions", http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set(forwardedHeader, "1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	out := []deletionView{}
	return out, json.NewDecoder(resp.Body).Decode(&out)
}

// leftovers lists what absent brokers still have to remove; the store knows, whoever is asked.
func (w *web) leftovers(r *http.Request) (any, error) {
	out := []leftoverView{}
	brokers, err := w.b.store.Children(r.Context(), coord.LeftoversPath)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, fmt.Errorf("list leftovers: %w", err)
	}
	for _, name := range brokers {
		id, ok := coord.ParseBrokerName(name)
		if !ok {
			continue
		}
		records, err := readLeftovers(r.Context(), w.b.store, id)
		if err != nil {
			return nil, err
		}
		for _, l := range records {
			out = append(out, leftoverView{id, l.Topic, l.TopicID.String(), l.Partitions, time.UnixMilli(l.TimestampMs).UTC()})
		}
	}
	return out, nil
}
