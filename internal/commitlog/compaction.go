package commitlog

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"klamm/internal/config"
	"klamm/internal/record"
)

// keyHash stands for a key in the offset map (Kafka: SkimpyOffsetMap hashes with MD5 too).
type keyHash [md5.Size]byte

// keyBytes is what an entry of the offset map costs, its share of the table's free room included.
const keyBytes = 48

// latestOffsets maps each key of the dirty part to its last offset, until the memory is used up. end is the offset after the last batch
// that was taken in.
func (l *Log) latestOffsets(list []*segment, job cleanJob, dedupeBytes int64, done func() error) (latest map[keyHash]int64, end int64, err error) {
	latest = map[keyHash]int64{}
	room := int(max(dedupeBytes/keyBytes, 1))
	end = job.dirty
	var txns cleanTxns
	txns.init()
	full := errors.New("offset map is full")
	for i := max(floorSegment(list, job.dirty), 0); i < len(list) && list[i].base < job.upper; i++ {
		s := list[i]
		txns.add(l.abortedIn(s))
		err := s.scan(func(b record.Batch) error {
			if err := done(); err != nil {
				return err
			}
			if b.NextOffset() <= job.dirty {
				return nil
			}
			discard, err := txns.observe(b)
			if err != nil {
				return err
			}
			if b.IsControl() || discard {
				end = b.NextOffset()
				return nil
			}
			if len(latest)+int(b.NumRecords) > room && len(latest) > 0 {
				return full
			}
			err = b.ForEach(0, func(r *record.Record) error {
				if r.Key != nil && r.Offset >= job.dirty {
					latest[md5.Sum(r.Key)] = r.Offset
				}
				return nil
			})
			end = b.NextOffset()
			return err
		})
		if errors.Is(err, full) {
			return latest, end, nil
		}
		if err != nil {
			return nil, 0, err
		}
		end = list[i+1].base
	}
	return latest, end, nil
}

// abortedIn lists the aborted transactions that end in a segment.
func (l *Log) abortedIn(s *segment) []abortedEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.aborted.entries
}

// scan reads all batches of a segment that is not appended to any more.
func (s *segment) scan(fn func(record.Batch) error) error {
	if s.size.Load() == 0 {
		return nil
	}
	if err := s.acquire(); err != nil {
		return errCleanAborted
	}
	defer s.release()
	f, err := s.file(logSuffix, false)
	if err != nil {
		return err
	}
	_, err = scanBatches(f, 0, s.size.Load(), true, func(_ int64, b record.Batch) error { return fn(b) })
	return err
}

// compaction rewrites segments without the records that a later one with the same key replaces (Kafka: Cleaner).
type compaction struct {
	log    *Log
	cfg    *config.LogConfig
	latest map[keyHash]int64
	below  int64 // the map holds everything before this offset; records from here on stay
	upper  int64 // bound of this round: the batch that ends there stays, if need be empty, so that no offset is lost
	nowMs  int64
	txns   cleanTxns
	last   map[int64]lastOfProducer
	done   func() error
}

// lastOfProducer tells which batch carries a producer's state: it must stay, if need be empty.
type lastOfProducer struct {
	epoch  int16
	offset int64 // last data offset, -1 when only a marker is known
}

// rewrite compacts a group of segments into one and swaps it in.
func (c *compaction) rewrite(group []*segment, truncations int64) error {
	c.last = c.log.lastOfProducers()
	out := newSegment(c.log, group[0].base)
	out.files.suffix = cleanedSuffix
	c.txns.out = &out.aborted
	err, placed := c.fill(out, group), false
	if err == nil {
		placed, err = c.log.swapIn(out, group, truncations)
	}
	if err != nil && !placed {
		return errors.Join(err, removeCleaned(out))
	}
	return err
}

func (c *compaction) fill(out *segment, group []*segment) error {
	if _, err := out.file(logSuffix, true); err != nil {
		return err
	}
	for _, s := range group {
		c.txns.add(c.log.abortedIn(s))
		err := s.scan(func(b record.Batch) error {
			if err := c.done(); err != nil {
				return err
			}
			kept, err := c.filter(b)
			if err != nil || len(kept) == 0 {
				return err
			}
			return out.append(kept, c.cfg.IndexIntervalBytes)
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(out.seal(), out.sync(true))
}

func (l *Log) lastOfProducers() map[int64]lastOfProducer {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[int64]lastOfProducer, len(l.producers.entries))
	for id, e := range l.producers.entries {
		last := lastOfProducer{epoch: e.epoch, offset: -1}
		if e.n > 0 {
			last.offset = e.batches[e.n-1].lastOffset
		}
		out[id] = last
	}
	return out
}

// filter returns what stays of a batch: all of it, a smaller one, an empty one, or nothing.
func (c *compaction) filter(b record.Batch) ([]byte, error) {
	discardable, err := c.txns.observe(b)
	if err != nil {
		return nil, err
	}
	discard := discardable
	if b.IsControl() {
		// A marker goes once its transaction's records are gone and its horizon has passed.
		discard = discardable && c.horizonPassed(&b)
	}
	var kept batchRewrite
	tombstones := false
	if !discard {
		err := b.ForEach(0, func(r *record.Record) error {
			if b.IsControl() || c.keeps(&b, r) {
				tombstones = tombstones || r.Value == nil && !b.IsControl()
				return kept.add(r)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	needsHorizon := (tombstones || b.IsControl() && discardable) && !b.Attributes.HasDeleteHorizon()
	switch {
	case len(kept.records) == 0 && c.mustStay(&b):
		return emptied(b), nil
	case len(kept.records) == 0:
		return nil, nil
	case len(kept.records) == int(b.NumRecords) && !needsHorizon:
		return b.Raw, nil
	}
	horizon := int64(-1)
	if needsHorizon {
		horizon = c.nowMs + c.cfg.DeleteRetention.Milliseconds()
	}
	return kept.build(b, horizon)
}

func (c *compaction) horizonPassed(b *record.Batch) bool {
	return b.Attributes.HasDeleteHorizon() && b.BaseTimestamp <= c.nowMs
}

func (c *compaction) mustStay(b *record.Batch) bool {
	if b.NextOffset() == c.upper {
		return true
	}
	last, ok := c.last[b.ProducerID]
	if !b.HasProducerID() || !ok {
		return false
	}
	if last.offset >= 0 {
		return last.offset == b.LastOffset()
	}
	return b.IsControl() && last.epoch == b.ProducerEpoch
}

// keeps decides about one record (Kafka: Cleaner.shouldRetainRecord).
func (c *compaction) keeps(b *record.Batch, r *record.Record) bool {
	if r.Offset >= c.below {
		return true
	}
	if r.Key == nil {
		return false
	}
	if latest, ok := c.latest[md5.Sum(r.Key)]; ok && r.Offset < latest {
		return false
	}
	return r.Value != nil || !c.horizonPassed(b)
}

// batchRewrite collects the records that stay of a batch. It copies them: decompression memory is reused.
type batchRewrite struct{ records []keptRecord }

type keptRecord struct {
	offset, timestamp int64
	key, value        []byte
	headers           []record.Header
}

func (w *batchRewrite) add(r *record.Record) error {
	headers, err := r.Headers()
	if err != nil {
		return err
	}
	k := keptRecord{offset: r.Offset, timestamp: r.Timestamp, key: cloneBytes(r.Key), value: cloneBytes(r.Value)}
	for _, h := range headers {
		k.headers = append(k.headers, record.Header{Key: h.Key, Value: cloneBytes(h.Value)})
	}
	w.records = append(w.records, k)
	return nil
}

// cloneBytes keeps null null.
func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// Places in a batch's header that a rewrite changes.
const (
	offLength        = 8
	offCRC           = 17
	offAttributes    = 21
	offBaseTimestamp = 27
	offMaxTimestamp  = 35
	offNumRecords    = 57
	flagHorizon      = 0x40
	codecMask        = 0x07
)

// build makes a batch of the records that stay. Base offset, last offset, producer and sequence stay too: they are the producer's state. A
// horizon >= 0 takes the base timestamp's place (KIP-534).
func (w *batchRewrite) build(b record.Batch, horizon int64) ([]byte, error) {
	attributes := binary.BigEndian.Uint16(b.Raw[offAttributes:])
	base := b.BaseTimestamp
	if horizon >= 0 {
		base, attributes = horizon, attributes|flagHorizon
	}
	var body, one []byte
	largest := record.NoTimestamp
	for _, r := range w.records {
		largest = max(largest, r.timestamp)
		one = append(one[:0], 0)
		one = binary.AppendVarint(one, r.timestamp-base)
		one = binary.AppendVarint(one, r.offset-b.BaseOffset)
		one = appendNullable(one, r.key)
		one = appendNullable(one, r.value)
		one = binary.AppendVarint(one, int64(len(r.headers)))
		for _, h := range r.headers {
			one = binary.AppendVarint(one, int64(len(h.Key)))
			one = append(one, h.Key...)
			one = appendNullable(one, h.Value)
		}
		body = binary.AppendVarint(body, int64(len(one)))
		body = append(body, one...)
	}
	if b.TimestampType() == record.LogAppendTime {
		largest = b.MaxTimestamp
	}
	out, err := record.Compress(append([]byte{}, b.Raw[:record.HeaderSize]...), body, record.Compression{Codec: b.Codec()})
	if err != nil {
		return nil, err
	}
	sealBatch(out, attributes, base, largest, len(w.records))
	return out, nil
}

func appendNullable(dst, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(v))), v...)
}

// emptied is a batch without records, which keeps its offsets and its producer's state (Kafka: DefaultRecordBatch.writeEmptyHeader).
func emptied(b record.Batch) []byte {
	out := append([]byte{}, b.Raw[:record.HeaderSize]...)
	attributes := binary.BigEndian.Uint16(out[offAttributes:]) &^ (flagHorizon | codecMask)
	sealBatch(out, attributes, record.NoTimestamp, b.MaxTimestamp, 0)
	return out
}

// sealBatch writes what depends on a batch's records, and the checksum.
func sealBatch(raw []byte, attributes uint16, baseTimestamp, maxTimestamp int64, records int) {
	binary.BigEndian.PutUint32(raw[offLength:], uint32(len(raw)-record.LogOverhead))
	binary.BigEndian.PutUint16(raw[offAttributes:], attributes)
	binary.BigEndian.PutUint64(raw[offBaseTimestamp:], uint64(baseTimestamp))
	binary.BigEndian.PutUint64(raw[offMaxTimestamp:], uint64(maxTimestamp))
	binary.BigEndian.PutUint32(raw[offNumRecords:], uint32(records))
	binary.BigEndian.PutUint32(raw[offCRC:], crc32.Checksum(raw[offAttributes:], castagnoli))
}
