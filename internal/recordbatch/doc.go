// Package recordbatch owns the bytes of Kafka's record batch, magic v2: the
// unit of the whole data path. The agent builds and compresses a batch, the
// broker checks it and stamps its offset in place, the disk, Kafka clients and
// the mirror see the same bytes. docs/format/record-batch.md draws them.
//
// It knows bytes only. It may not know files, networks, topics or config, and
// it imports nothing of this module.
//
// [Check] verifies a batch without decompressing it; [Split] cuts a buffer of
// batches; [SetOffset], [SetProducer] and [SetLogAppendTime] edit in place;
// [Builder] writes; [Records] and [Decoder] read. Functions are safe for
// concurrent use on different batches. Builder and Decoder belong to one
// goroutine at a time and need no closing.
//
// Every error wraps one of the sentinels below.
package recordbatch

import "errors"

// The causes that this package reports, always wrapped with where and what.
var (
	// ErrShort means that the bytes end before the batch does. A reader of a
	// growing file or a stream wants more bytes; otherwise the batch is cut.
	ErrShort = errors.New("record batch is cut short")
	// ErrMagic means a format other than v2.
	ErrMagic = errors.New("record batch magic is not 2")
	// ErrCRC means that the bytes changed after the producer summed them.
	ErrCRC = errors.New("record batch checksum mismatch")
	// ErrCorrupt means fields that contradict each other or the bytes.
	ErrCorrupt = errors.New("record batch is corrupt")
	// ErrCodec means an unknown codec or a level that the codec lacks.
	ErrCodec = errors.New("record batch codec is not supported")
	// ErrTooLarge means that records decompress to more than the caller allows,
	// or a batch that would pass what its length field can say.
	ErrTooLarge = errors.New("record batch is too large")
)
