package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/broker/internal/channel"
)

// channelService implements databusv1.ChannelServiceServer; channelConnect adapts its one stream to Connect.
type channelService struct {
	databusv1.UnimplementedChannelServiceServer
	channels *channel.Registry
	calls    calls
}

func (s *channelService) CreateChannel(ctx context.Context, req *databusv1.CreateChannelRequest) (*databusv1.CreateChannelResponse, error) {
	c, err := s.channels.Create(ctx, req.GetName(), req.GetConfig(), req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return &databusv1.CreateChannelResponse{Channel: c}, nil
}

func (s *channelService) GetChannel(_ context.Context, req *databusv1.GetChannelRequest) (*databusv1.GetChannelResponse, error) {
	c, err := s.channels.Get(req.GetChannel())
	if err != nil {
		return nil, err
	}
	return &databusv1.GetChannelResponse{Channel: c}, nil
}

func (s *channelService) ListChannels(_ context.Context, req *databusv1.ListChannelsRequest) (*databusv1.ListChannelsResponse, error) {
	after, err := readPageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, more := s.channels.List(after, pageSize(req.GetPageSize()))
	out := &databusv1.ListChannelsResponse{Channels: page}
	if more {
		out.NextPageToken = pageToken(page[len(page)-1].GetName())
	}
	return out, nil
}

func (s *channelService) UpdateChannel(ctx context.Context, req *databusv1.UpdateChannelRequest) (*databusv1.UpdateChannelResponse, error) {
	c, err := s.channels.Update(ctx, req.GetChannel(), channel.Change{
		Config: req.GetConfig(), Mask: req.GetUpdateMask(), Revision: req.GetRevision(),
		CanaryLabels: req.GetCanaryLabels(), ValidateOnly: req.GetValidateOnly(),
	})
	if err != nil {
		return nil, err
	}
	return &databusv1.UpdateChannelResponse{Channel: c}, nil
}

func (s *channelService) DeleteChannel(ctx context.Context, req *databusv1.DeleteChannelRequest) (*databusv1.DeleteChannelResponse, error) {
	if err := s.channels.Delete(ctx, req.GetChannel()); err != nil {
		return nil, err
	}
	return &databusv1.DeleteChannelResponse{}, nil
}

func (s *channelService) ListChannelRevisions(ctx context.Context, req *databusv1.ListChannelRevisionsRequest) (*databusv1.ListChannelRevisionsResponse, error) {
	list, err := s.channels.History(ctx, req.GetChannel())
	if err != nil {
		return nil, err
	}
	return &databusv1.ListChannelRevisionsResponse{Revisions: list}, nil
}

func (s *channelService) RollbackChannel(ctx context.Context, req *databusv1.RollbackChannelRequest) (*databusv1.RollbackChannelResponse, error) {
	c, err := s.channels.Rollback(ctx, req.GetChannel(), req.GetRevision())
	if err != nil {
		return nil, err
	}
	return &databusv1.RollbackChannelResponse{Channel: c}, nil
}

func (s *channelService) PromoteCanary(ctx context.Context, req *databusv1.PromoteCanaryRequest) (*databusv1.PromoteCanaryResponse, error) {
	c, err := s.channels.Promote(ctx, req.GetChannel())
	if err != nil {
		return nil, err
	}
	return &databusv1.PromoteCanaryResponse{Channel: c}, nil
}

func (s *channelService) ReportAgent(_ context.Context, req *databusv1.ReportAgentRequest) (*databusv1.ReportAgentResponse, error) {
	if err := s.channels.Report(req.GetAgent(), req.GetChannels(), req.GetComplete()); err != nil {
		return nil, err
	}
	return &databusv1.ReportAgentResponse{NextReportAfter: durationpb.New(s.channels.ReportEvery())}, nil
}

func (s *channelService) GetChannelStatus(_ context.Context, req *databusv1.GetChannelStatusRequest) (*databusv1.GetChannelStatusResponse, error) {
	return s.channels.Status(req.GetChannel())
}

func (s *channelService) WatchChannels(req *databusv1.WatchChannelsRequest, stream grpc.ServerStreamingServer[databusv1.WatchChannelsResponse]) error {
	return s.watch(stream.Context(), req, stream.Send)
}

func (s *channelService) watch(ctx context.Context, req *databusv1.WatchChannelsRequest, send func(*databusv1.WatchChannelsResponse) error) error {
	ctx, stop := s.calls.bound(ctx)
	defer stop()
	for event := range s.channels.Watch(ctx, req.GetAgent().GetLabels()) {
		if err := send(watchResponse(event)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func watchResponse(e channel.Event) *databusv1.WatchChannelsResponse {
	switch {
	case e.Changed != nil:
		return &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Changed{Changed: e.Changed}}
	case e.Synced:
		return &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Synced{Synced: true}}
	}
	return &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Deleted{Deleted: e.Deleted}}
}

type channelConnect struct{ *channelService }

func (s channelConnect) WatchChannels(ctx context.Context, req *databusv1.WatchChannelsRequest, stream *connect.ServerStream[databusv1.WatchChannelsResponse]) error {
	return s.watch(ctx, req, stream.Send)
}
