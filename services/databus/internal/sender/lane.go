package sender

import "github.com/databus-suite/databus/services/databus/internal/batcher"

// Lane is one partition's line of batches: the batcher's, or the spool's. The sender calls it from one goroutine at a time.
type Lane interface {
	Topic() string
	Partition() int32 // that it sends to
	// Resize tells how many partitions the topic has. It reports whether the lane sends to another one from now on.
	Resize(partitions int32) (moved bool)
	// Next returns the next batch to send, or nil where there is none now; the lane is then pushed again once there is.
	// needProducer asks for SetProducer.
	Next() (b Batch, needProducer bool)
	SetProducer(id int64, epoch int16)
	// SetEnd tells where the partition ends, before the first batch is sent.
	SetEnd(offset int64)
	// Stalled reports that nothing can be sent now.
	Stalled(cause error)
}

// Batch is one record batch on its way. One of Acked, Refused and Lost is called for each Next that returned it.
type Batch interface {
	// Bytes are whole and stamped. An error is final.
	Bytes() ([]byte, error)
	Partition() int32
	Traces() []string // W3C traceparents of publishes whose messages it holds, as far as they are known
	Acked(baseOffset, appendTime int64)
	Refused(r batcher.Refusal, cause error)
	Lost(cause error)
}

// batched is a lane of the batcher.
type batched struct{ *batcher.Lane }

func (l batched) Next() (Batch, bool) {
	b, needProducer := l.Take()
	if b == nil {
		return nil, needProducer // a nil *Batch would be no nil Batch
	}
	return b, false
}
