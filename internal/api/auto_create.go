package api

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/metadata"
	"klamm/internal/quota"
	"klamm/internal/wire"
)

// AutoCreatedTopic tells which client made a topic exist by asking for its metadata.
type AutoCreatedTopic struct {
	Topic     string
	At        time.Time
	ClientID  string
	Remote    string // host of the client
	Principal string
}

const (
	// autoCreateWait is how long a Metadata answer waits for the leaders of the topics it made. Kafka does not wait and
	// answers LEADER_NOT_AVAILABLE, after which clients pause before they ask again; normally leaders are there in
	// milliseconds, so a first produce goes through without that pause.
	autoCreateWait = 250 * time.Millisecond
	// autoCreatedKept bounds the list of auto-created topics.
	autoCreatedKept = 1000
)

// autoTopicCreation creates topics that clients ask for (Kafka: AutoTopicCreationManager). As in Kafka's ZooKeeper mode
// the broker that was asked writes to the store itself. A topic that comes back after its deletion usually does so here,
// because a forgotten client still asks for it: each one is logged and remembered with the client.
type autoTopicCreation struct {
	log    *slog.Logger
	config *config.Dynamic
	cache  *metadata.Cache
	admin  *topicAdmin
	quotas *quota.Clients // charged and not refused: Kafka throttles nobody for a topic that it makes on its own

	mu       sync.Mutex
	inFlight map[string]bool
	created  []AutoCreatedTopic // oldest first, at most autoCreatedKept
	total    int64
	refused  map[string]*refusal // by topic, at most autoCreatedKept
}

// refusal is the log's memory of a topic that cannot be created.
type refusal struct {
	logged time.Time
	since  int // refusals that were not logged
}

// refusalInterval is the pause between two log lines about one topic that clients ask for and that cannot be created: they ask again and
// again, several times a second.
const refusalInterval = time.Minute

func newAutoTopicCreation(d Deps, admin *topicAdmin) *autoTopicCreation {
	return &autoTopicCreation{log: d.Log, config: d.Config, cache: d.Cache, admin: admin, quotas: d.Quotas, inFlight: map[string]bool{}, refused: map[string]*refusal{}}
}

// AutoCreated lists the topics that this broker created for clients, oldest first; only the last 1,000 are kept.
func (h *Handlers) AutoCreated() []AutoCreatedTopic {
	h.autoTopics.mu.Lock()
	defer h.autoTopics.mu.Unlock()
	return slices.Clone(h.autoTopics.created)
}

// AutoCreatedTotal counts the topics that this broker created for clients since it started.
func (h *Handlers) AutoCreatedTotal() int64 {
	h.autoTopics.mu.Lock()
	defer h.autoTopics.mu.Unlock()
	return h.autoTopics.total
}

// create creates the topics and calls done with one code per name, once their leaders are known or after a short wait:
// LEADER_NOT_AVAILABLE for topics that exist now, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION for topics that
// another request is creating, or what creation failed with.
func (a *autoTopicCreation) create(ctx context.Context, r *wire.Request, names []string, done func(map[string]cluster.ErrorCode)) {
	codes := make(map[string]cluster.ErrorCode, len(names))
	items := a.begin(names, codes)
	a.admin.create(ctx, items, false, charging(a.quotas.MutationQuota(clientOf(r), false)))
	for _, c := range items {
		switch {
		case !c.err.failed():
			a.note(r, c.req.Topic)
			codes[c.req.Topic] = cluster.LeaderNotAvailable
		case c.err.Code == cluster.TopicAlreadyExists, c.err.Code == cluster.RequestTimedOut:
			codes[c.req.Topic] = cluster.LeaderNotAvailable
		default:
			a.noteRefusal(r, c.req.Topic, c.err)
			codes[c.req.Topic] = c.err.Code
		}
	}
	a.end(items)
	a.admin.awaitLeaders(leaderWaits(items), autoCreateWait, func() { done(codes) })
}

// begin turns names into creations, leaving out illegal ones and those in flight.
func (a *autoTopicCreation) begin(names []string, codes map[string]cluster.ErrorCode) []*topicCreation {
	a.mu.Lock()
	defer a.mu.Unlock()
	var items []*topicCreation
	for _, name := range names {
		switch {
		case cluster.ValidateTopicName(name) != nil:
			codes[name] = cluster.InvalidTopicException
		case a.inFlight[name]:
			codes[name] = cluster.UnknownTopicOrPartition
		default:
			a.inFlight[name] = true
			items = append(items, &topicCreation{req: a.creatable(name)})
		}
	}
	return items
}

func (a *autoTopicCreation) end(items []*topicCreation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range items {
		delete(a.inFlight, c.req.Topic)
	}
}

func (a *autoTopicCreation) note(r *wire.Request, topic string) {
	t := AutoCreatedTopic{Topic: topic, At: time.Now(), ClientID: r.ClientID, Remote: r.Conn.RemoteHost(), Principal: r.Conn.Principal()}
	a.log.Info("topic auto-created", "topic", topic, "client", t.ClientID, "remote", t.Remote, "principal", t.Principal)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total++
	if len(a.created) == autoCreatedKept {
		a.created = slices.Delete(a.created, 0, 1)
	}
	a.created = append(a.created, t)
}

// noteRefusal logs that a topic could not be created for a client, once per topic and interval.
func (a *autoTopicCreation) noteRefusal(r *wire.Request, topic string, e answerError) {
	silent, due := a.refusalDue(topic, time.Now())
	if !due {
		return
	}
	attrs := []any{"topic", topic, "client", r.ClientID, "remote", r.Conn.RemoteHost(), "err", e.Code.String() + ": " + e.Message}
	if silent > 0 {
		attrs = append(attrs, "refused_before", silent)
	}
	b, live := a.config.Broker(), len(a.cache.Image().Brokers())
	key, want := "", int16(0)
	switch topic {
	case cluster.GroupOffsetsTopic:
		key, want = "offsets.topic.replication.factor", b.OffsetsTopicReplicationFactor
	case cluster.TransactionStateTopic:
		key, want = "transaction.state.log.replication.factor", b.TransactionStateLogReplicationFactor
	}
	if key == "" || int(want) <= live {
		a.log.Info("auto-creation refused", attrs...)
		return
	}
	a.log.Warn("the brokers' own topic cannot be created: start more brokers, or set a lower replication factor",
		append(attrs, "key", key, "value", want, "live_brokers", live)...)
}

// refusalDue reports whether a refusal is to be logged, and how many before it were not.
func (a *autoTopicCreation) refusalDue(topic string, now time.Time) (silent int, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.refused[topic]
	if last != nil && now.Sub(last.logged) < refusalInterval {
		last.since++
		return 0, false
	}
	if last != nil {
		silent = last.since
	} else if len(a.refused) >= autoCreatedKept {
		clear(a.refused) // their topics are logged once more
	}
	a.refused[topic] = &refusal{logged: now}
	return silent, true
}

// creatable gives what a topic is created with: the brokers' own topics have their partitions, replicas and configs.
func (a *autoTopicCreation) creatable(name string) kmsg.CreateTopicsRequestTopic {
	b := a.config.Broker()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(b.NumPartitions), b.DefaultReplicationFactor
	set := func(key, value string) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
	}
	switch name {
	case cluster.GroupOffsetsTopic:
		t.NumPartitions, t.ReplicationFactor = int32(b.OffsetsTopicNumPartitions), b.OffsetsTopicReplicationFactor
		set("cleanup.policy", "compact")
		set("compression.type", "producer")
		set("segment.bytes", strconv.Itoa(b.OffsetsTopicSegmentBytes))
	case cluster.TransactionStateTopic:
		t.NumPartitions, t.ReplicationFactor = int32(b.TransactionStateLogNumPartitions), b.TransactionStateLogReplicationFactor
		set("cleanup.policy", "compact")
		set("compression.type", "uncompressed")
		set("min.insync.replicas", strconv.Itoa(b.TransactionStateLogMinISR))
		set("segment.bytes", strconv.Itoa(b.TransactionStateLogSegmentBytes))
		set("unclean.leader.election.enable", "false")
	}
	return t
}
