package commitlog

import (
	"slices"

	"klamm/internal/record"
)

// cleanTxns follows transactions while segments are compacted: batches of aborted ones are dropped, and a marker once nothing of its
// transaction is left (Kafka: CleanedTransactionMetadata).
type cleanTxns struct {
	pending   []abortedEntry         // by first offset, not begun yet
	aborted   map[int64]*abortedOpen // by producer, begun
	committed map[int64]bool         // producers with records of a committed transaction since their last marker
	out       *txnIndex              // of the compacted segment; nil while only the map is built
}

type abortedOpen struct {
	abortedEntry
	seen bool // a batch of it is still in the log
}

func (t *cleanTxns) init() {
	t.aborted, t.committed = map[int64]*abortedOpen{}, map[int64]bool{}
}

func (t *cleanTxns) add(entries []abortedEntry) {
	t.pending = append(t.pending, entries...)
	slices.SortStableFunc(t.pending, func(a, b abortedEntry) int { return int(max(min(a.first-b.first, 1), -1)) })
}

// observe takes a batch into account and tells whether its records, or its marker once the horizon has passed, may go.
func (t *cleanTxns) observe(b record.Batch) (discard bool, err error) {
	for len(t.pending) > 0 && t.pending[0].first <= b.LastOffset() {
		t.aborted[t.pending[0].producerID] = &abortedOpen{abortedEntry: t.pending[0]}
		t.pending = t.pending[1:]
	}
	if b.IsControl() {
		return t.observeMarker(b)
	}
	if !b.IsTransactional() {
		return false, nil
	}
	if a, ok := t.aborted[b.ProducerID]; ok {
		a.seen = true
		return true, nil
	}
	t.committed[b.ProducerID] = true
	return false, nil
}

func (t *cleanTxns) observeMarker(b record.Batch) (discard bool, err error) {
	if b.NumRecords == 0 { // emptied before, kept for the producer's state only
		return true, nil
	}
	m, err := record.ParseEndTxnMarker(b)
	if err != nil {
		return false, err
	}
	if m.Type == record.Commit {
		had := t.committed[b.ProducerID]
		delete(t.committed, b.ProducerID)
		return !had, nil
	}
	a, ok := t.aborted[b.ProducerID]
	if !ok || a.last > b.LastOffset() {
		return true, nil
	}
	delete(t.aborted, b.ProducerID)
	if !a.seen {
		return true, nil
	}
	if t.out != nil {
		// The batches are gone after this round, but a reader of the old segment may still hold some: the entry stays this once.
		return false, t.out.append(a.abortedEntry)
	}
	return false, nil
}
