package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

var ignoreTags = cmp.Options{cmpopts.IgnoreUnexported(kmsg.Tags{}), cmpopts.EquateEmpty()}

func TestEveryMessageSurvivesEncodingAndDecoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	wiretest.EveryVersion(func(key, version int16) {
		for range 5 {
			body := AppendRequestBody(nil, wiretest.RandomRequest(rng, key, version))
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			if err := DecodeRequestBody(req, body); err != nil {
				t.Fatal(err)
			}
			// Produce drops topics without partitions; the rest is tested apart.
			if again := AppendRequestBody(nil, req); key != keyProduce && !bytes.Equal(body, again) {
				t.Fatalf("%s v%d request: %x became %x", kmsg.NameForKey(key), version, body, again)
			}
			body = AppendResponseBody(nil, wiretest.RandomResponse(rng, key, version))
			resp := kmsg.ResponseForKey(key)
			resp.SetVersion(version)
			if err := DecodeResponseBody(resp, body); err != nil {
				t.Fatal(err)
			}
			if again := AppendResponseBody(nil, resp); !bytes.Equal(body, again) {
				t.Fatalf("%s v%d response: %x became %x", kmsg.NameForKey(key), version, body, again)
			}
		}
	})
}

func TestEveryRequestCutShortIsMalformed(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	wiretest.EveryVersion(func(key, version int16) {
		body := AppendRequestBody(nil, wiretest.RandomRequest(rng, key, version))
		for range 5 {
			cut := rng.IntN(len(body) + 1)
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			if err := DecodeRequestBody(req, body[:cut]); cut < len(body) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s v%d: %d of %d bytes decode with error %v", kmsg.NameForKey(key), version, cut, len(body), err)
			}
		}
	})
}

// Kafka: StopReplicaRequest.json, v4 has IsKRaftController before ControllerEpoch.
func TestStopReplicaV4HasTheFlagBeforeTheEpoch(t *testing.T) {
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version, req.ControllerID, req.ControllerEpoch, req.IsKRaftController, req.BrokerEpoch = 4, 1, 0x02030405, true, 6
	body := AppendRequestBody(nil, req)
	want := []byte{0, 0, 0, 1, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 6, 1, 0}
	if !bytes.Equal(body, want) {
		t.Fatalf("encoded as %x, want %x", body, want)
	}
	shared := bytes.Clone(body)
	got := kmsg.NewPtrStopReplicaRequest()
	got.Version = 4
	if err := DecodeRequestBody(got, shared); err != nil || got.ControllerEpoch != req.ControllerEpoch || !got.IsKRaftController {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if !bytes.Equal(shared, body) {
		t.Error("decoding changed the bytes")
	}
}

func TestTagsUnknownToAVersionAreLeftOut(t *testing.T) {
	produce := kmsg.NewPtrProduceResponse()
	produce.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{kmsg.NewProduceResponseTopicPartition()}}}
	plain := func(version int16) []byte {
		produce.Version = version
		return AppendResponseBody(nil, produce)
	}
	v9, v10 := plain(9), plain(10)
	produce.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "h"}}
	produce.Topics[0].Partitions[0].CurrentLeader.LeaderID = 3
	if tagged := plain(10); len(tagged) <= len(v10) {
		t.Error("v10 lost its tags")
	}
	if got := plain(9); !bytes.Equal(got, v9) {
		t.Error("v9 has tags it does not know")
	}

	fetch := kmsg.NewPtrFetchRequest()
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
	fetch.ReplicaID, fetch.ReplicaState.ID, fetch.ReplicaState.Epoch = 2, 2, 9
	fetch.Topics[0].Partitions[0].ReplicaDirectoryID[0] = 1
	fetch.Topics[0].Partitions[0].HighWatermark = 5
	sizes := map[int16]int{}
	for version := int16(18); version >= 12; version-- { // downwards: fields are reset on the way
		fetch.Version = version
		sizes[version] = len(AppendRequestBody(nil, fetch))
	}
	// v18 knows the high watermark (10 bytes), v17 the directory id (18), v15 the replica state (15).
	if sizes[18]-sizes[17] != 10 || sizes[17]-sizes[16] != 18 || sizes[15]-sizes[14] != 15-4 {
		t.Errorf("sizes by version are %v", sizes)
	}
}

func TestControlledShutdownV0HasNoClientID(t *testing.T) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version, req.BrokerID = 0, 5
	frame := AppendRequest(nil, req, 9, &testClientID)
	if want := []byte{0, 0, 0, 12, 0, 7, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5}; !bytes.Equal(frame, want) {
		t.Fatalf("frame is %x, want %x", frame, want)
	}
	h, err := parseHeaderStart(frame[4:])
	if err != nil {
		t.Fatal(err)
	}
	body, err := parseHeaderRest(&h, frame[4:], false)
	if err != nil || !bytes.Equal(body, []byte{0, 0, 0, 5}) || h.clientID != "" {
		t.Errorf("body %x, header %+v, %v", body, h, err)
	}
}

func TestHeadersAreFlexibleWithTheirMessages(t *testing.T) {
	for version, want := range map[int16][]byte{
		8: {0, 0, 0, 15, 0, 3, 0, 8, 0, 0, 0, 1, 0, 1, 'c', 0xff, 0xff, 0xff, 0xff},
		9: {0, 0, 0, 14, 0, 3, 0, 9, 0, 0, 0, 1, 0, 1, 'c', 0, 0},
	} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		client := "c"
		if got := AppendRequest(nil, req, 1, &client); !bytes.HasPrefix(got[4:], want[4:]) {
			t.Errorf("v%d: frame starts %x, want %x", version, got, want)
		}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = version
		resp.ThrottleMillis = 0x01010101
		got := AppendResponse(nil, resp, 1)[8:]
		if flexible := got[0] == 0; flexible != (version >= 9) {
			t.Errorf("v%d: answer goes on with %x", version, got)
		}
	}
	versions := kmsg.NewPtrApiVersionsResponse()
	versions.Version, versions.ErrorCode = 4, 0x0101
	if got := AppendResponse(nil, versions, 1)[8:]; got[0] != 1 {
		t.Errorf("an ApiVersions answer has a flexible header: %x", got)
	}
}

func TestTagsInRequestHeadersAreSkipped(t *testing.T) {
	frame := []byte{0, 3, 0, 9, 0, 0, 0, 1, 0, 1, 'c', 2, 0, 1, 0xaa, 7, 2, 0xbb, 0xcc, 'b'}
	h, _ := parseHeaderStart(frame)
	body, err := parseHeaderRest(&h, frame, true)
	if err != nil || string(body) != "b" || h.clientID != "c" {
		t.Errorf("body %x, header %+v, %v", body, h, err)
	}
}
