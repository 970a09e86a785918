package segment

import (
	"math/rand/v2"
	"testing"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s spans
		var have [100]bool
		for range 30 {
			from := rng.Int64N(95)
			to := from + 1 + rng.Int64N(5)
			if rng.IntN(10) == 0 {
				s.cut(from)
				clear(have[from:])
			} else {
				s.add(from, to)
				for i := from; i < to; i++ {
					have[i] = true
				}
			}
			for i := range have {
				if s.contain(int64(i), int64(i)+1) != have[i] {
					t.Fatalf("%v: position %d is %v", s, i, !have[i])
				}
			}
			for i := 1; i < len(s); i++ {
				if s[i-1].to >= s[i].from {
					t.Fatalf("not in order: %v", s)
				}
			}
		}
	}
	var s spans
	for i := range int64(10 * maxSpans) {
		s.add(2*i, 2*i+1)
		if len(s) > maxSpans || !s.contain(2*i, 2*i+1) || s.contain(2*i, 2*i+2) {
			t.Fatalf("after %d: %d spans", i, len(s))
		}
	}
}
