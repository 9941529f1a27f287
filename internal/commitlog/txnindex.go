package commitlog

import (
	"encoding/binary"
	"fmt"

	"klamm/internal/vfs"
)

// AbortedTxn is one aborted transaction, as FetchResponse names it.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// abortedEntry is an entry of a transaction index: version int16 (0), producer id, first offset, last offset (the marker's), last
// stable offset after the abort; all int64, big-endian (Kafka: AbortedTxn).
type abortedEntry struct {
	producerID, first, last, lastStable int64
}

const abortedEntrySize = 34

// txnIndex lists the aborted transactions that end in one segment. It is held in memory: there are few. Guarded by the log's mutex;
// entries already published are never changed, so a reader may keep a slice.
type txnIndex struct {
	seg     *segment
	entries []abortedEntry
}

func (e abortedEntry) encode() []byte {
	b := make([]byte, abortedEntrySize)
	binary.BigEndian.PutUint64(b[2:], uint64(e.producerID))
	binary.BigEndian.PutUint64(b[10:], uint64(e.first))
	binary.BigEndian.PutUint64(b[18:], uint64(e.last))
	binary.BigEndian.PutUint64(b[26:], uint64(e.lastStable))
	return b
}

func decodeAborted(data []byte) ([]abortedEntry, error) {
	if len(data)%abortedEntrySize != 0 {
		return nil, fmt.Errorf("%d bytes are no multiple of %d", len(data), abortedEntrySize)
	}
	var out []abortedEntry
	for ; len(data) > 0; data = data[abortedEntrySize:] {
		if v := binary.BigEndian.Uint16(data); v != 0 {
			return nil, fmt.Errorf("unknown version %d", v)
		}
		out = append(out, abortedEntry{
			producerID: int64(binary.BigEndian.Uint64(data[2:])),
			first:      int64(binary.BigEndian.Uint64(data[10:])),
			last:       int64(binary.BigEndian.Uint64(data[18:])),
			lastStable: int64(binary.BigEndian.Uint64(data[26:])),
		})
	}
	return out, nil
}

func (t *txnIndex) append(e abortedEntry) error {
	f, err := t.seg.file(txnIndexSuffix, true)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(e.encode(), int64(len(t.entries))*abortedEntrySize); err != nil {
		return err
	}
	t.entries = append(t.entries, e)
	return nil
}

// truncateTo drops the transactions that end at or after an offset.
func (t *txnIndex) truncateTo(offset int64) error {
	for i, e := range t.entries {
		if e.last < offset {
			continue
		}
		f, err := t.seg.file(txnIndexSuffix, true)
		if err != nil {
			return err
		}
		t.entries = t.entries[:i:i] // readers may hold the longer slice
		return f.Truncate(int64(i) * abortedEntrySize)
	}
	return nil
}

// load reads the file of a segment being opened.
func (t *txnIndex) load() error {
	data, err := vfs.ReadFile(t.seg.log.dir.fs, t.seg.path(txnIndexSuffix))
	if err != nil {
		return err
	}
	entries, err := decodeAborted(data)
	if err == nil {
		for _, e := range entries {
			if e.last < t.seg.base {
				err = fmt.Errorf("aborted transaction ends at %d, before the segment's base offset", e.last)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("transaction index %s: %w", t.seg.path(txnIndexSuffix), err)
	}
	t.entries = entries
	return nil
}
