package batcher

import (
	"errors"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// Window is how many batches of a partition may be in flight: as many as a broker remembers of an idempotent producer.
const Window = 5

// MaxTraces is how many publishes' traces a batch remembers.
const MaxTraces = 64

// ErrExpired means that the batch was not acknowledged by its deadline. Where it had been sent, it may still be appended.
var ErrExpired = errors.New("not acknowledged within the delivery timeout")

// ErrClosed means that the agent stopped before the batch was acknowledged.
var ErrClosed = errors.New("the agent is stopping")

// Options say when a batch is closed, how it is compressed, and how long it is tried.
type Options struct {
	Codec       recordbatch.Codec
	Level       int
	Linger      time.Duration // longest wait for other messages
	MaxBytes    int           // before compression
	MaxMessages int
	Adaptive    bool          // due as soon as the partition has nothing in flight
	Deadline    time.Duration // 0: never given up
	Layout      int32         // of the generation: stands for how topics and partitions are picked; the sink's to read
	Stage       int32         // of the spool; the sink's to read
	Spooled     bool          // the sink puts batches into a spool, which gives them their sequences
	MinBackoff  time.Duration
	MaxBackoff  time.Duration
}

// Record is one message on its way into a batch. Append copies all of it.
type Record struct {
	Timestamp  int64 // milliseconds
	Key, Value []byte
	Headers    []recordbatch.RecordHeader
	Trace      string // W3C traceparent of the publish, if it is traced
	Bytes      int64  // what Owner.Resolved gives back
	Claim      any    // what Owner.Sending and Owner.Settled are told of; nil: nothing
}

// Claimed is a message of a batch that came with a claim.
type Claimed struct {
	Index     int // in the batch
	Timestamp int64
	Claim     any
}

// Fill is why a batch was closed.
type Fill uint8

// The reasons.
const (
	FillLinger Fill = iota
	FillBytes
	FillCount
	FillIdle
	FillFlush
	fillCount
)

// Fills is every reason, by name.
var Fills = [fillCount]string{"linger", "bytes", "count", "idle", "flush"}

func (f Fill) String() string { return Fills[f] }

// Owner hears of a channel's batches. Calls come from any goroutine and must not block.
type Owner interface {
	// Sealed is called once for each batch, after it was encoded.
	Sealed(Stats)
	// Answered is called once for each batch: its waiters know.
	Answered(messages int, waited time.Duration, err error)
	// Resolved is called once for each batch: its memory is free.
	Resolved(bytes int64)
	// Sending is called for a batch with claims before it is sent under an identity that it did not have before: Batch.Identity, or
	// the number of its entry in a spool.
	Sending(b *Batch, entry uint64)
	// Settled is called once for a batch with claims, before its waiters are woken: it is in the log at that offset (-1: in a spool),
	// or, where ok is false, it is not and never will be. When the agent stops before either, it is not called.
	Settled(b *Batch, baseOffset, appendTime int64, ok bool)
}

// Stats describe an encoded batch.
type Stats struct {
	Messages   int
	RawBytes   int
	Bytes      int
	Fill       Fill
	QueueTime  time.Duration // from the first message until the sink took it
	Compressed time.Duration // time that encoding took
}

// Sink carries batches away.
type Sink interface {
	// Ready says that the lane has something to take. It is not called again before Take has returned nothing. It must not
	// block, and must not call the lane.
	Ready(*Lane)
}
