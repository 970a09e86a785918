package sender

import (
	"context"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// findBytes is how much is fetched at once while a batch is looked for.
const findBytes = 4 << 20

// Identity is how a batch is recognised in a partition.
type Identity struct {
	Topic      string
	Partition  int32
	ProducerID int64
	Epoch      int16
	Sequence   int32
	From       int64 // an offset before which it is not; negative: not known
}

// Place is where a batch was found.
type Place struct {
	BaseOffset int64
	AppendTime int64 // milliseconds, where the broker stamped it; else 0
}

// Find looks for a batch in its partition by reading the heads of batches. A topic that does not exist holds none.
func (s *Sender) Find(ctx context.Context, id Identity) (p Place, found bool, err error) {
	start, end, err := s.bounds(ctx, id.Topic, id.Partition)
	if errs.CodeOf(err) == errs.NotFound {
		return Place{}, false, nil
	}
	if err != nil {
		return Place{}, false, err
	}
	at := max(id.From, start)
	if at > end {
		at = start // another topic of that name
	}
	for at < end {
		res, err := s.cfg.Conns.log().Fetch(ctx, &brokerv1.FetchRequest{Topic: id.Topic, Partition: id.Partition, Offset: at, MaxBytes: findBytes})
		if err != nil {
			return Place{}, false, errs.From(err)
		}
		for rest := res.Batches; len(rest) > 0; {
			var batch []byte
			if batch, rest, err = recordbatch.Split(rest); err != nil {
				break // the last one is cut
			}
			h, err := recordbatch.ParseHeader(batch)
			if err != nil {
				return Place{}, false, errs.New(errs.DataLoss, "BAD_BATCH", "read %s/%d from offset %d", id.Topic, id.Partition, at).Wrap(err)
			}
			if h.ProducerID == id.ProducerID && h.ProducerEpoch == id.Epoch && h.BaseSequence == id.Sequence {
				p.BaseOffset = h.BaseOffset
				if h.TimestampType() == recordbatch.LogAppendTime {
					p.AppendTime = h.MaxTimestamp
				}
				return p, true, nil
			}
		}
		if res.NextOffset <= at {
			break
		}
		at = res.NextOffset
	}
	return Place{}, false, nil
}

// bounds reads where a partition begins and ends.
func (s *Sender) bounds(ctx context.Context, topic string, partition int32) (start, end int64, err error) {
	for _, x := range []struct {
		into *int64
		req  *brokerv1.ListOffsetsRequest
	}{
		{&start, &brokerv1.ListOffsetsRequest{At: &brokerv1.ListOffsetsRequest_Earliest{Earliest: true}}},
		{&end, &brokerv1.ListOffsetsRequest{At: &brokerv1.ListOffsetsRequest_Latest{Latest: true}}},
	} {
		x.req.Topic, x.req.Partitions = topic, []int32{partition}
		res, err := s.cfg.Conns.log().ListOffsets(ctx, x.req)
		if err != nil {
			return 0, 0, errs.From(err)
		}
		for _, o := range res.Offsets {
			*x.into = o.Offset
		}
	}
	return start, end, nil
}
