package publisher

import (
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// Times of the last few seconds are counted in buckets whose bounds grow by a tenth, from firstBound on; the last takes what is
// longer than any, about a minute and a half.
const (
	recentSlot  = 5 * time.Second
	firstBound  = 100 * time.Microsecond
	bucketCount = 144
)

var bucketStep = math.Log(1.1)

// recent is a histogram of this slot of time and of the one before. The zero value is empty; methods may run concurrently.
type recent struct {
	mu    sync.Mutex
	slots [2]slotCounts
}

type slotCounts struct {
	slot   int64
	counts [bucketCount]uint32
}

func bucketOf(d time.Duration) int {
	if d <= firstBound {
		return 0
	}
	return min(int(math.Ceil(math.Log(float64(d)/float64(firstBound))/bucketStep)), bucketCount-1)
}

func boundOf(bucket int) time.Duration {
	return time.Duration(float64(firstBound) * math.Exp(float64(bucket)*bucketStep)).Round(10 * time.Microsecond)
}

func (r *recent) record(now time.Time, d time.Duration) {
	n := now.UnixNano() / int64(recentSlot)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n%2]
	if s.slot != n {
		*s = slotCounts{slot: n}
	}
	s.counts[bucketOf(d)]++
}

// times sums up both slots; nil where nothing was timed.
func (r *recent) times(now time.Time) *databusv1.RecentTimes {
	n := now.UnixNano() / int64(recentSlot)
	var counts [bucketCount]int64
	total := int64(0)
	r.mu.Lock()
	for i := range r.slots {
		if r.slots[i].slot < n-1 {
			continue
		}
		for b, c := range r.slots[i].counts {
			counts[b] += int64(c)
			total += int64(c)
		}
	}
	r.mu.Unlock()
	if total == 0 {
		return nil
	}
	return &databusv1.RecentTimes{Count: total, P50: percentile(&counts, total, .5), P99: percentile(&counts, total, .99)}
}

func percentile(counts *[bucketCount]int64, total int64, p float64) *durationpb.Duration {
	left := int64(math.Ceil(p * float64(total)))
	for b, c := range counts {
		if left -= c; left <= 0 {
			return durationpb.New(boundOf(b))
		}
	}
	return nil
}
