package channel

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

// watch follows the control plane, and comes back to it for as long as it takes.
func (s *Store) watch(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 2*time.Second
	away := false
	for ctx.Err() == nil {
		err := s.watchOnce(ctx, func() {
			wait.Reset()
			if away {
				s.cfg.Logger.Info("channel watch is back")
			}
			away = false
		})
		if ctx.Err() != nil {
			return
		}
		if !away {
			s.cfg.Logger.Warn("channel watch lost; the channels known here go on", slog.Int("channels", s.Size()), slog.Any("error", err))
		}
		away = true
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *Store) watchOnce(ctx context.Context, synced func()) error {
	stream, err := s.cfg.Client.WatchChannels(ctx, &databusv1.WatchChannelsRequest{Agent: s.cfg.Agent})
	if err != nil {
		return errs.From(err)
	}
	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	for {
		event, err := stream.Recv()
		if err != nil {
			return errs.From(err)
		}
		s.mu.Lock()
		switch e := event.GetEvent().(type) {
		case *databusv1.WatchChannelsResponse_Changed:
			s.put(e.Changed)
		case *databusv1.WatchChannelsResponse_Deleted:
			s.remove(e.Deleted)
		case *databusv1.WatchChannelsResponse_Synced:
			s.sweep()
			s.once.Do(func() { close(s.synced) })
			synced()
		}
		s.mu.Unlock()
	}
}

// sweep drops the channels that a whole list did not name: they were deleted while nobody watched. What was found by asking
// since the watch began carries its number too. The caller holds the lock.
func (s *Store) sweep() {
	for name, e := range s.channels {
		if e.watch != s.watches {
			s.remove(name)
		}
	}
}
