package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType tells the two transaction markers apart.
type ControlType int16

// The transaction markers by the number in a control record's key.
const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

// String gives "ABORT" or "COMMIT".
func (t ControlType) String() string {
	switch t {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	}
	return fmt.Sprintf("control type %d", int16(t))
}

// EndTxnMarker is the control record that ends a transaction in a partition (Kafka: EndTransactionMarker).
// Its key is version (int16, 0) and type (int16), its value version (int16, 0) and coordinator epoch (int32).
type EndTxnMarker struct {
	ProducerID       int64
	ProducerEpoch    int16
	Type             ControlType
	CoordinatorEpoch int32
	TimestampMs      int64
}

// Batch returns the marker as a whole control batch at offset 0.
func (m EndTxnMarker) Batch() []byte {
	key := binary.BigEndian.AppendUint16(make([]byte, 2, 4), uint16(m.Type))
	value := binary.BigEndian.AppendUint32(make([]byte, 2, 6), uint32(m.CoordinatorEpoch))
	b := NewBuilder(BuilderOptions{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, LeaderEpoch: NoLeaderEpoch, Transactional: true, Control: true,
	})
	b.Append(m.TimestampMs, key, value)
	raw, err := b.Build()
	if err != nil {
		panic("record: uncompressed batch: " + err.Error()) // only codecs can fail
	}
	return raw
}

// ControlTypeOf reads the type from a control record's key.
func ControlTypeOf(key []byte) (ControlType, error) {
	if len(key) < 4 {
		return 0, invalid("Invalid control record key of %d bytes", len(key))
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return 0, invalid("Invalid version %d of a control record key", v)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// ParseEndTxnMarker reads the marker of a control batch. A control record of another type is an error: ask ControlTypeOf first
// where the others can occur.
func ParseEndTxnMarker(b Batch) (EndTxnMarker, error) {
	m := EndTxnMarker{ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch}
	if !b.IsControl() {
		return m, invalid("Batch at offset %d is not a control batch", b.BaseOffset)
	}
	found := false
	err := b.ForEach(0, func(r *Record) error {
		t, err := ControlTypeOf(r.Key)
		if err != nil {
			return err
		}
		if t != Abort && t != Commit {
			return invalid("Control record of type %d is no transaction marker", int16(t))
		}
		if len(r.Value) < 6 {
			return invalid("Invalid transaction marker value of %d bytes", len(r.Value))
		}
		m.Type, m.TimestampMs, found = t, r.Timestamp, true
		m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		return nil
	})
	if err == nil && !found {
		err = invalid("Control batch at offset %d has no record", b.BaseOffset)
	}
	return m, err
}
