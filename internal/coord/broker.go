package coord

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"klamm/internal/cluster"
)

// brokerVersion is what brokers at 2.7-IV0 and later write.
const brokerVersion = 5

// VersionRange is a range of versions of a feature, both ends included.
type VersionRange = cluster.VersionRange

// BrokerNode is what a broker's registration holds. Endpoints are the advertised listeners.
type BrokerNode struct {
	Version     int32 // of the layout, 1 to 5; 0 writes 5
	Endpoints   []cluster.Endpoint
	Rack        string // empty = none
	JMXPort     int32  // -1 when off
	TimestampMs int64
	Features    map[string]VersionRange
	Klamm       *KlammRegistration // nil in a registration of Kafka's
}

// Broker gives the registration as the rest of klamm sees it. Its layout tells on which side of inter.broker.protocol.version 2.7 the
// broker is, also while that is being rolled and differs between brokers.
func (n BrokerNode) Broker(id cluster.BrokerID, epoch cluster.BrokerEpoch) cluster.Broker {
	return cluster.Broker{ID: id, Epoch: epoch, Endpoints: n.Endpoints, Rack: n.Rack, Features: n.Features, Klamm: n.Klamm != nil,
		WritesISR: n.Version != 0 && n.Version < brokerVersion}
}

// plaintext returns host and port of the first endpoint that speaks PLAINTEXT, which readers of version 1 look at.
func (n BrokerNode) plaintext() (host string, port int32, ok bool) {
	for _, e := range n.Endpoints {
		if e.SecurityProtocol == "PLAINTEXT" {
			return e.Host, e.Port, true
		}
	}
	return "", -1, false
}

// EncodeBroker writes a registration (Kafka: BrokerIdZNode.encode).
func EncodeBroker(n BrokerNode) []byte {
	version := n.Version
	if version == 0 {
		version = brokerVersion
	}
	b := make([]byte, 0, 256)
	b = append(b, '{')
	if version >= 5 {
		b = appendFeatureRanges(appendKey(b, "features"), n.Features, "min_version", "max_version")
	}
	if version >= 4 {
		b = appendListenerMap(appendKey(b, "listener_security_protocol_map"), n.Endpoints)
	}
	if version >= 2 {
		b = append(appendKey(b, "endpoints"), '[')
		for i, e := range n.Endpoints {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, formatEndpoint(e))
		}
		b = append(b, ']')
	}
	if version >= 3 && n.Rack != "" {
		b = appendString(appendKey(b, "rack"), n.Rack)
	}
	host, port, ok := n.plaintext()
	b = appendInt(appendKey(b, "jmx_port"), n.JMXPort)
	b = appendInt(appendKey(b, "port"), port)
	if b = appendKey(b, "host"); ok {
		b = appendString(b, host)
	} else {
		b = append(b, "null"...)
	}
	b = appendInt(appendKey(b, "version"), version)
	b = appendString(appendKey(b, "timestamp"), strconv.FormatInt(n.TimestampMs, 10))
	if n.Klamm != nil {
		b = appendInt(append(appendKey(b, "klamm"), `{"version":`...), n.Klamm.Version)
		b = append(appendString(append(b, `,"web":`...), n.Klamm.Web), '}')
	}
	return append(b, '}')
}

func appendListenerMap(b []byte, endpoints []cluster.Endpoint) []byte {
	protocols := make(map[string]string, len(endpoints))
	var names []string
	for _, e := range endpoints {
		if _, seen := protocols[e.Listener]; !seen {
			names = append(names, e.Listener)
		}
		protocols[e.Listener] = e.SecurityProtocol
	}
	b = append(b, '{')
	for _, name := range scalaTrieOrder(names) {
		b = appendString(appendKey(b, name), protocols[name])
	}
	return append(b, '}')
}

type brokerJSON struct {
	Version   *int32            `json:"version"`
	Host      *string           `json:"host"`
	Port      *int32            `json:"port"`
	Endpoints []string          `json:"endpoints"`
	Protocols map[string]string `json:"listener_security_protocol_map"`
	Rack      string            `json:"rack"`
	JMXPort   *int32            `json:"jmx_port"`
	Timestamp looseInt          `json:"timestamp"`
	Features  map[string]struct {
		Min int16 `json:"min_version"`
		Max int16 `json:"max_version"`
	} `json:"features"`
	Klamm *struct {
		Version int32  `json:"version"`
		Web     string `json:"web"`
	} `json:"klamm"`
}

// DecodeBroker reads a registration of version 1 or later.
func DecodeBroker(data []byte) (BrokerNode, error) {
	var j brokerJSON
	if err := decodeJSON("broker registration", data, &j); err != nil {
		return BrokerNode{}, err
	}
	if j.Version == nil || *j.Version < 1 {
		return BrokerNode{}, fmt.Errorf("decode broker registration: unsupported version in %q", data)
	}
	if j.JMXPort == nil {
		return BrokerNode{}, fmt.Errorf("decode broker registration: jmx_port is missing in %q", data)
	}
	n := BrokerNode{Version: *j.Version, Rack: j.Rack, JMXPort: *j.JMXPort, TimestampMs: int64(j.Timestamp)}
	if j.Klamm != nil {
		n.Klamm = &KlammRegistration{Version: j.Klamm.Version, Web: j.Klamm.Web}
	}
	if len(j.Features) > 0 {
		n.Features = make(map[string]VersionRange, len(j.Features))
		for name, f := range j.Features {
			n.Features[name] = VersionRange{Min: f.Min, Max: f.Max}
		}
	}
	if n.Version == 1 {
		if j.Host == nil || j.Port == nil {
			return BrokerNode{}, fmt.Errorf("decode broker registration: host or port is missing in %q", data)
		}
		n.Endpoints = []cluster.Endpoint{{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: *j.Host, Port: *j.Port}}
		return n, nil
	}
	for _, s := range j.Endpoints {
		e, err := parseEndpoint(s, j.Protocols)
		if err != nil {
			return BrokerNode{}, fmt.Errorf("decode broker registration: %w", err)
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	return n, nil
}

func formatEndpoint(e cluster.Endpoint) string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return e.Listener + "://" + host + ":" + strconv.Itoa(int(e.Port))
}

// endpointPattern is Kafka's own (EndPoint.scala).
var endpointPattern = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)

func parseEndpoint(s string, protocols map[string]string) (cluster.Endpoint, error) {
	m := endpointPattern.FindStringSubmatch(s)
	if m == nil {
		return cluster.Endpoint{}, fmt.Errorf("%q is not an endpoint", s)
	}
	port, err := strconv.ParseInt(m[3], 10, 32)
	if err != nil {
		return cluster.Endpoint{}, fmt.Errorf("%q is not an endpoint: %w", s, err)
	}
	listener := strings.ToUpper(m[1])
	protocol, mapped := protocols[listener]
	if !mapped {
		if protocols != nil {
			return cluster.Endpoint{}, fmt.Errorf("no security protocol for listener %s", listener)
		}
		protocol = listener // versions 2 and 3: the listener's name is its protocol
	}
	return cluster.Endpoint{Listener: listener, SecurityProtocol: protocol, Host: m[2], Port: int32(port)}, nil
}

// appendFeatureRanges writes {name: {min: n, max: n}}; an empty min key leaves the lower end out.
func appendFeatureRanges(b []byte, features map[string]VersionRange, minKey, maxKey string) []byte {
	b = append(b, '{')
	for _, name := range sortedKeys(features) {
		b = append(appendKey(b, name), '{')
		if minKey != "" {
			b = appendInt(appendKey(b, minKey), int32(features[name].Min))
		}
		b = appendInt(appendKey(b, maxKey), int32(features[name].Max))
		b = append(b, '}')
	}
	return append(b, '}')
}
