package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// structureBytesMax bounds the part of a client's request that is not record bytes: an element of an array can
// be a byte or two on the wire and a hundred in memory, so 100 MiB of empty topics would take 9 GB. Kafka has no such
// bound; requests of real clients stay far below (a reassignment of 200,000 partitions has 4 MB).
const structureBytesMax = 8 << 20

// structureCost is how many times its bytes such a part may take in memory.
const structureCost = 64

// decodeProduce decodes a Produce request of any version. It does what kmsg does with fewer allocations, none of
// them before the message has been walked to its end. Topics without partitions are left out: they have no place
// in an answer. Tagged fields, of which no version has any that is known, are skipped.
func decodeProduce(req *kmsg.ProduceRequest, body []byte) error {
	size, err := measureProduce(req.Version, body)
	if err != nil {
		return err
	}
	compact := req.Version >= 9
	version := req.Version
	r := reader{b: body}
	req.Default()
	req.Version = version
	if version >= 3 {
		if id, ok := r.str(compact); ok {
			s := string(id)
			req.TransactionID = &s
		}
	}
	req.Acks = r.int16()
	req.TimeoutMillis = r.int32()
	req.Topics = make([]kmsg.ProduceRequestTopic, 0, size.topics)
	partitions := make([]kmsg.ProduceRequestTopicPartition, 0, size.partitions)
	for n := r.length(compact); n > 0; n-- {
		var t kmsg.ProduceRequestTopic
		if version >= 13 {
			copy(t.TopicID[:], r.span(16))
		}
		var name []byte
		if version < 13 {
			name, _ = r.str(compact)
		}
		first := len(partitions)
		for p := r.length(compact); p > 0; p-- {
			index := r.int32()
			partitions = append(partitions, kmsg.ProduceRequestTopicPartition{Partition: index, Records: r.nullableBytes(compact)})
			if compact {
				r.skipTags()
			}
		}
		if compact {
			r.skipTags()
		}
		if len(partitions) > first {
			t.Topic = string(name)
			t.Partitions = partitions[first:len(partitions):len(partitions)]
			req.Topics = append(req.Topics, t)
		}
	}
	return nil
}

// produceSize is what a Produce request holds.
type produceSize struct {
	topics, partitions int // topics without partitions are not counted
	records            int // bytes
}

// measureProduce walks a Produce request without keeping anything of it.
func measureProduce(version int16, body []byte) (produceSize, error) {
	compact := version >= 9
	r := reader{b: body}
	var size produceSize
	if version >= 3 {
		r.str(compact)
	}
	r.span(2 + 4)
	topicMin, partitionMin := 6, 8
	if compact {
		topicMin, partitionMin = 3, 6
	}
	if version >= 13 {
		topicMin = 18
	}
	for n := r.arrayLen(compact, topicMin); n > 0 && !r.bad; n-- {
		if version >= 13 {
			r.span(16)
		} else if _, ok := r.str(compact); !ok {
			return size, errShort
		}
		parts := r.arrayLen(compact, partitionMin)
		if parts > 0 {
			size.topics++
			size.partitions += parts
		}
		for ; parts > 0 && !r.bad; parts-- {
			r.span(4)
			size.records += len(r.nullableBytes(compact))
			if compact {
				r.skipTags()
			}
		}
		if compact {
			r.skipTags()
		}
	}
	if compact {
		r.skipTags()
	}
	if r.bad {
		return size, errShort
	}
	if structure := len(body) - size.records; structure > structureBytesMax {
		return size, fmt.Errorf("%d bytes beside the records, more than %d", structure, structureBytesMax)
	}
	return size, nil
}
