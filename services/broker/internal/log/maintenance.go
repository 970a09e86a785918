package log

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// RunMaintenance enforces retention, compacts and checkpoints what was left alone, one partition after the other,
// until ctx ends. One call a log is enough.
func (l *Log) RunMaintenance(ctx context.Context) {
	tick := time.NewTicker(min(l.cfg.RetentionInterval, l.cfg.CheckpointInterval))
	defer tick.Stop()
	last := l.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.CheckRetention(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Logger.Warn("retention", slog.Any("err", err))
		}
		if err := l.CompactAll(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Logger.Warn("compaction", slog.Any("err", err))
		}
		if now := l.cfg.Now(); now.Sub(last) >= l.cfg.CheckpointInterval {
			last = now
			l.checkpointIdle(ctx)
		}
	}
}

// CheckRetention enforces retention on every partition once.
func (l *Log) CheckRetention(ctx context.Context) error {
	var errs []error
	for _, p := range l.partitions() {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, p.EnforceRetention())
	}
	return errors.Join(errs...)
}

// checkpointIdle checkpoints the partitions that have written since their last one, so that what a recovery reads in
// total stays small however many they are.
func (l *Log) checkpointIdle(ctx context.Context) {
	for _, p := range l.partitions() {
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		need := p.sinceCk > 0 || p.metaDirty
		p.mu.Unlock()
		if !need {
			continue
		}
		if err := p.Checkpoint(); err != nil {
			l.syncError(p, err)
		}
	}
}
