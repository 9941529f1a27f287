package admin

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka's defaults of request.timeout.ms and default.api.timeout.ms.
const (
	defaultRequestTimeoutMs = 30_000
	defaultAPITimeoutMs     = 60_000
)

// connect makes the client that the options and the file of --command-config describe, and says how long a command may take. It
// does not wait for a connection. unreachable is called once, when the first attempt to connect fails.
func connect(o *topicsOptions, unreachable func(addr string, err error)) (*kgo.Client, time.Duration, error) {
	props, err := o.commandConfig()
	if err != nil {
		return nil, 0, err
	}
	security, dial, err := connection(props, unreachable)
	if err != nil {
		return nil, 0, err
	}
	requestMs, err1 := millis(props, "request.timeout.ms", defaultRequestTimeoutMs)
	apiMs, err2 := millis(props, "default.api.timeout.ms", defaultAPITimeoutMs)
	if err := errors.Join(err1, err2); err != nil {
		return nil, 0, err
	}
	seeds, err := seedBrokers(o.value("bootstrap-server"))
	if err != nil {
		return nil, 0, err
	}
	o.requestTimeoutMs = int32(requestMs)
	timeout := time.Duration(apiMs) * time.Millisecond
	clientID := props["client.id"]
	if clientID == "" {
		clientID = "klamm-topics"
	}
	client, err := kgo.NewClient(append(security,
		kgo.SeedBrokers(seeds...), kgo.ClientID(clientID), kgo.Dialer(dial),
		kgo.RetryTimeout(timeout), kgo.RequestRetries(1<<20), kgo.RetryBackoffFn(backoff), kgo.DisableClientMetrics(),
	)...)
	return client, timeout, err
}

func backoff(attempt int) time.Duration {
	return min(time.Duration(100<<min(attempt, 5))*time.Millisecond, time.Second)
}

// seedBrokers reads a list of host:port.
func seedBrokers(text string) ([]string, error) {
	var seeds []string
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		host, port, err := net.SplitHostPort(part)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || host == "" {
			return nil, badOption("Invalid url in bootstrap.servers: %s", part)
		}
		seeds = append(seeds, part)
	}
	if len(seeds) == 0 {
		return nil, badOption("No resolvable bootstrap urls given in bootstrap.servers")
	}
	return seeds, nil
}

func millis(props map[string]string, key string, def int) (int, error) {
	text, set := props[key]
	if !set {
		return def, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0, badOption("Invalid value %s for configuration %s: Not a number of type INT", text, key)
	}
	if n < 0 {
		return 0, badOption("Invalid value %d for configuration %s: Value must be at least 0", n, key)
	}
	return int(n), nil
}
