package channel

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/databus/internal/keep"
)

const (
	reportEvery  = 5 * time.Second
	reportWithin = 3 * time.Second
	settle       = 50 * time.Millisecond // changes that come together are saved and reported together
)

// follow saves the config and reports after each change, and reports now and then besides.
func (s *Store) follow(ctx context.Context) {
	next := time.NewTimer(settle)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			timer := time.NewTimer(settle)
			select {
			case <-ctx.Done():
				timer.Stop()
				s.save()
				return
			case <-timer.C:
			}
			s.save()
		case <-next.C:
		}
		next.Reset(s.report(ctx))
	}
}

// report tells the control plane how the channels fare, and returns when to do so again.
func (s *Store) report(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	list := s.cfg.Report()
	s.mu.Lock()
	known := make(map[string]bool, len(list))
	for _, r := range list {
		known[r.GetChannel()] = true
		if e := s.channels[r.GetChannel()]; e != nil {
			r.Error = e.err
		}
	}
	for name, e := range s.channels {
		if !known[name] {
			list = append(list, &databusv1.ChannelReport{Channel: name, Revision: e.running, Error: e.err})
		}
	}
	s.mu.Unlock()
	res, err := s.cfg.Client.ReportAgent(ctx, &databusv1.ReportAgentRequest{Agent: s.cfg.Agent, Channels: list, Complete: true})
	if err != nil {
		return reportEvery // the watch says that the control plane is away
	}
	if d := res.GetNextReportAfter().AsDuration(); d >= settle {
		return d
	}
	return reportEvery
}

// save keeps the config for a start without the control plane. What cannot run is not kept.
func (s *Store) save() {
	if s.cfg.Path == "" {
		return
	}
	all := &databusv1.ListChannelsResponse{}
	s.mu.Lock()
	for _, e := range s.channels {
		if e.err == "" {
			all.Channels = append(all.Channels, e.channel)
		}
	}
	s.mu.Unlock()
	data, err := protojson.MarshalOptions{Multiline: true}.Marshal(all)
	if err == nil {
		err = keep.File(s.cfg.Path, data)
	}
	if err != nil {
		s.cfg.Logger.Warn("channel cache not written; a start without the broker would not know the newest config",
			slog.String("file", s.cfg.Path), slog.Any("error", err))
	}
}

// load reads what save wrote. A file that cannot be read is no reason not to start.
func (s *Store) load() []*databusv1.Channel {
	if s.cfg.Path == "" {
		return nil
	}
	data, err := os.ReadFile(s.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	all := &databusv1.ListChannelsResponse{}
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, all)
	}
	if err != nil {
		s.cfg.Logger.Warn("channel cache not read; the broker is asked instead", slog.String("file", s.cfg.Path), slog.Any("error", err))
		return nil
	}
	return all.GetChannels()
}
