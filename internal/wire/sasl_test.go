package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire/wiretest"
)

// oneName is an exchange whose only token is the user's name; it asks for the name twice when it is "twice", and takes all
// names but "mallory".
type oneName struct{ asked bool }

func (e *oneName) Step(token []byte) ([]byte, *Identity, error) {
	name := string(token)
	switch {
	case name == "mallory":
		return nil, nil, errors.New("no entry for mallory")
	case name == "twice" && !e.asked:
		e.asked = true
		return []byte("again"), nil, nil
	}
	return []byte("welcome"), &Identity{Principal: "User:" + name}, nil
}

func testSASL() *SASL {
	return &SASL{Mechanisms: []string{"PLAIN", "OTHER"}, Begin: func(string) Exchange { return &oneName{} },
		ReauthMax: func(string) time.Duration { return time.Minute }, FailureDelay: 100 * time.Millisecond}
}

func withSASL(cfg *ServerConfig, _ *wiretest.Net) { cfg.Listeners[0].SASL = testSASL() }

func handshakeFrame(correlationID int32, mechanism string) []byte {
	return handshakeFrameAt(1, correlationID, mechanism)
}

func handshakeFrameAt(version int16, correlationID int32, mechanism string) []byte {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = version, mechanism
	return AppendRequest(nil, req, correlationID, &testClientID)
}

func authenticateFrame(correlationID int32, token string) []byte {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 2, []byte(token)
	return AppendRequest(nil, req, correlationID, &testClientID)
}

func rawFrame(token string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(token))), token...)
}

func (p *peer) handshake() *kmsg.SASLHandshakeResponse {
	p.t.Helper()
	resp := kmsg.NewPtrSASLHandshakeResponse()
	if err := resp.ReadFrom(p.receive()[4:]); err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func (p *peer) authentication() *kmsg.SASLAuthenticateResponse {
	p.t.Helper()
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	resp.Version = 2
	if err := resp.ReadFrom(p.receive()[5:]); err != nil { // one byte of tags ends the header
		p.t.Fatal(err)
	}
	return resp
}

func wantSASL(t *testing.T, what string, code int16, want cluster.ErrorCode) {
	t.Helper()
	if cluster.ErrorCode(code) != want {
		t.Errorf("%s: %v, want %v", what, cluster.ErrorCode(code), want)
	}
}

// R23: all four ways in end with the client known.
func TestClientsAuthenticateByRequestsAndByRawTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var who []string
		h := start(t, func(_ context.Context, r *Request) {
			who = append(who, r.Conn.Principal()+" "+r.Conn.SecurityProtocol())
			respondEmpty(r)
		}, withSASL)
		requests := h.dial()
		requests.send(handshakeFrame(1, "PLAIN"), authenticateFrame(2, "twice"), authenticateFrame(3, "alice"), metadataFrame(4))
		wantSASL(t, "handshake", requests.handshake().ErrorCode, cluster.None)
		if got := requests.authentication(); got.ErrorCode != 0 || string(got.SASLAuthBytes) != "again" {
			t.Errorf("challenge %+v", got)
		}
		if got := requests.authentication(); got.ErrorCode != 0 || string(got.SASLAuthBytes) != "welcome" || got.SessionLifetimeMillis != 60_000 {
			t.Errorf("answer %+v", got)
		}
		requests.correlations(1)
		raw := h.dial()
		raw.send(handshakeFrameAt(0, 1, "PLAIN"))
		wantSASL(t, "handshake v0", raw.handshake().ErrorCode, cluster.None)
		raw.send(rawFrame("twice"), rawFrame("bo"), metadataFrame(2))
		if a, b := string(raw.receive()), string(raw.receive()); a != "again" || b != "welcome" {
			t.Errorf("raw answers %q and %q", a, b)
		}
		raw.correlations(1)
		if want := "User:alice SASL_PLAINTEXT, User:bo SASL_PLAINTEXT"; strings.Join(who, ", ") != want {
			t.Errorf("requests came from %v, want %s", who, want)
		}
		h.end()
	})
}

// R23
func TestAnUnknownMechanismIsAnsweredWithTheOnesThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, withSASL)
		p := h.dial()
		p.send(handshakeFrame(1, "GSSAPI"))
		got := p.handshake()
		wantSASL(t, "handshake", got.ErrorCode, cluster.UnsupportedSASLMechanism)
		if strings.Join(got.SupportedMechanisms, " ") != "PLAIN OTHER" {
			t.Errorf("offered are %v", got.SupportedMechanisms)
		}
		p.expectClosed()
		h.end()
	})
}

// R23: a refusal has a message and comes, with the close, after the delay.
func TestARefusalIsToldAfterTheDelayAndEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, withSASL)
		p := h.dial()
		p.send(handshakeFrame(1, "PLAIN"))
		p.handshake()
		began := time.Now()
		p.send(authenticateFrame(2, "mallory"))
		got := p.authentication()
		wantSASL(t, "authentication", got.ErrorCode, cluster.SASLAuthenticationFailed)
		if got.ErrorMessage == nil || *got.ErrorMessage != "no entry for mallory" {
			t.Errorf("message %v", got.ErrorMessage)
		}
		p.expectClosed()
		if d := time.Since(began); d != 100*time.Millisecond {
			t.Errorf("closed after %v", d)
		}
		raw := h.dial()
		raw.send(handshakeFrameAt(0, 1, "PLAIN"))
		raw.handshake()
		raw.send(rawFrame("mallory"))
		raw.expectClosed()
		if n := h.srv.stats.AuthenticationFailed.Load(); n != 2 {
			t.Errorf("%d refusals counted", n)
		}
		h.end()
	})
}

// R23: ApiVersions works before authentication, everything else closes.
func TestBeforeAuthenticationOnlyVersionsMayBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(context.Context, *Request) { t.Error("a request got through") }, withSASL)
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.Version = 3
		versions.ClientSoftwareName, versions.ClientSoftwareVersion = "test", "1"
		p := h.dial()
		p.send(AppendRequest(nil, versions, 1, &testClientID))
		p.correlations(1)
		p.send(metadataFrame(2))
		p.expectClosed()
		for _, frames := range [][][]byte{
			{produceFrame(1, 1, nil)},
			{authenticateFrame(1, "alice")},
			{handshakeFrame(1, "PLAIN"), metadataFrame(2)},
			{handshakeFrame(1, "PLAIN"), AppendRequest(nil, versions, 2, &testClientID)},
			{handshakeFrame(1, "PLAIN"), handshakeFrame(2, "PLAIN")},
		} {
			p := h.dial()
			p.send(frames[:len(frames)-1]...)
			p.correlations(len(frames) - 1)
			p.send(frames[len(frames)-1])
			p.expectClosed()
		}
		h.end()
	})
}

// R23
func TestSASLWhereThereIsNoneIsAnIllegalState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		p := h.dial()
		p.send(handshakeFrame(1, "PLAIN"), authenticateFrame(2, "alice"), metadataFrame(3))
		wantSASL(t, "handshake", p.handshake().ErrorCode, cluster.IllegalSASLState)
		wantSASL(t, "authentication", p.authentication().ErrorCode, cluster.IllegalSASLState)
		p.correlations(1)
		h.end()
	})
}

// KIP-368
func TestASessionEndsUnlessTheClientAuthenticatesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, withSASL)
		login := func() *peer {
			p := h.dial()
			p.send(handshakeFrame(1, "PLAIN"), authenticateFrame(2, "alice"))
			p.correlations(2)
			return p
		}
		faithful, lazy, other, changed, hasty := login(), login(), login(), login(), login()
		hasty.send(handshakeFrame(3, "PLAIN"))
		hasty.correlations(1)
		time.Sleep(50 * time.Second)
		faithful.send(handshakeFrame(3, "PLAIN"), authenticateFrame(4, "alice"))
		faithful.correlations(2)
		other.send(handshakeFrame(3, "PLAIN"), authenticateFrame(4, "bob"))
		other.correlations(1)
		wantSASL(t, "another principal", other.authentication().ErrorCode, cluster.SASLAuthenticationFailed)
		other.expectClosed()
		changed.send(handshakeFrame(3, "OTHER"), authenticateFrame(4, "alice"))
		changed.correlations(1)
		wantSASL(t, "another mechanism", changed.authentication().ErrorCode, cluster.SASLAuthenticationFailed)
		changed.expectClosed()
		time.Sleep(20 * time.Second)
		faithful.send(metadataFrame(5))
		faithful.correlations(1)
		faithful.send(handshakeFrame(6, "PLAIN"), handshakeFrame(7, "PLAIN"))
		wantSASL(t, "handshake", faithful.handshake().ErrorCode, cluster.None)
		wantSASL(t, "another in the same second", faithful.handshake().ErrorCode, cluster.IllegalSASLState)
		lazy.send(metadataFrame(3))
		lazy.expectClosed()
		h.end()
	})
}

func TestTheClientOfBrokersLogsInAndAgainInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, withSASL)
		logins := 0
		login := func(name string) func(func(kmsg.Request) (kmsg.Response, error)) (time.Duration, error) {
			return func(roundTrip func(kmsg.Request) (kmsg.Response, error)) (time.Duration, error) {
				logins++
				shake := kmsg.NewPtrSASLHandshakeRequest()
				shake.Version, shake.Mechanism = 1, "PLAIN"
				if _, err := roundTrip(shake); err != nil {
					return 0, err
				}
				auth := kmsg.NewPtrSASLAuthenticateRequest()
				auth.Version, auth.SASLAuthBytes = 1, []byte(name)
				resp, err := roundTrip(auth)
				if err != nil {
					return 0, err
				}
				if r := resp.(*kmsg.SASLAuthenticateResponse); r.ErrorCode != 0 {
					return 0, errors.New(*r.ErrorMessage)
				}
				return time.Duration(resp.(*kmsg.SASLAuthenticateResponse).SessionLifetimeMillis) * time.Millisecond, nil
			}
		}
		cfg := ClientConfig{Dial: h.net.Dial, ClientID: "1", Login: login("broker")}
		c, err := Dial(t.Context(), testAddr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 12
			if _, err := c.Request(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
		}
		if logins != 3 { // at 0, 60 and 120 s: 85 % of a minute have passed then
			t.Errorf("%d logins", logins)
		}
		_ = c.Close()
		cfg.Login = login("mallory")
		if _, err := Dial(t.Context(), testAddr, cfg); err == nil || !strings.Contains(err.Error(), "no entry for mallory") {
			t.Errorf("dial ended with %v", err)
		}
		h.end()
	})
}
