package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch answers have versions 0 to 18; before version 4 the records are message sets, which the caller has to see to.
const (
	fetchMaxVersion           = 18
	fetchFlexibleVersion      = 12
	fetchTopicIDVersion       = 13
	fetchNodeEndpointsVersion = 16
)

// RecordSource is a stretch of record batches, usually of a segment file. Its length is fixed when it is made.
type RecordSource interface {
	// Len is the number of bytes.
	Len() int
	// ReadInto fills dst, which has Len bytes. It is called at most once, on the connection's writer goroutine.
	// Fewer bytes or an error (the segment was truncated meanwhile) close the connection.
	ReadInto(dst []byte) (int, error)
	// Release is called exactly once, after ReadInto or instead of it.
	Release()
}

// FileSource is a RecordSource whose bytes are a stretch of a file of the operating system. Long ones go from the page
// cache to the socket without passing through this process.
type FileSource interface {
	RecordSource
	// File gives the file, which stays open until Release, and where the bytes start in it. When ok is false there is no
	// such file, and ReadInto has to do.
	File() (file syscall.Conn, position int64, ok bool)
}

// BytesSource is a RecordSource over memory.
type BytesSource []byte

// Len returns the number of bytes.
func (b BytesSource) Len() int { return len(b) }

// ReadInto copies the bytes.
func (b BytesSource) ReadInto(dst []byte) (int, error) { return copy(dst, b), nil }

// Release does nothing.
func (b BytesSource) Release() {}

// FetchResponse answers a Fetch request of version 0 to 18 with record bytes that are read from their sources
// when it is written. It encodes byte for byte as kmsg.FetchResponse with the same records in memory would.
type FetchResponse struct {
	Version        int16 // set by Respond
	ThrottleMillis int32
	ErrorCode      int16                      // v7+
	SessionID      int32                      // v7+
	Topics         []FetchTopic               // in answer order
	Brokers        []kmsg.FetchResponseBroker // node endpoints, v16+

	// Prepare, if set, is called with the answer before it is encoded, on the goroutine that writes to the connection: there
	// is the place for work that would take too long for whoever calls Respond. It may change everything but the version.
	Prepare func(*FetchResponse)
}

// FetchTopic is one topic of a FetchResponse: Topic is sent up to v12, TopicID from v13.
type FetchTopic struct {
	Topic      string
	TopicID    [16]byte
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchResponse; NewFetchPartition sets the protocol's defaults. Its records
// are those of Records, or RecordBatches when Records is nil. No records are sent as empty, not as null, as Kafka does.
type FetchPartition struct {
	kmsg.FetchResponseTopicPartition
	Records RecordSource
}

// NewFetchPartition returns a partition with the protocol's defaults and no records.
func NewFetchPartition(partition int32) FetchPartition {
	p := FetchPartition{FetchResponseTopicPartition: kmsg.NewFetchResponseTopicPartition()}
	p.Partition = partition
	return p
}

// Key returns the API key of Fetch.
func (f *FetchResponse) Key() int16 { return keyFetch }

// SetVersion sets the version to encode.
func (f *FetchResponse) SetVersion(v int16) { f.Version = v }

// IsFlexible reports whether the version has tagged fields.
func (f *FetchResponse) IsFlexible() bool { return f.Version >= fetchFlexibleVersion }

// SetThrottle sets the throttle time.
func (f *FetchResponse) SetThrottle(millis int32) { f.ThrottleMillis = millis }

// Release releases all sources. It is for answers that are not handed to Respond, which releases them itself.
func (f *FetchResponse) Release() {
	for t := range f.Topics {
		for p := range f.Topics[t].Partitions {
			part := &f.Topics[t].Partitions[p]
			if part.Records != nil {
				part.Records.Release()
				part.Records = nil
			}
		}
	}
}

// recordCut is a place in an encoded answer where record bytes belong.
type recordCut struct {
	at  int // offset in the encoded bytes
	n   int // record bytes
	src RecordSource
}

// fetchFrame is an encoded fetch answer: everything but the records, and the places where they go.
type fetchFrame struct {
	head    *buffer
	cuts    []recordCut
	records int // bytes of all cuts
}

// release gives back the buffer and the sources that are left.
func (f *fetchFrame) release() {
	for i := range f.cuts {
		if src := f.cuts[i].src; src != nil {
			f.cuts[i].src = nil
			src.Release()
		}
	}
	if f.head != nil {
		f.head.release()
		f.head = nil
	}
}

// encode takes over the sources of f and encodes the rest as a whole frame. On an error the sources are released.
func (f *FetchResponse) encode(correlationID int32) (*fetchFrame, error) {
	frame := &fetchFrame{head: getBuffer(512)}
	e := fetchEncoder{version: f.Version, flexible: f.IsFlexible(), frame: frame}
	e.dst = appendResponseHeader(frame.head.b, correlationID, e.flexible)
	e.response(f)
	frame.head.b = e.dst
	size := len(e.dst) - 4 + frame.records
	var err error
	switch {
	case f.Version < 0 || f.Version > fetchMaxVersion:
		err = fmt.Errorf("fetch answer of version %d", f.Version)
	case size > math.MaxInt32:
		err = fmt.Errorf("fetch answer of %d bytes", size)
	}
	if err != nil {
		frame.release()
		return nil, err
	}
	binary.BigEndian.PutUint32(e.dst, uint32(size))
	return frame, nil
}

// mustEncode is encode where an error is a fault of the program.
func (f *FetchResponse) mustEncode(correlationID int32) *fetchFrame {
	frame, err := f.encode(correlationID)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return frame
}

// fetchEncoder writes a fetch answer (Kafka: FetchResponse.json).
type fetchEncoder struct {
	dst      []byte
	version  int16
	flexible bool
	frame    *fetchFrame
}

func (e *fetchEncoder) response(f *FetchResponse) {
	if e.version >= 1 {
		e.int32(f.ThrottleMillis)
	}
	if e.version >= 7 {
		e.int16(f.ErrorCode)
		e.int32(f.SessionID)
	}
	e.length(len(f.Topics))
	for t := range f.Topics {
		topic := &f.Topics[t]
		if e.version >= fetchTopicIDVersion {
			e.dst = append(e.dst, topic.TopicID[:]...)
		} else {
			e.dst = appendString(e.dst, &topic.Topic, e.flexible)
		}
		e.length(len(topic.Partitions))
		for p := range topic.Partitions {
			e.partition(&topic.Partitions[p])
		}
		e.noTags()
	}
	if !e.flexible {
		return
	}
	if e.version < fetchNodeEndpointsVersion || len(f.Brokers) == 0 {
		e.noTags()
		return
	}
	brokers := e.brokers(f.Brokers)
	e.dst = append(e.dst, 1)
	e.tag(0, brokers)
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	if e.version >= 4 {
		e.transactions(p)
	}
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	e.records(p)
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) transactions(p *FetchPartition) {
	e.int64(p.LastStableOffset)
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		e.length(-1)
	} else {
		e.length(len(p.AbortedTransactions))
	}
	for i := range p.AbortedTransactions {
		e.int64(p.AbortedTransactions[i].ProducerID)
		e.int64(p.AbortedTransactions[i].FirstOffset)
		e.noTags()
	}
}

// records notes where a source's bytes go, or appends those in memory.
func (e *fetchEncoder) records(p *FetchPartition) {
	src := p.Records
	if src == nil {
		e.length(len(p.RecordBatches))
		e.dst = append(e.dst, p.RecordBatches...)
		return
	}
	p.Records = nil
	n := src.Len()
	e.length(n)
	e.frame.cuts = append(e.frame.cuts, recordCut{at: len(e.dst), n: n, src: src})
	e.frame.records += n
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	diverging := p.DivergingEpoch.Epoch != -1 || p.DivergingEpoch.EndOffset != -1
	leader := p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1
	snapshot := p.SnapshotID.EndOffset != -1 || p.SnapshotID.Epoch != -1
	count := byte(0)
	for _, present := range []bool{diverging, leader, snapshot} {
		if present {
			count++
		}
	}
	e.dst = append(e.dst, count)
	if diverging {
		e.tagHead(0, 4+8+1)
		e.int32(p.DivergingEpoch.Epoch)
		e.int64(p.DivergingEpoch.EndOffset)
		e.noTags()
	}
	if leader {
		e.tagHead(1, 4+4+1)
		e.int32(p.CurrentLeader.LeaderID)
		e.int32(p.CurrentLeader.LeaderEpoch)
		e.noTags()
	}
	if snapshot {
		e.tagHead(2, 8+4+1)
		e.int64(p.SnapshotID.EndOffset)
		e.int32(p.SnapshotID.Epoch)
		e.noTags()
	}
}

// brokers encodes the node endpoints apart, since their tag tells their size first.
func (e *fetchEncoder) brokers(brokers []kmsg.FetchResponseBroker) []byte {
	dst := binary.AppendUvarint(nil, uint64(len(brokers))+1)
	for i := range brokers {
		b := &brokers[i]
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.NodeID))
		dst = appendString(dst, &b.Host, true)
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.Port))
		dst = appendString(dst, b.Rack, true)
		dst = append(dst, 0)
	}
	return dst
}

func (e *fetchEncoder) tagHead(tag byte, size int) {
	e.dst = append(e.dst, tag)
	e.dst = binary.AppendUvarint(e.dst, uint64(size))
}

func (e *fetchEncoder) tag(tag byte, value []byte) {
	e.tagHead(tag, len(value))
	e.dst = append(e.dst, value...)
}

// noTags ends a structure of a flexible version.
func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.dst = append(e.dst, 0)
	}
}

// length writes a nullable int32 length, -1 for null, or its compact form.
func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.dst = binary.AppendUvarint(e.dst, uint64(n+1))
		return
	}
	e.int32(int32(n))
}

func (e *fetchEncoder) int16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }
