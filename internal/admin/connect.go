package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	if err := refuseSecurity(props); err != nil {
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
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...), kgo.ClientID(clientID), kgo.Dialer(dialer(unreachable)),
		kgo.RetryTimeout(timeout), kgo.RequestRetries(1<<20), kgo.RetryBackoffFn(backoff), kgo.DisableClientMetrics(),
	)
	return client, timeout, err
}

func backoff(attempt int) time.Duration {
	return min(time.Duration(100<<min(attempt, 5))*time.Millisecond, time.Second)
}

func dialer(unreachable func(string, error)) func(context.Context, string, string) (net.Conn, error) {
	var once sync.Once
	d := net.Dialer{Timeout: 10 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil && ctx.Err() == nil {
			once.Do(func() { unreachable(addr, err) })
		}
		return conn, err
	}
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

// refuseSecurity keeps commands from running without the protection that the file asks for.
func refuseSecurity(props map[string]string) error {
	if p := strings.ToUpper(strings.TrimSpace(props["security.protocol"])); p != "" && p != "PLAINTEXT" {
		return fmt.Errorf("security.protocol=%s is not supported by this build: only PLAINTEXT is", p)
	}
	for _, k := range slices.Sorted(maps.Keys(props)) {
		if strings.HasPrefix(k, "ssl.") || strings.HasPrefix(k, "sasl.") {
			return fmt.Errorf("%s is not supported by this build: connections are PLAINTEXT only", k)
		}
	}
	return nil
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
