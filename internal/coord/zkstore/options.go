package zkstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"klamm/internal/coord"
)

// Options says which ensemble to use and how. Connect is required.
type Options struct {
	// Connect is host:port[,host:port...][/chroot] (zookeeper.connect). A port may be left out: 2181. The chroot is created
	// where it is missing.
	Connect string
	// ExpectChroot makes Open fail where the chroot is missing instead of creating it.
	ExpectChroot bool
	// SessionTimeout is asked of the server, which may give another; 0 = 18 s.
	SessionTimeout time.Duration
	// ConnectionTimeout is how long Open waits for a first connection, and calls for one that was lost; 0 = SessionTimeout.
	ConnectionTimeout time.Duration
	// MaxInFlight bounds the requests that are not answered; large ones count for several. 0 = 1,024.
	MaxInFlight int
	// RequestBytesMax is the server's jute.maxbuffer; 0 = its default of one byte less than 1 MiB.
	RequestBytesMax int
	// ReplyBytesMax bounds what is read of the server; 0 = 4 MiB.
	ReplyBytesMax int
	// SetACL makes new nodes writable by their creator only (zookeeper.set.acl).
	SetACL bool
	// Digest logs in by SASL DIGEST-MD5; nil for none.
	Digest *Credentials
	// TLS encrypts, and shows the server a certificate when it has one; nil for plain TCP.
	TLS *tls.Config
	Log *slog.Logger
	// Stats counts connections and times requests; nil for nobody's use.
	Stats *Stats
	// Dial opens a TCP connection; nil for the system's.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Credentials are a user of ZooKeeper's.
type Credentials struct{ Username, Password string }

const (
	defaultPort     = "2181"
	requestBytesMax = 1<<20 - 1
	replyBytesMax   = 4 << 20
)

func (o Options) withDefaults() Options {
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 18 * time.Second
	}
	if o.ConnectionTimeout <= 0 {
		o.ConnectionTimeout = o.SessionTimeout
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 1024
	}
	if o.RequestBytesMax <= 0 {
		o.RequestBytesMax = requestBytesMax
	}
	if o.ReplyBytesMax <= 0 {
		o.ReplyBytesMax = replyBytesMax
	}
	if o.Stats == nil {
		o.Stats = &Stats{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return o
}

// ParseConnect reads a connect string. The chroot is "" when there is none.
func ParseConnect(s string) (hosts []string, chroot string, err error) {
	servers, path, _ := strings.Cut(strings.TrimSpace(s), "/")
	if path = strings.TrimSuffix(path, "/"); path != "" {
		chroot = "/" + path
		if !coord.ValidPath(chroot) {
			return nil, "", fmt.Errorf("chroot %q is not a path", chroot)
		}
	}
	for _, server := range strings.Split(servers, ",") {
		server = strings.TrimSpace(server)
		if server == "" {
			continue
		}
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = strings.Trim(server, "[]"), defaultPort
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return nil, "", fmt.Errorf("%q is not host:port", server)
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	if len(hosts) == 0 {
		return nil, "", errors.New("no server is named; want host:port[,host:port...][/chroot]")
	}
	return hosts, chroot, nil
}
