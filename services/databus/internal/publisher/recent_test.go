package publisher

import (
	"testing"
	"time"
)

func TestRecentTimes(t *testing.T) {
	t.Parallel()
	var r recent
	start := time.Unix(1_000_000_000, 0)
	if got := r.times(start); got != nil {
		t.Fatalf("nothing was timed, got %v", got)
	}
	for i := range 100 {
		r.record(start, time.Duration(i+1)*time.Millisecond)
	}
	got := r.times(start.Add(recentSlot))
	within := func(name string, d, want time.Duration) {
		if d < want || float64(d) > 1.11*float64(want) {
			t.Errorf("%s is %s, want %s or up to a tenth more", name, d, want)
		}
	}
	if got.GetCount() != 100 {
		t.Errorf("count is %d, want 100", got.GetCount())
	}
	within("p50", got.GetP50().AsDuration(), 50*time.Millisecond)
	within("p99", got.GetP99().AsDuration(), 99*time.Millisecond)
	r.record(start.Add(2*recentSlot), time.Hour)
	if got := r.times(start.Add(2 * recentSlot)); got.GetCount() != 1 {
		t.Errorf("what is older than two slots counts: %v", got)
	}
	if got := r.times(start.Add(9 * recentSlot)); got != nil {
		t.Errorf("nothing was timed lately, got %v", got)
	}
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	for d := time.Microsecond; d < time.Minute; d = d*13/10 + 1 {
		if b := bucketOf(d); boundOf(b)+10*time.Microsecond < d || b > 0 && boundOf(b-1)-10*time.Microsecond > d {
			t.Errorf("%s is in bucket %d, %s to %s", d, b, boundOf(b-1), boundOf(b))
		}
	}
}
