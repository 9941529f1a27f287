package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/zap"
)

// What etcd warns of although nothing is wrong is not passed on; the rest is, with its fields in order.
func TestOnlyWhatIsWrongIsToldOfEtcd(t *testing.T) {
	var out bytes.Buffer
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := newZapLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: plain}))).logger()
	log.Info("elected leader")
	log.Warn("bb48f50251b231e7 cannot campaign at term 1 since there are still pending configuration changes to apply")
	log.Warn("prober detected unhealthy status")
	log.Error("failed to revoke lease", zap.Error(errors.New("lease not found")))
	log.Error("unexpected error during readonly txn", zap.Error(fmt.Errorf("applyTxn: failed Range: %w", context.Canceled)))
	log.With(zap.String("b", "2")).Warn("apply request took too long", zap.String("a", "1"))
	log.Error("failed to save Raft hard state and entries", zap.Error(errors.New("disk full")))
	want := `level=WARN msg=etcd message="apply request took too long" a=1 b=2
level=ERROR msg=etcd message="failed to save Raft hard state and entries" error="disk full"
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
