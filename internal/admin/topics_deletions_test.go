package admin

import (
	"strings"
	"sync/atomic"
	"testing"
)

// R01: the tool names the topics that are being deleted, with what they wait for and for how long, where it is told a web address.
func TestTopicsThatAreBeingDeletedAreNamed(t *testing.T) {
	ends := &atomic.Bool{}
	web := fakeWeb(t, ends)
	const alive = "Topic: alive\tTopicId: AAAAAAAAAAAAAAAAAAAAAw\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n\tTopic: alive\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
	run := func(args ...string) outcome {
		t.Helper()
		return runOn(t, clusterOf(t, alive), append([]string{"--bootstrap-server", "x:1"}, args...))
	}
	const waiting, left = "orders - being deleted for 0s: broker 3: broker is offline", "old - deleted, broker 2 has 2 replicas to remove"
	got := run("--list", "--web", web)
	for _, want := range []string{"alive\n", waiting, left} {
		if got.exit != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("--list: %q is missing in %+v", want, got)
		}
	}
	if got := run("--list"); got.stdout != "alive\n" {
		t.Errorf("--list without --web: %+v", got)
	}
	if got := run("--list", "--topic", "al.*", "--web", web); got.stdout != "alive\n" {
		t.Errorf("--list of others: %+v", got)
	}
	if got := run("--describe", "--topic", "orders", "--web", strings.TrimPrefix(web, "http://")); got.exit != 0 || !strings.HasPrefix(got.stdout, waiting) {
		t.Errorf("--describe: %+v", got)
	}
	if got := run("--describe", "--topic", "orders"); got.exit != 1 {
		t.Errorf("--describe without --web: %+v", got)
	}
	ends.Store(true)
	if got := run("--describe", "--topic", "orders", "--web", web); got.exit != 1 {
		t.Errorf("--describe after the deletion: %+v", got)
	}
	if got := run("--list", "--web", "127.0.0.1:1"); got.exit != 1 || !strings.Contains(got.stdout, "web.listen") {
		t.Errorf("--list with a web address that nobody serves: %+v", got)
	}
}
