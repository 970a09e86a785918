package api

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

const (
	defaultReadLimit = 100
	defaultReadBytes = 4 << 20
	// readChunk is what one step of a read fetches; small reads should not decompress megabytes.
	readChunk = 256 << 10
)

// readService implements brokerv1.ReadServiceServer; readConnect adapts its one stream to Connect.
type readService struct {
	brokerv1.UnimplementedReadServiceServer
	topics *topic.Registry
	calls  calls
}

func (s *readService) ReadMessages(ctx context.Context, req *brokerv1.ReadMessagesRequest) (*brokerv1.ReadMessagesResponse, error) {
	_, p, err := s.topics.Partition(ctx, req.GetTopic(), req.GetPartition())
	if err != nil {
		return nil, coded(err)
	}
	offset, err := place(p, req.GetOffset(), req.GetTimestamp(), "earliest")
	if err != nil {
		return nil, err
	}
	ctx, stop := s.calls.bound(ctx)
	defer stop()
	r := reader{partition: p, offset: offset, limit: defaultReadLimit, bytes: defaultReadBytes}
	if req.GetLimit() > 0 {
		r.limit = int(req.GetLimit())
	}
	if req.GetMaxBytes() > 0 {
		r.bytes = int(req.GetMaxBytes())
	}
	messages, err := r.read(ctx, req.GetWait().AsDuration())
	if drained(err) { // answer with what there is
		messages, err = r.read(context.WithoutCancel(ctx), 0)
	}
	if err != nil {
		return nil, err
	}
	start, end, _ := p.Bounds()
	return &brokerv1.ReadMessagesResponse{Messages: messages, HighWatermark: end, LogStartOffset: start, NextOffset: r.offset}, nil
}

// place finds the offset that a request asks for.
func place(p *log.Partition, offset string, at *timestamppb.Timestamp, otherwise string) (int64, error) {
	start, end, _ := p.Bounds()
	if at != nil {
		if offset != "" {
			return 0, invalid("timestamp", "give an offset or a timestamp", "both an offset and a timestamp are given")
		}
		found, _, err := p.OffsetForTime(at.AsTime().UnixMilli())
		return found, coded(err)
	}
	if offset == "" {
		offset = otherwise
	}
	switch offset {
	case "earliest":
		return start, nil
	case "latest":
		return end, nil
	}
	n, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("offset", "use a number from 0, earliest or latest", "offset %q is none", offset)
	}
	if n < start || n > end {
		return 0, outOfRange(p.Topic(), p.Index(), n, start, end)
	}
	return n, nil
}

// reader decodes a partition's batches into messages, from exactly an offset on.
type reader struct {
	partition *log.Partition
	offset    int64 // of the next message
	limit     int   // messages
	bytes     int   // keys, values and headers; the first message comes whole even where it is larger
}

// read returns the next messages. It waits for the first one, and not where there is one already.
func (r *reader) read(ctx context.Context, wait time.Duration) (messages []*databusv1.StoredMessage, err error) {
	size := 0
	for len(messages) < r.limit && size < r.bytes {
		res, err := r.partition.Fetch(ctx, log.FetchOptions{Offset: r.offset, MaxBytes: min(readChunk, r.bytes), MaxWait: wait})
		if err != nil {
			return upTo(messages, fetchError(r.partition, r.offset, err))
		}
		if res.Size == 0 {
			return messages, nil
		}
		for _, batches := range res.Batches {
			var full bool
			if messages, full, err = r.decode(batches, messages, &size); err != nil || full {
				return upTo(messages, err)
			}
		}
		r.offset = res.NextOffset
		if len(messages) > 0 {
			wait = 0
		}
	}
	return messages, nil
}

// upTo keeps an error for the next read where there are messages to answer with.
func upTo(messages []*databusv1.StoredMessage, err error) ([]*databusv1.StoredMessage, error) {
	if len(messages) > 0 {
		return messages, nil
	}
	return nil, err
}

// decode appends the messages in batches; full: it stopped at a bound.
func (r *reader) decode(batches []byte, messages []*databusv1.StoredMessage, size *int) (list []*databusv1.StoredMessage, full bool, err error) {
	for len(batches) > 0 {
		batch, rest, err := recordbatch.Split(batches)
		if err != nil {
			return messages, false, r.corrupt(err)
		}
		batches = rest
		head, err := recordbatch.ParseHeader(batch)
		if err != nil {
			return messages, false, r.corrupt(err)
		}
		if head.IsControl() || head.LastOffset() < r.offset {
			continue
		}
		for record, err := range recordbatch.Records(batch, 0) {
			if err != nil {
				return messages, false, r.corrupt(err)
			}
			if record.Offset < r.offset {
				continue
			}
			n := recordSize(record)
			if len(messages) == r.limit || len(messages) > 0 && *size+n > r.bytes {
				return messages, true, nil
			}
			messages, *size = append(messages, storedMessage(record)), *size+n
			r.offset = record.Offset + 1
		}
	}
	return messages, false, nil
}

func (r *reader) corrupt(err error) error {
	return errs.New(errs.DataLoss, "DATA_CORRUPT", "read %s-%d: the batch at offset %d cannot be decoded", r.partition.Topic(), r.partition.Index(), r.offset).
		WithNext("read on past it, and check the directory with databus log verify").Wrap(err)
}

func recordSize(record recordbatch.Record) int {
	n := len(record.Key) + len(record.Value)
	for _, h := range record.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

func storedMessage(record recordbatch.Record) *databusv1.StoredMessage {
	m := &databusv1.StoredMessage{
		Offset: record.Offset, Timestamp: timestamppb.New(time.UnixMilli(record.Timestamp)), Key: record.Key, Value: record.Value,
	}
	if len(record.Headers) > 0 {
		headers := make([]databusv1.Header, len(record.Headers))
		m.Headers = make([]*databusv1.Header, len(record.Headers))
		for i, h := range record.Headers {
			headers[i].Key, headers[i].Value = h.Key, h.Value
			m.Headers[i] = &headers[i]
		}
	}
	return m
}
