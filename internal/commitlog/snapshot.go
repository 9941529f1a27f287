package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"time"

	"klamm/internal/vfs"
)

// A producer snapshot, <offset>.snapshot: version int16 (1), CRC32C uint32 of what follows it, number of entries int32, then per producer:
// id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset
// of the current transaction int64; big-endian (Kafka: ProducerSnapshot.json). Of the remembered batches only the last one is kept. For the timestamp see
// storedTimestamp.
const (
	snapshotVersion   = 1
	snapshotHeader    = 2 + 4 + 4
	snapshotCRCFrom   = 2 + 4
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeSnapshot(entries map[int64]*producerEntry, expiry time.Duration) []byte {
	b := make([]byte, 0, snapshotHeader+len(entries)*snapshotEntrySize)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		e := entries[id]
		last := batchMeta{lastSequence: -1, lastOffset: -1}
		if e.n > 0 {
			last = e.batches[e.n-1]
		}
		b = binary.BigEndian.AppendUint64(b, uint64(e.id))
		b = binary.BigEndian.AppendUint16(b, uint16(e.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(last.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.offsetDelta))
		b = binary.BigEndian.AppendUint64(b, uint64(e.storedTimestamp(expiry)))
		b = binary.BigEndian.AppendUint32(b, uint32(e.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.txnFirst))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[snapshotCRCFrom:], castagnoli))
	return b
}

func decodeSnapshot(b []byte) ([]producerEntry, error) {
	if len(b) < snapshotHeader {
		return nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("unknown version %d", v)
	}
	stored, computed := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[snapshotCRCFrom:], castagnoli)
	if stored != computed {
		return nil, fmt.Errorf("stored CRC %d is not the computed %d", stored, computed)
	}
	n := int(int32(binary.BigEndian.Uint32(b[6:])))
	b = b[snapshotHeader:]
	if n < 0 || len(b) != n*snapshotEntrySize {
		return nil, fmt.Errorf("%d entries in %d bytes", n, len(b))
	}
	out := make([]producerEntry, 0, n)
	for ; len(b) > 0; b = b[snapshotEntrySize:] {
		e := producerEntry{
			id:               int64(binary.BigEndian.Uint64(b)),
			epoch:            int16(binary.BigEndian.Uint16(b[8:])),
			lastTimestamp:    int64(binary.BigEndian.Uint64(b[26:])),
			coordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
			txnFirst:         max(int64(binary.BigEndian.Uint64(b[38:])), -1),
		}
		last := batchMeta{
			lastSequence: int32(binary.BigEndian.Uint32(b[10:])),
			lastOffset:   int64(binary.BigEndian.Uint64(b[14:])),
			offsetDelta:  int32(binary.BigEndian.Uint32(b[22:])),
			timestamp:    e.lastTimestamp,
		}
		if last.lastOffset >= 0 {
			e.batches[0], e.n = last, 1
		}
		out = append(out, e)
	}
	return out, nil
}

// takeSnapshot writes the state as of mapEnd, without syncing. With l.mu held.
func (l *Log) takeSnapshot() error {
	p := &l.producers
	if p.mapEnd <= p.snapEnd && slices.Contains(p.snapshots, p.mapEnd) {
		return nil
	}
	if err := vfs.WriteFile(l.dir.fs, l.path(fileName(p.mapEnd, snapshotSuffix)), encodeSnapshot(p.entries, l.m.producerExpiry())); err != nil {
		return err
	}
	p.snapEnd = p.mapEnd
	if i, found := slices.BinarySearch(p.snapshots, p.mapEnd); !found {
		p.snapshots = slices.Insert(p.snapshots, i, p.mapEnd)
	}
	return nil
}

// removeSnapshots deletes the snapshot files whose offset matches.
func (l *Log) removeSnapshots(match func(offset int64) bool) error {
	var errs []error
	kept := l.producers.snapshots[:0]
	for _, offset := range l.producers.snapshots {
		if !match(offset) {
			kept = append(kept, offset)
			continue
		}
		errs = append(errs, removeIfThere(l.dir.fs.Remove(l.path(fileName(offset, snapshotSuffix)))))
	}
	l.producers.snapshots = kept
	return errors.Join(errs...)
}

// setAsideSnapshots forgets the snapshot files after an offset, and returns their offsets.
func (l *Log) setAsideSnapshots(after int64) []int64 {
	p := &l.producers
	i, _ := slices.BinarySearch(p.snapshots, after+1)
	aside := slices.Clone(p.snapshots[i:])
	p.snapshots = p.snapshots[:i]
	return aside
}

// confirmSnapshots takes the snapshot of the state as it is now back from those that were set aside, when it says just that, and removes
// the others that were not taken again meanwhile.
func (l *Log) confirmSnapshots(aside []int64) error {
	p := &l.producers
	var errs []error
	for _, offset := range aside {
		name := l.path(fileName(offset, snapshotSuffix))
		i, again := slices.BinarySearch(p.snapshots, offset)
		if again {
			continue
		}
		if offset == p.mapEnd && len(p.entries) > 0 {
			data, err := vfs.ReadFile(l.dir.fs, name)
			if err == nil && bytes.Equal(data, encodeSnapshot(p.entries, l.m.producerExpiry())) {
				p.snapshots, p.snapEnd = slices.Insert(p.snapshots, i, offset), offset
				continue
			}
		}
		errs = append(errs, removeIfThere(l.dir.fs.Remove(name)))
	}
	return errors.Join(errs...)
}

// loadSnapshot resets the state to the newest readable snapshot at or below an offset, or to nothing at the log's start. Unreadable
// snapshots are removed: the batches say it all again.
func (l *Log) loadSnapshot(upTo int64) error {
	p := &l.producers
	start := l.start.Load()
	p.reset(start)
	p.snapEnd = start
	for i := len(p.snapshots) - 1; i >= 0; i-- {
		offset := p.snapshots[i]
		if offset > upTo || offset <= start {
			continue
		}
		entries, err := l.readSnapshot(offset)
		if err == nil {
			l.adoptSnapshot(entries, offset)
			return nil
		}
		if !errors.Is(err, errCorrupt) {
			return err
		}
		l.m.log.Warn("producer snapshot is corrupt, removed", "partition", l.tp.String(), "offset", offset, "err", err)
		if err := l.removeSnapshots(func(o int64) bool { return o == offset }); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) readSnapshot(offset int64) ([]producerEntry, error) {
	name := l.path(fileName(offset, snapshotSuffix))
	data, err := vfs.ReadFile(l.dir.fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if err != nil {
		return nil, err
	}
	entries, err := decodeSnapshot(data)
	if err != nil {
		return nil, fmt.Errorf("%w: snapshot %s: %w", errCorrupt, name, err)
	}
	return entries, nil
}

func (l *Log) adoptSnapshot(entries []producerEntry, offset int64) {
	p := &l.producers
	now, expiry := time.Now().UnixMilli(), l.m.producerExpiry()
	for _, e := range entries {
		if e.expired(now, expiry) {
			continue
		}
		if p.entries == nil {
			p.entries = map[int64]*producerEntry{}
		}
		p.entries[e.id] = &e
		if e.txnFirst >= 0 {
			p.ongoing = insertTxn(p.ongoing, openTxn{e.id, e.txnFirst, -1})
		}
	}
	p.mapEnd, p.snapEnd = offset, offset
}
