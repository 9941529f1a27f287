package scram

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// RFC 7677 section 3 has this exchange of user "user" with password "pencil".
func TestProofsAreThoseOfTheRFC(t *testing.T) {
	salt, _ := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	credential := SHA256.FromSalted(SHA256.Salted("pencil", salt, 4096), salt, 4096)
	s := SHA256.NewServer(func(string, bool) (Credential, bool) { return credential, true }, nil)
	if _, _, err := s.Step([]byte("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")); err != nil {
		t.Fatal(err)
	}
	s.nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	s.serverFirst = "r=" + s.nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	got, done, err := s.Step([]byte("c=biws,r=" + s.nonce + ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="))
	if want := "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="; string(got) != want || !done || err != nil {
		t.Errorf("server's signature %q, done %v, err %v; want %q", got, done, err, want)
	}
}

// talk runs a whole exchange and gives what each side thinks of it.
func talk(s *Server, c *Client) (serverErr, clientErr error) {
	var answer []byte
	for {
		message, done, err := c.Step(answer)
		if err != nil || done {
			return nil, err
		}
		if answer, _, err = s.Step(message); err != nil {
			return err, nil
		}
	}
}

func TestBothSidesAgreeOnAGoodPasswordOnly(t *testing.T) {
	for _, m := range Mechanisms() {
		credential := m.NewCredential("pässword, =3D", 4096)
		lookup := func(user string, token bool) (Credential, bool) { return credential, user == "a,b=c" && !token }
		if serverErr, clientErr := talk(m.NewServer(lookup, nil), m.NewClient("a,b=c", "pässword, =3D")); serverErr != nil || clientErr != nil {
			t.Errorf("%s: server %v, client %v", m.Name, serverErr, clientErr)
		}
		if serverErr, _ := talk(m.NewServer(lookup, nil), m.NewClient("a,b=c", "other")); !errors.Is(serverErr, ErrRefused) {
			t.Errorf("%s, wrong password: %v", m.Name, serverErr)
		}
		if serverErr, _ := talk(m.NewServer(lookup, nil), m.NewClient("nobody", "pässword, =3D")); !errors.Is(serverErr, ErrRefused) {
			t.Errorf("%s, unknown user: %v", m.Name, serverErr)
		}
	}
}

// CVE-2021-38153 and its like: a stranger must not learn which users there are.
func TestAnUnknownUserGetsTheSameSaltEachTime(t *testing.T) {
	ask := func(user string) string {
		s := SHA256.NewServer(func(string, bool) (Credential, bool) { return Credential{}, false }, []byte("pepper"))
		answer, _, err := s.Step([]byte("n,,n=" + user + ",r=abc"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(answer), ",")
		return rest
	}
	first, again, other := ask("x"), ask("x"), ask("y")
	if first != again || first == other || !strings.HasSuffix(first, ",i=4096") {
		t.Errorf("answers for x %q and %q, for y %q", first, again, other)
	}
}

func TestExtensionsMarkTokens(t *testing.T) {
	s := SHA256.NewServer(func(_ string, token bool) (Credential, bool) { return Credential{}, token }, nil)
	if _, _, err := s.Step([]byte("n,,n=id,r=abc,other=1,tokenauth=true")); err != nil {
		t.Fatal(err)
	}
	if user, token := s.User(); user != "id" || !token || !s.known {
		t.Errorf("user %q, token %v, known %v", user, token, s.known)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	credential := SHA256.NewCredential("p", 4096)
	for fact, message := range map[string]string{
		"empty":                      "",
		"channel binding":            "p=tls-unique,,n=user,r=abc",
		"someone else's identity":    "n,a=admin,n=user,r=abc", // CVE-2017-12610
		"no name":                    "n,,n=,r=abc",
		"no nonce":                   "n,,n=user,r=",
		"name not escaped":           "n,,n=us=er,r=abc",
		"an extension of the future": "n,,m=x,n=user,r=abc",
	} {
		s := SHA256.NewServer(func(string, bool) (Credential, bool) { return credential, true }, nil)
		if _, done, err := s.Step([]byte(message)); err == nil || done {
			t.Errorf("first message, %s: accepted", fact)
		}
	}
	proof := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for fact, message := range map[string]string{
		"empty":                 "",
		"another nonce":         "c=biws,r=abcNONCEx,p=" + proof, // CVE-2024-56128
		"another binding":       "c=eSws,r=abcNONCE,p=" + proof,
		"a short proof":         "c=biws,r=abcNONCE,p=AAAA",
		"no proof":              "c=biws,r=abcNONCE",
		"a proof of nothing":    "c=biws,r=abcNONCE,p=" + proof,
		"an attribute too many": "x,c=biws,r=abcNONCE,p=" + proof,
	} {
		s := SHA256.NewServer(func(string, bool) (Credential, bool) { return credential, true }, nil)
		if _, _, err := s.Step([]byte("n,a=user,n=user,r=abc")); err != nil {
			t.Fatal(err)
		}
		s.nonce, s.gs2 = "abcNONCE", "n,,"
		if _, done, err := s.Step([]byte(message)); err == nil || done {
			t.Errorf("final message, %s: accepted", fact)
		}
	}
}

func TestTheClientRefusesAServerThatDoesNotKnowThePassword(t *testing.T) {
	c := SHA256.NewClient("user", "p")
	first, _, _ := c.Step(nil)
	nonce := string(first)[strings.Index(string(first), "r=")+2:]
	if _, _, err := c.Step([]byte("r=other,s=AAAA,i=4096")); err == nil {
		t.Error("a nonce that does not continue ours passes")
	}
	c.step = 1
	if _, _, err := c.Step([]byte("r=" + nonce + "x,s=AAAA,i=1")); err == nil {
		t.Error("one iteration passes")
	}
	c.step = 1
	if _, _, err := c.Step([]byte("r=" + nonce + "x,s=AAAA,i=4096")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Step([]byte("v=" + base64.StdEncoding.EncodeToString(make([]byte, 32)))); err == nil {
		t.Error("a wrong signature passes")
	}
}

func TestCredentialsAreTextAsKafkaWritesThem(t *testing.T) {
	c := SHA512.NewCredential("p", 8192)
	got, err := SHA512.ParseCredential(c.String())
	if err != nil || got.String() != c.String() || !strings.HasSuffix(c.String(), ",iterations=8192") || !strings.HasPrefix(c.String(), "salt=") {
		t.Errorf("%q becomes %q, %v", c, got, err)
	}
	for _, bad := range []string{"", "salt=AA==", strings.Replace(c.String(), "8192", "5", 1), strings.Replace(c.String(), "stored_key=", "x=", 1)} {
		if _, err := SHA512.ParseCredential(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
	if _, err := SHA256.ParseCredential(c.String()); err == nil {
		t.Error("keys of the other hash pass")
	}
}

func FuzzServerMessages(f *testing.F) {
	f.Add("n,,n=user,r=abc", "c=biws,r=abc,p=AAAA")
	credential := SHA256.NewCredential("p", 4096)
	f.Fuzz(func(t *testing.T, first, final string) {
		s := SHA256.NewServer(func(string, bool) (Credential, bool) { return credential, true }, nil)
		if _, done, _ := s.Step([]byte(first)); done {
			t.Fatal("done after one message")
		}
		if _, done, _ := s.Step([]byte(final)); done {
			t.Fatal("done without a password")
		}
	})
}
