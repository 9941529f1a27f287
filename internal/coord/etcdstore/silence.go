package etcdstore

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// peerSilence is after which time without a sign of the other side a stream between members is given up, by its reader and by its writer. On
// a link that was cut TCP tries again after 0.2, 0.4, 0.8 ... seconds, so that a stream which is kept stays dumb for as long again after
// the link is back; members that reach each other could not elect a leader meanwhile. Members at etcd's default show a sign of
// life every 5/3 s.
const peerSilence = 2 * time.Second

func init() {
	rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout = peerSilence, peerSilence // a third of it is the pause between signs of life
}

// boundStreams makes the readers of a server that was not started yet give up streams that are silent. etcd means to do so, but in
// 3.7 transport.NewTimeoutTransport puts its bound into http.Transport.Dial, beside a DialContext that net/http prefers. There is no
// setting: the fields are found by their names, which a test watches over. Streams that were dialled already are dialled again.
func boundStreams(s *etcdserver.EtcdServer) error {
	t, err := raftTransport(s)
	if err != nil {
		return err
	}
	field := reflect.ValueOf(t).Elem().FieldByName("streamRt")
	if !field.IsValid() || field.Type() != reflect.TypeFor[http.RoundTripper]() {
		return fmt.Errorf("this version of etcd keeps the transport of its streams elsewhere: %v", field)
	}
	streams, ok := (*(*http.RoundTripper)(unsafe.Pointer(field.UnsafeAddr()))).(*http.Transport) // #nosec G103: a field of that type, see above
	if !ok {
		return fmt.Errorf("this version of etcd has another transport for its streams: %v", field)
	}
	bounded, err := transport.NewTimeoutTransport(t.TLSInfo, t.DialTimeout, peerSilence, peerSilence)
	if err != nil {
		return err
	}
	bounded.DialContext = nil // what is left is Dial, with the bound
	for _, scheme := range []string{"http", "https"} {
		streams.RegisterProtocol(scheme, bounded)
	}
	t.RemoveAllPeers()
	for _, m := range s.Cluster().Members() {
		if m.ID != s.MemberID() {
			t.AddPeer(m.ID, m.PeerURLs)
		}
	}
	return nil
}

// raftTransport is what the server talks to its peers with.
func raftTransport(s *etcdserver.EtcdServer) (*rafthttp.Transport, error) {
	field := reflect.ValueOf(s).Elem().FieldByName("r")
	if field.IsValid() && field.Kind() == reflect.Struct {
		field = field.FieldByName("transport")
	}
	if !field.IsValid() || field.Type() != reflect.TypeFor[rafthttp.Transporter]() {
		return nil, fmt.Errorf("this version of etcd keeps its transport elsewhere: %v", field)
	}
	t, ok := (*(*rafthttp.Transporter)(unsafe.Pointer(field.UnsafeAddr()))).(*rafthttp.Transport) // #nosec G103: a field of that type, see above
	if !ok {
		return nil, fmt.Errorf("this version of etcd has another transport: %v", field)
	}
	return t, nil
}

// giveUpSilent has an accepted connection end when what was sent on it is not acknowledged in time: streams are written by the side that
// accepted them. A connection that cannot be told so is given up by TCP's own retries, after many minutes.
func giveUpSilent(c net.Conn, after time.Duration) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = setUserTimeout(int(fd), after) }) // a multipath connection does not know the option
}
