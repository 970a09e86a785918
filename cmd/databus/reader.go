package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
)

// errEnough ends reading when the limit is reached.
var errEnough = errors.New("limit reached")

// pageMessages is how many messages one request asks for; the broker's bound of bytes mostly ends a page before.
const pageMessages = 10_000

// reader prints a topic's messages: first those that are there, then, where asked, those that come.
type reader struct {
	server server
	topic  string
	only   []int32 // partitions; empty: all
	topics brokerv1connect.TopicServiceClient
	reads  brokerv1connect.ReadServiceClient
	out    *render.Messages
	left   int64 // messages until the limit; -1: no limit
	term   *terminal
}

func (r *reader) run(ctx context.Context, at begin, follow bool) error {
	cursors, err := r.open(ctx, at)
	if err != nil {
		return err
	}
	if err := r.backlog(ctx, cursors); err != nil {
		return err
	}
	if !follow {
		return nil
	}
	next := map[int32]int64{}
	for _, c := range cursors {
		next[c.partition] = max(c.next, c.end)
	}
	return r.follow(ctx, next)
}

// print prints one message and counts it toward the limit.
func (r *reader) print(partition int32, m *databusv1.StoredMessage) error {
	if r.left == 0 {
		return errEnough
	}
	if err := r.out.Write(render.Message{Topic: r.topic, Partition: partition, StoredMessage: m}); err != nil {
		return err
	}
	if r.left > 0 {
		if r.left--; r.left == 0 {
			return errEnough
		}
	}
	return nil
}

// cursor reads one partition from next up to end, page by page.
type cursor struct {
	partition int32
	next, end int64
	from      *timestamppb.Timestamp // for the first page, instead of next
	page      []*databusv1.StoredMessage
}

// open places a cursor in each wanted partition.
func (r *reader) open(ctx context.Context, at begin) ([]*cursor, error) {
	offsets, err := r.partitions(ctx)
	if err != nil {
		return nil, err
	}
	var cursors []*cursor
	for _, p := range offsets {
		if !wanted(r.only, p.GetPartition()) {
			continue
		}
		c := &cursor{partition: p.GetPartition(), next: p.GetLogStartOffset(), end: p.GetHighWatermark()}
		switch at.kind {
		case atEarliest:
		case atLatest:
			c.next = c.end
		case atOffset:
			c.next = at.number
			if c.next > c.end || c.next < p.GetLogStartOffset() {
				return nil, errs.New(errs.OutOfRange, "OFFSET_OUT_OF_RANGE", "%s/%d has no offset %d", r.topic, c.partition, c.next).
					WithNext("it holds %d up to before %d; give an offset in there, earliest or latest", p.GetLogStartOffset(), c.end)
			}
		case atLast:
			c.next = max(c.next, c.end-at.number)
		case atTime:
			c.from = timestamppb.New(at.time)
		}
		cursors = append(cursors, c)
	}
	for _, want := range r.only {
		if int(want) >= len(offsets) || want < 0 {
			return nil, errs.New(errs.NotFound, "PARTITION_NOT_FOUND", "topic %s has no partition %d", r.topic, want).
				WithNext("it has 0 to %d", len(offsets)-1)
		}
	}
	return cursors, nil
}

// partitions reads what each partition of the topic holds.
func (r *reader) partitions(ctx context.Context) ([]*brokerv1.PartitionOffsets, error) {
	res, err := r.topics.GetTopic(ctx, &brokerv1.GetTopicRequest{Topic: r.topic})
	if err != nil {
		return nil, err
	}
	return res.GetTopic().GetPartitionOffsets(), nil
}

// backlog prints what lies before the cursors' ends: always the message with the earliest timestamp among those that are
// next in their partitions.
func (r *reader) backlog(ctx context.Context, cursors []*cursor) error {
	open := make([]*cursor, 0, len(cursors))
	for _, c := range cursors {
		if err := r.fill(ctx, c); err != nil {
			return err
		}
		if len(c.page) > 0 {
			open = append(open, c)
		}
	}
	for len(open) > 0 {
		first := 0
		for i, c := range open[1:] {
			if earlier(c.page[0].GetTimestamp(), open[first].page[0].GetTimestamp()) {
				first = i + 1
			}
		}
		c := open[first]
		if err := r.print(c.partition, c.page[0]); err != nil {
			return err
		}
		if c.page = c.page[1:]; len(c.page) > 0 {
			continue
		}
		if err := r.fill(ctx, c); err != nil {
			return err
		}
		if len(c.page) == 0 {
			open = append(open[:first], open[first+1:]...)
		}
	}
	return r.out.Flush()
}

// fill gets the cursor's next page; it stays empty at the end.
func (r *reader) fill(ctx context.Context, c *cursor) error {
	for c.next < c.end && len(c.page) == 0 {
		req := &brokerv1.ReadMessagesRequest{Topic: r.topic, Partition: c.partition, Limit: pageMessages}
		if r.left > 0 {
			req.Limit = int32(min(r.left, pageMessages))
		}
		if c.from != nil {
			req.Timestamp, c.from = c.from, nil
		} else {
			req.Offset = strconv.FormatInt(c.next, 10)
		}
		res, err := r.reads.ReadMessages(ctx, req)
		if err != nil {
			return err
		}
		if res.GetNextOffset() <= c.next && len(res.GetMessages()) == 0 {
			return nil // nothing more to get, whatever the end said
		}
		c.next = res.GetNextOffset()
		c.page = before(res.GetMessages(), c.end)
	}
	return nil
}

// before drops the messages from the offset end on.
func before(messages []*databusv1.StoredMessage, end int64) []*databusv1.StoredMessage {
	for len(messages) > 0 && messages[len(messages)-1].GetOffset() >= end {
		messages = messages[:len(messages)-1]
	}
	return messages
}

func earlier(a, b *timestamppb.Timestamp) bool {
	return a.GetSeconds() < b.GetSeconds() || a.GetSeconds() == b.GetSeconds() && a.GetNanos() < b.GetNanos()
}

// morePartitions is how often follow looks whether the topic has grown.
const morePartitions = 5 * time.Second
