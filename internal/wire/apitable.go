package wire

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

const (
	keyProduce            = 0
	keyFetch              = 1
	keyStopReplica        = 5
	keyControlledShutdown = 7
	keyAPIVersions        = 18

	apiVersionsMax = 4
)

// Scope says on which listeners an API is served.
type Scope uint8

// The scopes. The APIs between brokers (keys 4-7 and their like) are kept off client listeners when brokers have
// a listener of their own (CVE-2018-1288).
const (
	AllListeners    Scope = iota
	InterBrokerOnly       // only on listeners marked InterBroker
)

// API is one row of the table: versions Min to Max of a key are served.
type API struct {
	Key, Min, Max int16
	Scope         Scope
}

// Features is what ApiVersions v3+ tells beside the version ranges (KIP-584).
type Features struct {
	Supported        []kmsg.ApiVersionsResponseSupportedFeature
	FinalizedEpoch   int64 // -1 when unknown
	Finalized        []kmsg.ApiVersionsResponseFinalizedFeature
	ZkMigrationReady bool
}

// APITable is the one place that says what is served: ApiVersions answers are made from it and requests are
// admitted by it, so what is advertised and what works cannot differ. It is filled before the server starts and
// only read afterwards.
type APITable struct {
	served [kmsg.MaxKey + 1]bool
	apis   [kmsg.MaxKey + 1]API
	sealed atomic.Bool
}

// NewAPITable returns a table that serves ApiVersions, SaslHandshake and SaslAuthenticate, which the server answers itself.
func NewAPITable() *APITable {
	t := &APITable{}
	t.Serve(keyAPIVersions, 0, apiVersionsMax, AllListeners)
	t.Serve(keySASLHandshake, 0, 1, AllListeners)
	t.Serve(keySASLAuthenticate, 0, 2, AllListeners)
	return t
}

// Serve adds a key. It panics on a key that is already there, on versions the codec does not know and once the
// server has started: these are faults of the program.
func (t *APITable) Serve(key, minVersion, maxVersion int16, scope Scope) {
	req := kmsg.RequestForKey(key)
	switch {
	case t.sealed.Load():
		panic(fmt.Sprintf("wire: api key %d added to a table in use", key))
	case req == nil:
		panic(fmt.Sprintf("wire: api key %d is unknown", key))
	case t.served[key]:
		panic(fmt.Sprintf("wire: api key %d is served twice", key))
	case minVersion < 0 || minVersion > maxVersion || maxVersion > req.MaxVersion():
		panic(fmt.Sprintf("wire: api key %d cannot be served at versions %d to %d", key, minVersion, maxVersion))
	}
	t.served[key] = true
	t.apis[key] = API{Key: key, Min: minVersion, Max: maxVersion, Scope: scope}
}

// Range returns the versions of a key that are served, on inter-broker listeners or on the others.
func (t *APITable) Range(key int16, interBroker bool) (minVersion, maxVersion int16, ok bool) {
	if key < 0 || key > kmsg.MaxKey || !t.served[key] || t.apis[key].Scope == InterBrokerOnly && !interBroker {
		return 0, 0, false
	}
	return t.apis[key].Min, t.apis[key].Max, true
}

// APIs lists what is served, by key.
func (t *APITable) APIs(interBroker bool) []API {
	var out []API
	for key := range t.apis {
		if _, _, ok := t.Range(int16(key), interBroker); ok {
			out = append(out, t.apis[key])
		}
	}
	return out
}

// apiVersions answers an ApiVersions request of a supported version (Kafka: ApiVersionsResponse.java).
func (t *APITable) apiVersions(req *kmsg.ApiVersionsRequest, interBroker bool, features Features) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if req.Version >= 3 && (!validSoftware(req.ClientSoftwareName) || !validSoftware(req.ClientSoftwareVersion)) {
		resp.ErrorCode = int16(cluster.InvalidRequest)
		return resp
	}
	for _, a := range t.APIs(interBroker) {
		resp.ApiKeys = append(resp.ApiKeys, apiVersionsKey(a))
	}
	if req.Version < 3 {
		return resp
	}
	for _, f := range features.Supported {
		// Clients before v4 fail on a feature that starts at level 0, so these are kept from them (KAFKA-17011).
		if req.Version >= 4 || f.MinVersion > 0 {
			resp.SupportedFeatures = append(resp.SupportedFeatures, f)
		}
	}
	resp.FinalizedFeaturesEpoch = features.FinalizedEpoch
	resp.FinalizedFeatures = features.Finalized
	resp.ZkMigrationReady = features.ZkMigrationReady
	return resp
}

// apiVersionsUnsupported is the answer to an ApiVersions request of a version that is not served: version 0 with
// the range that is (KIP-511), so that any client can ask again.
func (t *APITable) apiVersionsUnsupported() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = int16(cluster.UnsupportedVersion)
	resp.ApiKeys = append(resp.ApiKeys, apiVersionsKey(t.apis[keyAPIVersions]))
	return resp
}

func apiVersionsKey(a API) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.Min, a.Max
	return k
}

// validSoftware reports whether a client software name or version is legal: letters and digits, with dots and
// dashes between them (Kafka: ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN).
func validSoftware(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inner := i > 0 && i < len(s)-1
		if !alnum && !(inner && (c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

// kafkaSpelling turns the initialisms of kmsg's names into Kafka's words.
var kafkaSpelling = strings.NewReplacer("AlterPartitionAssignments", "AlterPartitionReassignments", "ISR", "Isr", "IDs", "Ids", "ID", "Id", "SASL", "Sasl", "ACLs", "Acls", "SCRAM", "Scram")

// APIName is Kafka's name of an API, as its metrics and logs have it, or the key's number.
func APIName(key int16) string {
	if key < 0 || key > kmsg.MaxKey {
		return strconv.Itoa(int(key))
	}
	return kafkaSpelling.Replace(kmsg.NameForKey(key))
}
