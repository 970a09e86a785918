package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// kinds gives each of the log's errors its code, and the caller a next step.
var kinds = []struct {
	is     error
	code   errs.Code
	reason string
	next   string
	retry  time.Duration
}{
	{log.ErrInvalidBatch, errs.Invalid, "INVALID_BATCH", "send whole record batches, magic v2, with their checksums", 0},
	{log.ErrTooLarge, errs.TooLarge, "BATCH_TOO_LARGE", "send smaller batches, or raise the topic's maxBatchBytes", 0},
	{log.ErrOffsetOutOfRange, errs.OutOfRange, "OFFSET_OUT_OF_RANGE", "", 0},
	{log.ErrOutOfOrderSequence, errs.Precondition, "OUT_OF_ORDER_SEQUENCE", "send what is missing before it, or take a new producer id", 0},
	{log.ErrProducerFenced, errs.Precondition, "PRODUCER_FENCED", "a newer epoch of this producer is at work: take a new producer id", 0},
	{log.ErrNoSpace, errs.Unavailable, "NO_SPACE", "try again when an operator has made room; reads go on", 5 * time.Second},
	{log.ErrDirFailed, errs.Unavailable, "DIRECTORY_FAILED", "try again; an operator sees why in databus directory list", time.Second},
	{log.ErrBusy, errs.Exhausted, "APPEND_BUFFERS_FULL", "try again, slower", time.Second},
	{log.ErrClosed, errs.Unavailable, "LOG_CLOSED", "try again", time.Second},
	{log.ErrCorrupt, errs.DataLoss, "DATA_CORRUPT", "check the directory with databus log verify", 0},
	{log.ErrTopicName, errs.Invalid, "TOPIC_NAME", "use 1 to 249 of letters, digits, '.', '_' and '-'", 0},
}

// coded gives an error of the log its code; what has one, or belongs to a context, stays as it is.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if e := (*errs.Error)(nil); errors.As(err, &e) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, log.ErrBusy) {
		return err
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			e := errs.New(k.code, k.reason, "%v", err).WithNext("%s", k.next)
			if k.retry > 0 {
				e = e.WithRetryAfter(k.retry)
			}
			return e
		}
	}
	return err
}

// outOfRange says which offsets can be read.
func outOfRange(topic string, partition int32, offset, start, end int64) error {
	return errs.New(errs.OutOfRange, "OFFSET_OUT_OF_RANGE", "offset %d is out of range: %s-%d holds %d to %d", offset, topic, partition, start, end).
		WithField("offset").WithNext("read from an offset of %d to %d, or from earliest or latest", start, end).
		WithMeta("logStartOffset", strconv.FormatInt(start, 10)).WithMeta("highWatermark", strconv.FormatInt(end, 10))
}

// fetchError is coded with the valid range where the offset was outside of it.
func fetchError(p *log.Partition, offset int64, err error) error {
	if errors.Is(err, log.ErrOffsetOutOfRange) {
		start, end, _ := p.Bounds()
		return outOfRange(p.Topic(), p.Index(), offset, start, end)
	}
	return coded(err)
}

func invalid(field, next, format string, args ...any) error {
	return errs.New(errs.Invalid, "INVALID_FIELD", "%s", fmt.Sprintf(format, args...)).WithField(field).WithNext("%s", next)
}
