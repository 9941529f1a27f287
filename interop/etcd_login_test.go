//go:build interop

package interop

import (
	"log/slog"
	"testing"
	"time"

	"klamm/internal/config"
	"klamm/internal/node"
	"klamm/interop/etcdserver"
)

// Whoever logs in at one of three etcd servers is not known at once by the others, and a watch goes to any of them: connecting bears that.
func TestALoginThatAnotherEtcdServerDoesNotKnowYetIsNoFailure(t *testing.T) {
	etcd := etcdserver.Start(t, etcdserver.Options{Members: 3, TLS: true, User: "klamm", Password: "secret", Address: reserveAddress})
	c, _, err := config.FromProperties(map[string]string{
		"etcd.endpoints": etcd.Endpoints, "etcd.tls.ca": etcd.Certificate, "etcd.tls.cert": etcd.Certificate, "etcd.tls.key": etcd.Key,
		"etcd.user": "klamm", "etcd.password": "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		opened, err := node.OpenEtcd(t.Context(), c, 20*time.Second, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
}
