package log

import (
	"errors"
	"fmt"

	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// What the log answers with. Each is wrapped with the operation and the partition.
var (
	// Of the request: trying the same again does not help.
	ErrInvalidBatch       = errors.New("invalid record batch")
	ErrTooLarge           = errors.New("record batch is too large")
	ErrOffsetOutOfRange   = errors.New("offset out of range")
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	ErrProducerFenced     = errors.New("producer is fenced by a newer epoch")
	// Of the moment: the same request can succeed later.
	ErrNoSpace   = errors.New("no space left on the data directories")
	ErrDirFailed = errors.New("data directory failed")
	ErrBusy      = errors.New("append buffers are full")
	ErrClosed    = errors.New("log is closed")
	// Of the data: an operator has to look.
	ErrCorrupt = segment.ErrCorrupt
	// Of names.
	ErrNotFound  = store.ErrNotFound
	ErrTopicName = store.ErrTopicName
)

// CorruptError names the file and the position of damage.
type CorruptError = segment.CorruptError

// Retryable says whether the same request can succeed later without anyone changing it.
func Retryable(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, ErrDirFailed) || errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed)
}

func (p *Partition) errorf(op string, err error) error {
	return fmt.Errorf("%s %s-%d: %w", op, p.key.Topic, p.key.Partition, err)
}
