package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

const (
	followLimit = 1000
	followBytes = 1 << 20
	// followWait is how long one fetch waits; it only bounds how long a wait can go unnoticed by a closing partition.
	followWait = 30 * time.Second
)

func (s *readService) FollowMessages(req *brokerv1.FollowMessagesRequest, stream grpc.ServerStreamingServer[brokerv1.FollowMessagesResponse]) error {
	return s.follow(stream.Context(), req, stream.Send)
}

type readConnect struct{ *readService }

func (s readConnect) FollowMessages(ctx context.Context, req *brokerv1.FollowMessagesRequest, stream *connect.ServerStream[brokerv1.FollowMessagesResponse]) error {
	return s.follow(ctx, req, stream.Send)
}

// follower is one open stream: a goroutine a partition reads, one at a time sends.
type follower struct {
	service *readService
	topic   *topic.Topic
	req     *brokerv1.FollowMessagesRequest

	mu   sync.Mutex
	send func(*brokerv1.FollowMessagesResponse) error
}

func (s *readService) follow(ctx context.Context, req *brokerv1.FollowMessagesRequest, send func(*brokerv1.FollowMessagesResponse) error) error {
	changed := s.topics.Changed() // before the topic is read, so that no change falls between
	t, err := s.topics.Get(req.GetTopic())
	if err != nil {
		return err
	}
	partitions, err := choosePartitions(t, req.GetPartitions())
	if err != nil {
		return err
	}
	if _, name := offsetNames[req.GetOffset()]; !name && len(partitions) != 1 {
		return invalid("offset", "use earliest or latest, or name one partition", "offset %q cannot stand for %d partitions", req.GetOffset(), len(partitions))
	}
	ctx, stop := s.calls.bound(ctx)
	defer stop()
	f := &follower{service: s, topic: t, req: req, send: send}
	group, ctx := errgroup.WithContext(ctx)
	for _, i := range partitions {
		if err := f.start(ctx, group, i, req.GetOffset(), "latest"); err != nil {
			stop()
			return errors.Join(err, ignore(group.Wait()))
		}
	}
	group.Go(func() error { return f.watchTopic(ctx, group, changed) })
	return group.Wait()
}

var offsetNames = map[string]struct{}{"": {}, "earliest": {}, "latest": {}}

// ignore waits for goroutines whose errors are but echoes of one that is returned already.
func ignore(error) error { return nil }

// start follows one partition from a place that is found before start returns.
func (f *follower) start(ctx context.Context, group *errgroup.Group, index int32, offset, otherwise string) error {
	_, p, err := f.service.topics.Partition(ctx, f.topic.Name, index)
	if err != nil {
		return coded(err)
	}
	from, err := place(p, offset, f.req.GetTimestamp(), otherwise)
	if err != nil {
		return err
	}
	_, end, _ := p.Bounds()
	group.Go(func() error { return f.run(ctx, p, from, end) })
	return nil
}

// run sends a partition's messages as they come, or up to end where the stream stops there.
func (f *follower) run(ctx context.Context, p *log.Partition, from, end int64) error {
	r := reader{partition: p, offset: from, limit: followLimit, bytes: followBytes}
	for !f.req.GetStopAtEnd() || r.offset < end {
		messages, err := r.read(ctx, followWait)
		if errs.CodeOf(err) == errs.OutOfRange {
			// Retention or DeleteRecords ran ahead of a slow reader: go on with what is left.
			if start, _, _ := p.Bounds(); r.offset < start {
				r.offset = start
				continue
			}
		}
		if err != nil {
			return f.failed(ctx, p, err)
		}
		if f.req.GetStopAtEnd() {
			for len(messages) > 0 && messages[len(messages)-1].GetOffset() >= end {
				messages = messages[:len(messages)-1]
			}
		}
		if len(messages) == 0 {
			continue
		}
		_, high, _ := p.Bounds()
		if err := f.answer(&brokerv1.FollowMessagesResponse{Partition: p.Index(), Messages: messages, HighWatermark: high}); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) answer(out *brokerv1.FollowMessagesResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.send(out)
}

func (f *follower) failed(ctx context.Context, p *log.Partition, err error) error {
	if now, gone := f.service.topics.Get(p.Topic()); gone != nil || now.ID != p.ID() {
		return errTopicGone(p.Topic())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func errTopicGone(name string) error {
	return errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q was deleted while it was followed", name).
		WithNext("a topic made again under this name is another topic: start from its beginning")
}

// watchTopic follows partitions that are added, from their beginning, and ends the stream when the topic goes.
func (f *follower) watchTopic(ctx context.Context, group *errgroup.Group, changed <-chan struct{}) error {
	if f.req.GetStopAtEnd() {
		return nil
	}
	known := f.topic.Partitions
	for {
		now, err := f.service.topics.Get(f.topic.Name)
		if err != nil || now.ID != f.topic.ID {
			return errTopicGone(f.topic.Name)
		}
		for ; len(f.req.GetPartitions()) == 0 && known < now.Partitions; known++ {
			if err := f.start(ctx, group, known, "", "earliest"); err != nil {
				return err
			}
		}
		select {
		case <-changed:
			changed = f.service.topics.Changed()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
