package wire

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

func apiVersionsFrame(version int16, name, software string) []byte {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, name, software
	return AppendRequest(nil, req, 77, &testClientID)
}

// askVersions decodes the answer to ApiVersions, whose header is v0 in every version.
func askVersions(t *testing.T, p *peer, frame []byte, version int16) *kmsg.ApiVersionsResponse {
	t.Helper()
	p.send(frame)
	answer := p.receive()
	if id := binary.BigEndian.Uint32(answer); id != 77 {
		t.Fatalf("answer to %d", id)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	if err := DecodeResponseBody(resp, answer[4:]); err != nil {
		t.Fatal(err)
	}
	// What was decoded is all there was.
	if again := AppendResponseBody(nil, resp); !slices.Equal(again, answer[4:]) {
		t.Errorf("answer is %x, decoded and encoded again it is %x", answer[4:], again)
	}
	return resp
}

func smallTable(cfg *ServerConfig) {
	cfg.API = NewAPITable()
	cfg.API.Serve(3, 0, 12, AllListeners)
	cfg.API.Serve(4, 0, 7, InterBrokerOnly)
	cfg.API.Serve(0, 3, 9, AllListeners)
}

// R17: clients old and new start, each with the version of ApiVersions it knows.
func TestApiVersionsTellsWhatIsServedInEveryVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, n *wiretest.Net) {
			smallTable(cfg)
			internal, _ := n.Listen("10.0.0.1:9093")
			cfg.Listeners = append(cfg.Listeners, Listener{Name: "INTERNAL", Net: internal, InterBroker: true})
			cfg.Features = func() Features {
				return Features{FinalizedEpoch: 5, Supported: []kmsg.ApiVersionsResponseSupportedFeature{
					{Name: "from.zero", MinVersion: 0, MaxVersion: 1}, {Name: "from.one", MinVersion: 1, MaxVersion: 3}}}
			}
		})
		client := [][3]int16{{0, 3, 9}, {3, 0, 12}, {17, 0, 1}, {18, 0, 4}, {36, 0, 2}}
		broker := [][3]int16{{0, 3, 9}, {3, 0, 12}, {4, 0, 7}, {17, 0, 1}, {18, 0, 4}, {36, 0, 2}}
		for _, c := range []struct {
			addr string
			want [][3]int16
		}{{testAddr, client}, {"10.0.0.1:9093", broker}} {
			for version := range int16(5) {
				resp := askVersions(t, h.dialFrom("127.0.0.1", c.addr), apiVersionsFrame(version, "librdkafka", "2.3.0-rc.1"), version)
				var got [][3]int16
				for _, k := range resp.ApiKeys {
					got = append(got, [3]int16{k.ApiKey, k.MinVersion, k.MaxVersion})
				}
				if diff := cmp.Diff(c.want, got); diff != "" || resp.ErrorCode != 0 {
					t.Errorf("%s v%d: error %d, ranges (-want +got)\n%s", c.addr, version, resp.ErrorCode, diff)
				}
				if want := []int{0, 0, 0, 1, 2}[version]; len(resp.SupportedFeatures) != want {
					t.Errorf("v%d tells %d features, want %d", version, len(resp.SupportedFeatures), want)
				}
			}
		}
		h.end()
	})
}

// R17, KIP-511.
func TestAnUnsupportedApiVersionsVersionGetsVersionZeroWithError35(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		p := h.dial()
		for _, version := range []int16{5, 99, -1} {
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version = 3
			frame := AppendRequest(nil, req, 77, nil)
			binary.BigEndian.PutUint16(frame[6:], uint16(version))
			resp := askVersions(t, p, frame, 0)
			if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
				t.Errorf("v%d: answer is %+v", version, resp)
			}
		}
		// The connection lives on.
		if resp := askVersions(t, p, apiVersionsFrame(4, "a", "1"), 4); resp.ErrorCode != 0 {
			t.Errorf("error %d", resp.ErrorCode)
		}
		if lines := h.log.lines(); len(lines) != 0 {
			t.Errorf("log is %q", lines)
		}
		h.end()
	})
}

func TestIllegalSoftwareNamesAreInvalidRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		for name, legal := range map[string]bool{
			"a": true, "apache-kafka-java": true, "A.1": true, "": false, "-a": false, "a-": false, ".a": false, "a b": false, "a_b": false, "ä": false,
		} {
			want := int16(42)
			if legal {
				want = 0
			}
			p := h.dial()
			for version := int16(3); version <= 4; version++ {
				if got := askVersions(t, p, apiVersionsFrame(version, name, "1.0"), version).ErrorCode; got != want {
					t.Errorf("name %q v%d: error %d, want %d", name, version, got, want)
				}
				if got := askVersions(t, p, apiVersionsFrame(version, "x", name), version).ErrorCode; got != want {
					t.Errorf("software version %q v%d: error %d, want %d", name, version, got, want)
				}
			}
		}
		h.end()
	})
}

func TestServePanicsOnWhatCannotBeServed(t *testing.T) {
	for name, serve := range map[string]func(*APITable){
		"an unknown key":          func(t *APITable) { t.Serve(500, 0, 0, AllListeners) },
		"a key twice":             func(t *APITable) { t.Serve(18, 0, 3, AllListeners) },
		"a version kmsg lacks":    func(t *APITable) { t.Serve(3, 0, 99, AllListeners) },
		"an empty range":          func(t *APITable) { t.Serve(3, 5, 4, AllListeners) },
		"a negative version":      func(t *APITable) { t.Serve(3, -1, 4, AllListeners) },
		"a key once it is in use": func(t *APITable) { t.sealed.Store(true); t.Serve(3, 0, 1, AllListeners) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			serve(NewAPITable())
		})
	}
}
