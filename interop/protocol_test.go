//go:build interop

package interop

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocol is one connection that speaks exact versions, without a client's own negotiation and retries.
type protocol struct {
	t           *testing.T
	conn        net.Conn
	formatter   *kmsg.RequestFormatter
	correlation int32
}

func speak(t *testing.T, addr string) *protocol {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &protocol{t: t, conn: c, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("interop"))}
}

// do sends the request at the version set in it and returns the decoded answer.
func (p *protocol) do(req kmsg.Request) kmsg.Response {
	p.t.Helper()
	resp, err := p.try(req)
	if err != nil {
		p.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func (p *protocol) try(req kmsg.Request) (kmsg.Response, error) {
	p.correlation++
	_ = p.conn.SetDeadline(time.Now().Add(30 * time.Second))
	frame := p.formatter.AppendRequest(nil, req, p.correlation)
	if req.Key() == 7 && req.GetVersion() == 0 {
		// ControlledShutdown v0 is older than client ids; the formatter writes one all the same.
		body := req.AppendTo(header(7, 0)[:8:8])
		binary.BigEndian.PutUint32(body[4:], uint32(p.correlation))
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	if _, err := p.conn.Write(frame); err != nil {
		return nil, err
	}
	body, err := p.answer()
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("the answer's header has tags: % x", body[:min(len(body), 8)])
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// topic is what the broker's metadata says of a topic.
func (p *protocol) topic(name string) kmsg.MetadataResponseTopic {
	p.t.Helper()
	return p.do(metadataRequest(12, name)).(*kmsg.MetadataResponse).Topics[0]
}

// answer reads one frame and returns it without the correlation id, which must be the last request's.
func (p *protocol) answer() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.conn, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p.conn, frame); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != p.correlation {
		return nil, fmt.Errorf("answer to correlation id %d, want %d", got, p.correlation)
	}
	return frame[4:], nil
}

// at sets a version and returns the message, for one-line calls.
func at[R interface{ SetVersion(int16) }](req R, version int16) R {
	req.SetVersion(version)
	return req
}

func createRequest(version int16, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := at(kmsg.NewPtrCreateTopicsRequest(), version)
	req.TimeoutMillis, req.Topics = 20_000, topics
	return req
}

func newTopic(name string, partitions int32, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func deleteRequest(version int16, names ...string) *kmsg.DeleteTopicsRequest {
	req := at(kmsg.NewPtrDeleteTopicsRequest(), version)
	req.TimeoutMillis, req.TopicNames = 20_000, names
	for _, n := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	return req
}

func metadataRequest(version int16, topics ...string) *kmsg.MetadataRequest {
	req := at(kmsg.NewPtrMetadataRequest(), version)
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	return req
}
