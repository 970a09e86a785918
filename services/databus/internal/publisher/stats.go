package publisher

import (
	"sync"
	"sync/atomic"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// stats is what a channel has seen since the agent started. Methods may run concurrently.
type stats struct {
	accepted atomic.Int64
	acked    atomic.Int64
	repeated atomic.Int64
	failed   atomic.Int64
	rejected sync.Map // reason → *atomic.Int64
	batches  [len(batcher.Fills)]atomic.Int64
	raw      atomic.Int64
	encoded  atomic.Int64
	queue    recent
	latency  recent
}

// refuse counts messages that were not taken, by the error's reason.
func (s *stats) refuse(err error, n int) {
	reason := errs.From(err).Reason
	c, ok := s.rejected.Load(reason)
	if !ok {
		c, _ = s.rejected.LoadOrStore(reason, new(atomic.Int64))
	}
	c.(*atomic.Int64).Add(int64(n))
}

func (s *stats) sealed(b batcher.Stats) {
	s.batches[b.Fill].Add(1)
	s.raw.Add(int64(b.RawBytes))
	s.encoded.Add(int64(b.Bytes))
	s.queue.record(time.Now(), b.QueueTime)
}

func (s *stats) answered(n int, waited time.Duration, err error) {
	if err != nil {
		s.failed.Add(int64(n))
		return
	}
	s.acked.Add(int64(n))
	s.latency.record(time.Now(), waited)
}

// report is what the control plane gets of the counters.
func (s *stats) report(now time.Time) *databusv1.ChannelReport {
	r := &databusv1.ChannelReport{Accepted: s.accepted.Load(), Acknowledged: s.acked.Load(), Failed: s.failed.Load(),
		RawBytes: s.raw.Load(), BatchBytes: s.encoded.Load(), Queue: s.queue.times(now), Latency: s.latency.times(now),
		RejectedBy: make(map[string]int64), BatchesBy: make(map[string]int64)}
	s.rejected.Range(func(reason, c any) bool {
		n := c.(*atomic.Int64).Load()
		r.RejectedBy[reason.(string)] = n
		r.Rejected += n
		return true
	})
	for i := range s.batches {
		if n := s.batches[i].Load(); n > 0 {
			r.BatchesBy[batcher.Fill(i).String()] = n
		}
	}
	return r
}

// Totals are a channel's counters since the agent started, for metrics.
type Totals struct {
	Channel         string
	Accepted        int64
	Acknowledged    int64
	Failed          int64
	Repeated        int64
	Spool           spool.Stats
	Rejected        map[string]int64 // by reason
	Batches         [len(batcher.Fills)]int64
	RawBytes, Bytes int64
	PendingBytes    int64
	Revision        int64
	Circuit         databusv1.CircuitState
}

// Totals reads every channel's counters.
func (p *Publisher) Totals(yield func(Totals)) {
	p.channels.Range(func(_, x any) bool {
		l := x.(*live)
		a := l.active.Load()
		t := Totals{Channel: l.name, Accepted: l.stats.accepted.Load(), Acknowledged: l.stats.acked.Load(),
			Failed: l.stats.failed.Load(), Rejected: make(map[string]int64), RawBytes: l.stats.raw.Load(),
			Bytes: l.stats.encoded.Load(), PendingBytes: l.share.Used(),
			Repeated: l.stats.repeated.Load(), Spool: l.spooled(), Revision: a.plan.Revision, Circuit: a.circuit()}
		l.stats.rejected.Range(func(reason, c any) bool {
			t.Rejected[reason.(string)] = c.(*atomic.Int64).Load()
			return true
		})
		for i := range t.Batches {
			t.Batches[i] = l.stats.batches[i].Load()
		}
		yield(t)
		return true
	})
}
