package brokertest

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

type channelService struct {
	databusv1.UnimplementedChannelServiceServer
	b *Broker
}

// SetChannel makes a channel, or changes its config, and returns the revision.
func (b *Broker) SetChannel(name string, cfg *databusv1.ChannelConfig) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	ch := &databusv1.Channel{Name: name, Config: proto.CloneOf(cfg), Revision: b.revision}
	b.channels[name] = ch
	b.tell(&databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Changed{Changed: ch}})
	return b.revision
}

// DeleteChannel removes a channel.
func (b *Broker) DeleteChannel(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.channels, name)
	b.tell(&databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Deleted{Deleted: name}})
}

func (b *Broker) tell(event *databusv1.WatchChannelsResponse) {
	for w := range b.watchers {
		w <- event
	}
}

// AwaitReport waits for an agent's report that the function likes.
func (b *Broker) AwaitReport(ok func(*databusv1.ReportAgentRequest) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !slices.ContainsFunc(b.reports, ok) {
		b.cond.Wait()
	}
}

func (s channelService) WatchChannels(_ *databusv1.WatchChannelsRequest, stream grpc.ServerStreamingServer[databusv1.WatchChannelsResponse]) error {
	events := make(chan *databusv1.WatchChannelsResponse, 10_000)
	s.b.mu.Lock()
	for _, ch := range s.b.channels {
		events <- &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Changed{Changed: ch}}
	}
	events <- &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Synced{Synced: true}}
	s.b.watchers[events] = true
	s.b.mu.Unlock()
	defer func() {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		delete(s.b.watchers, events)
	}()
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s channelService) GetChannel(_ context.Context, req *databusv1.GetChannelRequest) (*databusv1.GetChannelResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	ch := s.b.channels[req.Channel]
	if ch == nil {
		return nil, errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel %q does not exist", req.Channel)
	}
	return &databusv1.GetChannelResponse{Channel: ch}, nil
}

func (s channelService) ReportAgent(_ context.Context, req *databusv1.ReportAgentRequest) (*databusv1.ReportAgentResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.reports = append(s.b.reports, req)
	s.b.cond.Broadcast()
	return &databusv1.ReportAgentResponse{}, nil
}
