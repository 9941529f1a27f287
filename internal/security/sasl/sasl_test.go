package sasl

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/security/scram"
	"klamm/internal/wire"
	"klamm/internal/wire/wiretest"
)

func plain(token string) (string, error) {
	e := &plainExchange{passwords: map[string]string{"alice": "secret"}}
	_, who, err := e.Step([]byte(token))
	if err != nil {
		return "", err
	}
	return who.Principal, nil
}

func TestPlainTokens(t *testing.T) {
	for _, tt := range []struct{ fact, token, want string }{
		{"name and password", "\x00alice\x00secret", "User:alice"},
		{"an authorization id that is the name", "alice\x00alice\x00secret", "User:alice"},
		{"someone else's identity", "bob\x00alice\x00secret", ""}, // CVE-2017-12610
		{"a wrong password", "\x00alice\x00secre", ""},
		{"an unknown user", "\x00bob\x00secret", ""},
		{"an unknown user with the empty password", "\x00bob\x00", ""},
		{"too many parts", "\x00alice\x00secret\x00", ""},
		{"nothing", "", ""},
		{"no UTF-8", "\x00alice\x00\xff", ""},
	} {
		got, err := plain(tt.token)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v", tt.fact, got, err)
		}
	}
	_, wrong := plain("\x00alice\x00x")
	_, unknown := plain("\x00bob\x00x")
	if wrong.Error() != unknown.Error() {
		t.Errorf("a wrong password is told as %q, an unknown user as %q", wrong, unknown)
	}
}

// A broker's client logs in to a broker's listener with each mechanism, and cannot with a wrong password.
func TestBrokersLogInWithEveryMechanism(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := wiretest.NewNet()
		ln, err := network.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		credentials := map[*scram.Mechanism]scram.Credential{}
		for _, m := range scram.Mechanisms() {
			credentials[m] = m.NewCredential("secret", 4096)
		}
		var who []string
		server, err := wire.NewServer(wire.ServerConfig{
			Listeners: []wire.Listener{{Name: "L", Net: ln, SASL: NewServer(Options{
				Mechanisms: []string{Plain, scram.SHA256.Name, scram.SHA512.Name}, Passwords: map[string]string{"alice": "secret"},
				Users: func(m *scram.Mechanism, user string) (scram.Credential, bool) { return credentials[m], user == "alice" },
			})}},
			API: func() *wire.APITable {
				table := wire.NewAPITable()
				table.Serve(3, 0, 12, wire.AllListeners)
				return table
			}(),
			Log: slog.New(slog.DiscardHandler),
			Handler: wire.HandlerFunc(func(_ context.Context, r *wire.Request) {
				who = append(who, r.Conn.Principal())
				r.Respond(r.Msg.ResponseKind(), 0)
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- server.Run(ctx) }()
		for _, mechanism := range []string{Plain, scram.SHA256.Name, scram.SHA512.Name} {
			c, err := wire.Dial(ctx, "b:1", wire.ClientConfig{Dial: network.Dial, Login: Login(mechanism, "alice", "secret")})
			if err != nil {
				t.Fatalf("%s: %v", mechanism, err)
			}
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 12
			if _, err := c.Request(ctx, req); err != nil {
				t.Errorf("%s: %v", mechanism, err)
			}
			_ = c.Close()
			for _, user := range []string{"alice", "bob"} {
				if _, err := wire.Dial(ctx, "b:1", wire.ClientConfig{Dial: network.Dial, Login: Login(mechanism, user, "wrong")}); err == nil ||
					!strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") {
					t.Errorf("%s, wrong password of %s: %v", mechanism, user, err)
				}
			}
		}
		if got := strings.Join(who, " "); got != "User:alice User:alice User:alice" {
			t.Errorf("requests came from %s", got)
		}
		stop()
		<-ended
	})
}

func TestATokenAuthenticatesItsOwnerUntilItExpires(t *testing.T) {
	credential := scram.SHA256.NewCredential("hmac", 4096)
	for expires, want := range map[time.Duration]string{time.Hour: "User:owner", -time.Second: ""} {
		at := time.Now().Add(expires)
		e := newScramExchange(scram.SHA256, &Options{
			Users: func(*scram.Mechanism, string) (scram.Credential, bool) { return credential, true },
			Tokens: func(_ *scram.Mechanism, id string) (Token, bool) {
				return Token{Owner: "User:owner", Credential: credential, Expires: at}, id == "token-id"
			}}, nil)
		c := scram.SHA256.NewClient("token-id", "hmac")
		c.Token = true
		var answer []byte
		var who *wire.Identity
		for range 2 {
			message, _, err := c.Step(answer)
			if err != nil {
				t.Fatal(err)
			}
			if answer, who, err = e.Step(message); err != nil && want != "" {
				t.Fatal(err)
			}
		}
		got := ""
		if who != nil {
			got = who.Principal
			if !who.Token || !who.Expires.Equal(at) {
				t.Errorf("identity is %+v", who)
			}
		}
		if got != want {
			t.Errorf("a token that expires in %v authenticates %q", expires, got)
		}
	}
}
