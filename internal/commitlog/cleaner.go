package commitlog

import "context"

func (m *Manager) serveCleaner(ctx context.Context) { <-ctx.Done() }

func (m *Manager) cleanerForget(*logDir, []*Log) error { return nil }
