package commitlog

import (
	"cmp"
	"math"
	"slices"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// duplicateWindow is how many of a producer's last batches are remembered to recognise a repeated one.
const duplicateWindow = 5

// batchMeta is a remembered batch.
type batchMeta struct {
	lastSequence int32
	offsetDelta  int32 // last offset - first offset
	lastOffset   int64
	timestamp    int64
}

func (m batchMeta) firstOffset() int64 { return m.lastOffset - int64(m.offsetDelta) }

// firstSequence undoes the wrap at 2^31-1 (Kafka: DefaultRecordBatch.decrementSequence).
func (m batchMeta) firstSequence() int32 {
	if m.lastSequence < m.offsetDelta {
		return math.MaxInt32 - (m.offsetDelta - m.lastSequence) + 1
	}
	return m.lastSequence - m.offsetDelta
}

// producerEntry is the state of one producer id in one log (Kafka: ProducerStateEntry).
type producerEntry struct {
	id               int64
	epoch            int16 // -1: nothing known yet
	coordinatorEpoch int32 // of the last transaction marker, -1 none
	lastTimestamp    int64 // of its last batch, as the producer says, ms
	seenMs           int64 // when that batch was written or read here, by this broker's clock; 0 after a snapshot
	txnFirst         int64 // first offset of the ongoing transaction, -1 none
	n                int   // batches in use
	batches          [duplicateWindow]batchMeta
}

func unknownProducer(id int64) producerEntry {
	return producerEntry{id: id, epoch: record.NoProducerEpoch, coordinatorEpoch: -1, lastTimestamp: record.NoTimestamp, txnFirst: -1}
}

func (e *producerEntry) lastSequence() int32 {
	if e.n == 0 {
		return record.NoSequence
	}
	return e.batches[e.n-1].lastSequence
}

// setEpoch forgets the batches of another epoch.
func (e *producerEntry) setEpoch(epoch int16) {
	if e.epoch != epoch {
		e.epoch, e.n = epoch, 0
	}
}

func (e *producerEntry) addBatch(m batchMeta) {
	if e.n == duplicateWindow {
		copy(e.batches[:], e.batches[1:])
		e.n--
	}
	e.batches[e.n] = m
	e.n++
	e.lastTimestamp = m.timestamp
}

// duplicateOf finds a remembered batch with the same sequence range.
func (e *producerEntry) duplicateOf(h *record.BatchHeader) (batchMeta, bool) {
	if h.ProducerEpoch != e.epoch {
		return batchMeta{}, false
	}
	for _, m := range e.batches[:e.n] {
		if m.firstSequence() == h.BaseSequence && m.lastSequence == h.LastSequence() {
			return m, true
		}
	}
	return batchMeta{}, false
}

// openTxn is a transaction with records in the log. last is the marker's offset, -1 while it is undecided.
type openTxn struct {
	producerID  int64
	first, last int64
}

// completedTxn is a transaction whose marker was just read or appended.
type completedTxn struct {
	producerID  int64
	first, last int64
	aborted     bool
}

// producerState is what a log knows of its producers and transactions (Kafka: ProducerStateManager). Guarded by the log's mutex.
type producerState struct {
	entries      map[int64]*producerEntry
	ongoing      []openTxn // undecided, by first offset
	unreplicated []openTxn // decided, but the marker is not below the high watermark yet; by first offset
	mapEnd       int64     // the state holds everything below this offset
	snapEnd      int64     // offset of the newest snapshot taken
	snapshots    []int64   // offsets of the snapshot files, ascending

	prepared  []preparedProducer // scratch of one append
	completed []completedTxn     // scratch of one append
}

// preparedProducer is a producer's state as it will be once the append is done.
type preparedProducer struct {
	producerEntry
	unknown bool // there was no state before this append
	started int64
}

// ProducerState describes an active producer of a log (DescribeProducers).
type ProducerState struct {
	ProducerID            int64
	ProducerEpoch         int16
	LastSequence          int32
	LastTimestamp         int64 // ms
	CoordinatorEpoch      int32 // -1 none
	CurrentTxnStartOffset int64 // -1 none
}

// begin clears the scratch for a new append.
func (p *producerState) begin() {
	p.prepared, p.completed = p.prepared[:0], p.completed[:0]
}

func (p *producerState) prepare(id int64) *preparedProducer {
	for i := range p.prepared {
		if p.prepared[i].id == id {
			return &p.prepared[i]
		}
	}
	next := preparedProducer{started: -1}
	if e, ok := p.entries[id]; ok {
		next.producerEntry = *e
	} else {
		next.producerEntry, next.unknown = unknownProducer(id), true
	}
	p.prepared = append(p.prepared, next)
	return &p.prepared[len(p.prepared)-1]
}

// check validates a batch against its producer's state and prepares the state after it. Offsets in the header are final.
// (Kafka: ProducerAppendInfo.)
func (p *producerState) check(tp cluster.TopicPartition, b record.Batch, origin record.Origin) error {
	e := p.prepare(b.ProducerID)
	if b.IsControl() {
		return p.checkMarker(tp, e, b, origin)
	}
	if err := e.checkEpoch(tp, b.ProducerEpoch, b.BaseOffset, origin); err != nil {
		return err
	}
	if origin == record.Client {
		if err := e.checkSequence(tp, &b.BatchHeader); err != nil {
			return err
		}
	}
	e.setEpoch(b.ProducerEpoch)
	e.addBatch(batchMeta{b.LastSequence(), b.LastOffsetDelta, b.LastOffset(), b.MaxTimestamp})
	switch {
	case e.txnFirst >= 0 && !b.IsTransactional():
		if origin != replication {
			return refuse(cluster.InvalidTxnState, "Expected transactional write from producer %d at offset %d in partition %s", e.id, b.BaseOffset, tp)
		}
	case e.txnFirst < 0 && b.IsTransactional():
		e.txnFirst, e.started = b.BaseOffset, b.BaseOffset
	}
	return nil
}

func (e *preparedProducer) checkEpoch(tp cluster.TopicPartition, epoch int16, offset int64, origin record.Origin) error {
	// A follower takes what its leader accepted.
	if epoch >= e.epoch || origin == replication {
		return nil
	}
	return refuse(cluster.InvalidProducerEpoch, "Epoch of producer %d at offset %d in %s is %d, which is smaller than the last seen epoch %d", e.id, offset, tp, epoch, e.epoch)
}

func (e *preparedProducer) checkSequence(tp cluster.TopicPartition, h *record.BatchHeader) error {
	first := h.BaseSequence
	if h.ProducerEpoch != e.epoch {
		// KIP-360: a producer that is not known here may start anywhere, since its state may have expired or been deleted with its
		// records; a new epoch of a known one starts at 0.
		if first == 0 || e.epoch == record.NoProducerEpoch {
			return nil
		}
		return refuse(cluster.OutOfOrderSequenceNumber, "Invalid sequence number for new epoch of producer %d at offset %d in partition %s: %d (request epoch), %d (seq. number), %d (current producer epoch)",
			e.id, h.BaseOffset, tp, h.ProducerEpoch, first, e.epoch)
	}
	last := e.lastSequence()
	if e.unknown || int64(first) == int64(last)+1 || first == 0 && last == math.MaxInt32 {
		return nil
	}
	return refuse(cluster.OutOfOrderSequenceNumber, "Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (current end sequence number)",
		e.id, h.BaseOffset, tp, first, last)
}

func (p *producerState) checkMarker(tp cluster.TopicPartition, e *preparedProducer, b record.Batch, origin record.Origin) error {
	if b.NumRecords == 0 { // emptied by compaction
		return nil
	}
	marker, err := record.ParseEndTxnMarker(b)
	if err != nil {
		return err
	}
	if err := e.checkEpoch(tp, b.ProducerEpoch, b.BaseOffset, origin); err != nil {
		return err
	}
	if e.coordinatorEpoch > marker.CoordinatorEpoch && origin != replication {
		return refuse(cluster.TransactionCoordinatorFenced, "Invalid coordinator epoch for producerId %d at offset %d in partition %s: %d (zombie), %d (current)",
			e.id, b.BaseOffset, tp, marker.CoordinatorEpoch, e.coordinatorEpoch)
	}
	if e.txnFirst >= 0 {
		p.completed = append(p.completed, completedTxn{e.id, e.txnFirst, b.BaseOffset, marker.Type == record.Abort})
	}
	e.setEpoch(b.ProducerEpoch)
	e.coordinatorEpoch, e.txnFirst, e.lastTimestamp = marker.CoordinatorEpoch, -1, marker.TimestampMs
	return nil
}

// duplicate finds the batch in the state before this append.
func (p *producerState) duplicate(h *record.BatchHeader) (batchMeta, bool) {
	e, ok := p.entries[h.ProducerID]
	if !ok {
		return batchMeta{}, false
	}
	return e.duplicateOf(h)
}

// commit takes over the prepared state after the bytes were written, or read again.
func (p *producerState) commit(nowMs int64) {
	for i := range p.prepared {
		n := &p.prepared[i]
		n.seenMs = nowMs
		if e, ok := p.entries[n.id]; ok {
			*e = n.producerEntry
		} else {
			if p.entries == nil {
				p.entries = map[int64]*producerEntry{}
			}
			e := n.producerEntry
			p.entries[n.id] = &e
		}
		if n.started >= 0 {
			p.ongoing = insertTxn(p.ongoing, openTxn{n.id, n.started, -1})
		}
	}
}

// complete moves a decided transaction to the unreplicated ones.
func (p *producerState) complete(c completedTxn) {
	p.ongoing = slices.DeleteFunc(p.ongoing, func(t openTxn) bool { return t.first == c.first })
	p.unreplicated = insertTxn(p.unreplicated, openTxn{c.producerID, c.first, c.last})
}

// stableAfter is the last stable offset once a transaction is complete: the next undecided one of another producer, else after the marker.
func (p *producerState) stableAfter(c completedTxn) int64 {
	for _, t := range p.ongoing {
		if t.producerID != c.producerID {
			return t.first
		}
	}
	return c.last + 1
}

func insertTxn(list []openTxn, t openTxn) []openTxn {
	i, _ := slices.BinarySearchFunc(list, t, func(a, b openTxn) int { return cmp.Compare(a.first, b.first) })
	return slices.Insert(list, i, t)
}

// replicated forgets decided transactions whose marker lies below an offset.
func (p *producerState) replicated(offset int64) {
	if len(p.unreplicated) > 0 {
		p.unreplicated = slices.DeleteFunc(p.unreplicated, func(t openTxn) bool { return t.last < offset })
	}
}

// firstUnstable is the first offset of a transaction that is undecided or whose marker is not replicated; -1 when there is none.
func (p *producerState) firstUnstable() int64 {
	first := int64(-1)
	for _, list := range [][]openTxn{p.ongoing, p.unreplicated} {
		if len(list) > 0 && (first < 0 || list[0].first < first) {
			first = list[0].first
		}
	}
	return first
}

// expire forgets producers that were silent for so long and have no ongoing transaction.
func (p *producerState) expire(nowMs int64, after time.Duration) {
	for id, e := range p.entries {
		if e.expired(nowMs, after) {
			delete(p.entries, id)
		}
	}
}

// lastActive is when the producer was last heard of. Kafka goes by the records' timestamps alone, and so forgets a producer that is busy
// with old ones (a copy of a topic, events of last week) while it may yet send its last batch again.
func (e *producerEntry) lastActive() int64 { return max(e.lastTimestamp, e.seenMs) }

// storedTimestamp is what a snapshot says: the producer's own time, unless that alone would have it forgotten when it is read.
func (e *producerEntry) storedTimestamp(expiry time.Duration) int64 {
	if e.seenMs-e.lastTimestamp >= expiry.Milliseconds() {
		return e.seenMs
	}
	return e.lastTimestamp
}

func (e *producerEntry) expired(nowMs int64, after time.Duration) bool {
	return e.txnFirst < 0 && nowMs-e.lastActive() >= after.Milliseconds()
}

// reset forgets everything but the snapshot files.
func (p *producerState) reset(mapEnd int64) {
	clear(p.entries)
	p.ongoing, p.unreplicated = nil, nil
	p.mapEnd = mapEnd
}

// replay takes a stored batch into account, as recovery and loading do; it returns the transaction that the batch completes.
func (p *producerState) replay(tp cluster.TopicPartition, b record.Batch) (c completedTxn, done bool, err error) {
	p.mapEnd = b.NextOffset()
	if !b.HasProducerID() {
		return c, false, nil
	}
	p.begin()
	if err := p.check(tp, b, replication); err != nil {
		return c, false, err
	}
	p.commit(time.Now().UnixMilli())
	if len(p.completed) == 0 {
		return c, false, nil
	}
	return p.completed[0], true, nil
}
