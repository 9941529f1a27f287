package coord

import (
	"reflect"
	"testing"

	"klamm/internal/cluster"
)

func TestLeftoversAreReadAsWritten(t *testing.T) {
	want := Leftover{Topic: "a.b_c", TopicID: cluster.TopicID{1, 2, 3}, Partitions: []int32{0, 7}, TimestampMs: 1234}
	got, err := DecodeLeftover(EncodeLeftover(want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"topic":"t"}`, `{"topic":"t","topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}`} {
		if _, err := DecodeLeftover([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestARegistrationTellsAKlammBrokerFromKafkas(t *testing.T) {
	n := BrokerNode{Endpoints: []cluster.Endpoint{{Listener: "P", SecurityProtocol: "PLAINTEXT", Host: "h", Port: 1}}, JMXPort: -1,
		Klamm: &KlammRegistration{Version: 1, Web: "h:8080"}}
	got, err := DecodeBroker(EncodeBroker(n))
	if err != nil || got.Klamm == nil || *got.Klamm != *n.Klamm || !got.Broker(1, 2).Klamm {
		t.Errorf("got %+v, %v", got, err)
	}
	n.Klamm = nil
	if got, err = DecodeBroker(EncodeBroker(n)); err != nil || got.Klamm != nil || got.Broker(1, 2).Klamm {
		t.Errorf("of Kafka's: %+v, %v", got, err)
	}
}

// Kafka writes layout 4 up to inter.broker.protocol.version 2.6, and 5 from 2.7 on.
func TestARegistrationTellsWhetherALeaderWritesItsISR(t *testing.T) {
	for version, want := range map[int32]bool{2: true, 4: true, 5: false} {
		n := BrokerNode{Version: version, Endpoints: []cluster.Endpoint{{Listener: "P", SecurityProtocol: "PLAINTEXT", Host: "h", Port: 1}}, JMXPort: -1}
		got, err := DecodeBroker(EncodeBroker(n))
		if err != nil || got.Broker(1, 2).WritesISR != want {
			t.Errorf("layout %d: %+v, %v", version, got.Broker(1, 2), err)
		}
	}
}
