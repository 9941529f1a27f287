package etcdstore

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger hands etcd's warnings and errors to slog. It is a zapcore.Core.
type zapLogger struct {
	log    *slog.Logger
	fields []zapcore.Field
}

func newZapLogger(log *slog.Logger) *zapLogger { return &zapLogger{log: log} }

// logger makes etcd's fatal messages panic, so that they end in an error of Embedded and not in os.Exit.
func (z *zapLogger) logger() *zap.Logger {
	return zap.New(z, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// noise are beginnings of messages that etcd logs as warnings or errors although nothing is wrong.
var noise = []string{
	"setting up serving from embedded etcd failed", "stopped", "stopping", "server has been stop", // at every Close
	"Failed to detect schema version", "failed to update storage version", // at the first start
	"check file permission",     // the modes of klamm's directories are their owner's choice
	"simple token is not ",      // authentication is off
	"failed to find", "bbolt: ", // peers of a lone member; progress of the database
	// A member that is away is told of once, by "peer became inactive"; these repeat it, some every few seconds.
	"lost TCP streaming", "closed TCP streaming", "prober ", "failed to reach the peer URL", "failed to get version", "dropped internal Raft message",
	"failed to connect to remote peer", "failed to write out of order", "health check for peer", "waiting for ReadIndex response",
}

// campaignLater is what raft says after a member's id when its time to campaign comes while it is still applying what made it a member: it
// does so again a moment later. Of a lone member's first starts it is one in twenty.
const campaignLater = " cannot campaign at term "

// leaseGone is the error of ending a session that is over already, which is not worth a word.
const leaseGone = "lease not found"

// Enabled implements zapcore.Core.
func (z *zapLogger) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (z *zapLogger) With(fields []zapcore.Field) zapcore.Core {
	return &zapLogger{z.log, append(slices.Clip(z.fields), fields...)}
}

// Check implements zapcore.Core.
func (z *zapLogger) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !z.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, z)
}

// Write implements zapcore.Core.
func (z *zapLogger) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if slices.ContainsFunc(noise, func(n string) bool { return strings.HasPrefix(e.Message, n) }) || strings.Contains(e.Message, campaignLater) {
		return nil
	}
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(slices.Clip(z.fields), fields...) {
		f.AddTo(enc)
	}
	// Whoever gives up a request of his own need not be told.
	if text, _ := enc.Fields["error"].(string); text == leaseGone || strings.HasSuffix(text, context.Canceled.Error()) {
		return nil
	}
	attrs := []slog.Attr{slog.String("message", e.Message)}
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	slices.SortFunc(attrs[1:], func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	z.log.LogAttrs(context.Background(), level, "etcd", attrs...)
	return nil
}

// Sync implements zapcore.Core.
func (z *zapLogger) Sync() error { return nil }
