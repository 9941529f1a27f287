package wire

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

func TestProduceIsDecodedAsKmsgDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for version := range kmsg.NewPtrProduceRequest().MaxVersion() + 1 {
		for range 60 {
			body := AppendRequestBody(nil, wiretest.RandomRequest(rng, keyProduce, version))
			got, want := kmsg.NewPtrProduceRequest(), kmsg.NewPtrProduceRequest()
			got.Version, want.Version = version, version
			if err := want.ReadFrom(body); err != nil {
				t.Fatal(err)
			}
			if err := DecodeRequestBody(got, body); err != nil {
				t.Fatal(err)
			}
			want.Topics = slices.DeleteFunc(want.Topics, func(t kmsg.ProduceRequestTopic) bool { return len(t.Partitions) == 0 })
			if diff := cmp.Diff(want, got, ignoreTags); diff != "" {
				t.Fatalf("v%d (-kmsg +ours)\n%s", version, diff)
			}
		}
	}
}

func producedBody(version int16, partitions int, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "orders"
	for i := range partitions {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), records
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return AppendRequestBody(nil, req)
}

func TestRecordsAliasTheFrame(t *testing.T) {
	body := producedBody(9, 1, bytes.Repeat([]byte{7}, 1000))
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	if err := DecodeRequestBody(req, body); err != nil {
		t.Fatal(err)
	}
	records := req.Topics[0].Partitions[0].Records
	if at := bytes.LastIndex(body, records); len(records) != 1000 || unsafe.SliceData(records) != &body[at] {
		t.Error("the records were copied")
	}
}

func TestDecodingProduceAllocatesNothingPerPartitionOrByte(t *testing.T) {
	for _, partitions := range []int{1, 100} {
		body := producedBody(9, partitions, make([]byte, 16<<10))
		req := kmsg.NewPtrProduceRequest()
		req.Version = 9
		allocs := testing.AllocsPerRun(100, func() {
			if err := decodeProduce(req, body); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 3 { // topics, partitions, the topic's name
			t.Errorf("%d partitions take %v allocations", partitions, allocs)
		}
	}
}

func TestTopicsWithoutPartitionsTakeNoMemory(t *testing.T) {
	body := []byte{0, 0, 1, 0, 0, 0, 1}
	body = append(body, 0x81, 0x80, 0x40) // a million topics
	body = append(body, bytes.Repeat([]byte{1, 1, 0}, 1<<20)...)
	body = append(body, 0)
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	allocs := testing.AllocsPerRun(5, func() { // of several: one run would count what an ending goroutine allocates
		if err := decodeProduce(req, body); err != nil {
			t.Fatal(err)
		}
	})
	if len(req.Topics) != 0 || allocs > 1 {
		t.Errorf("%d topics, %v allocations", len(req.Topics), allocs)
	}
}

func BenchmarkDecodeProduce(b *testing.B) {
	body := producedBody(9, 1, make([]byte, 16<<10))
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	b.ReportAllocs()
	for b.Loop() {
		if err := decodeProduce(req, body); err != nil {
			b.Fatal(err)
		}
	}
}
