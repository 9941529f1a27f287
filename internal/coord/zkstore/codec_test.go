package zkstore

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
)

func TestConnectStringsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"a:2181":                   "a:2181 ",
		"a, b:2182 ,[::1]:3/kafka": "a:2181 b:2182 [::1]:3 /kafka",
		"a:1/x/y/":                 "a:1 /x/y",
		"a:1/":                     "a:1 ",
		"":                         "error",
		"/chroot":                  "error",
		"a:0":                      "error",
		"a:b":                      "error",
		"a:1/x//y":                 "error",
		":2181":                    "error",
	} {
		hosts, chroot, err := ParseConnect(text)
		got := strings.Join(append(hosts, chroot), " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// The example of RFC 2831, section 4.
func TestDigestAnswersAsTheRFCSays(t *testing.T) {
	g := &digest{user: Credentials{"chris", "secret"}, cnonce: "OA6MHXh6VqTrRk", realm: "elwood.innosoft.com", nonce: "OA6MG9tEQGm2hh"}
	if got := g.hash("AUTHENTICATE:imap/elwood.innosoft.com"); got != "d388dad90d4bbd760a152321f2143af7" {
		t.Errorf("the response is %s", got)
	}
	if got := g.hash(":imap/elwood.innosoft.com"); got != "ea40f60335c427b5527b84dbabcdfffd" {
		t.Errorf("the server's is %s", got)
	}
}

func TestNamesAreHashedInISO88591WhereItHasAllCharacters(t *testing.T) {
	for text, want := range map[string]string{"secret": "secret", "pässword": "p\xe4ssword", "ÿ": "\xff", "Ā": "Ā", "pässword→": "pässword→"} {
		if got := string(hashed(text)); got != want {
			t.Errorf("%q is hashed as %q, want %q", text, got, want)
		}
	}
}

func TestChallengesAreRead(t *testing.T) {
	c, err := parseChallenge(`realm="zk-sasl-md5",nonce="a\"b,c=", charset=utf-8,algorithm=md5-sess`)
	if err != nil || c["nonce"] != `a"b,c=` || c["realm"] != "zk-sasl-md5" || c["algorithm"] != "md5-sess" {
		t.Errorf("%v, %v", c, err)
	}
	for _, bad := range []string{"x", `a="open`, "=", "a"} {
		if c, err := parseChallenge(bad); err == nil && bad != "=" {
			t.Errorf("%q is read as %v", bad, c)
		}
	}
}

func TestACLsAreKafkas(t *testing.T) {
	secure, open := &Store{o: Options{SetACL: true}}, &Store{}
	for path, want := range map[string][]byte{
		"/brokers/topics/t":             creatorACL,
		"/config/users/u":               sensitiveACL,
		"/config/brokers/1":             sensitiveACL,
		"/delegation_token/tokens/x":    sensitiveACL,
		"/config/topics/t":              creatorACL,
		"/consumers":                    openACL,
		"/consumers/g":                  creatorACL,
		"/delegation_token":             creatorACL,
		"/kafka-acl/Topic/t":            creatorACL,
		"/config/changes/config_change": creatorACL,
	} {
		if !bytes.Equal(secure.acl(path), want) {
			t.Errorf("%s has another ACL", path)
		}
		if !bytes.Equal(open.acl(path), openACL) {
			t.Errorf("%s is not open without zookeeper.set.acl", path)
		}
	}
}

func FuzzDecoding(f *testing.F) {
	ok := appendStat(appendString(appendMultiHeader(nil, opCreate2, false), "/a"), coord.Stat{Version: 3})
	f.Add(appendMultiHeader(ok, opError, true))
	f.Add(appendInt(appendMultiHeader(nil, opError, false), codeBadVersion))
	f.Add(connectFrame(1, time.Second, 2, make([]byte, 16))[4:])
	f.Add(appendString(appendInt(appendInt(nil, eventDeleted), 3), "/x"))
	f.Add(appendInt(nil, 1<<30))
	f.Add([]byte(`realm="zk-sasl-md5",nonce="a\"b"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readFrame(bytes.NewReader(b), 1<<10)
		_, _, _ = readAnswer(bufio.NewReader(bytes.NewReader(b)), 16)
		_, _ = decodeConnected(b)
		_, _ = decodeEvent(&decoder{b: b})
		d := decoder{b: b}
		if names := d.strings(); len(names) > len(b)/4 {
			t.Errorf("%d strings in %d bytes", len(names), len(b))
		}
		d = decoder{b: b}
		results, err := d.multiResults(3, 1)
		if err == nil && len(results) != 3 {
			t.Errorf("%d results", len(results))
		}
		_, _ = parseChallenge(string(b))
		s := &Store{chroot: "/root"}
		_ = s.local(string(b))
	})
}

func TestMultiResultsAreRead(t *testing.T) {
	b := appendMultiHeader(nil, opCheck, false)
	b = appendStat(appendString(appendMultiHeader(b, opCreate2, false), "/a0000000001"), coord.Stat{Czxid: 7, Mzxid: 7, EphemeralOwner: 5})
	b = appendStat(appendMultiHeader(b, opSetData, false), coord.Stat{Czxid: 1, Mzxid: 7, Version: 9})
	b = appendMultiHeader(appendMultiHeader(b, opDelete, false), opError, true)
	d := decoder{b: b}
	got, err := d.multiResults(4, 1)
	if err != nil || got[1].path != "/a0000000001" || got[1].stat.EphemeralOwner != 5 || got[2].stat.Version != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range len(b) {
		d := decoder{b: b[:n]}
		if r, err := d.multiResults(4, 1); err == nil {
			t.Fatalf("%d of %d bytes are read as %+v", n, len(b), r)
		}
	}
}
