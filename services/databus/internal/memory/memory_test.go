package memory

import (
	"errors"
	"testing"
)

func TestShares(t *testing.T) {
	p := NewPool(100)
	a, b := p.NewShare(0), p.NewShare(1000)
	if a.Limit() != 25 || b.Limit() != 100 {
		t.Fatalf("limits %d and %d", a.Limit(), b.Limit())
	}
	for _, step := range []struct {
		share *Share
		n     int64
		want  error
	}{
		{a, 25, nil},
		{a, 1, ErrShare},  // its own bound
		{b, 30, nil},      // 45 left
		{b, 5, nil},       // 40 left
		{b, 10, ErrShare}, // more than what would be left
		{b, 200, ErrFull},
	} {
		if err := step.share.Reserve(step.n); !errors.Is(err, step.want) {
			t.Fatalf("reserve %d: %v, want %v (used %d of the share, %d of all)", step.n, err, step.want, step.share.Used(), p.Used())
		}
	}
	a.Release(25)
	b.Release(35)
	if p.Used() != 0 || a.Used() != 0 || b.Used() != 0 {
		t.Fatalf("used %d, %d, %d after all was given back", p.Used(), a.Used(), b.Used())
	}
	if err := p.Reserve(101); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}

// TestStuckSharesLeaveRoom checks that shares that only take leave room for one that comes later.
func TestStuckSharesLeaveRoom(t *testing.T) {
	const limit = 1 << 20
	for n := 1; n <= 4; n++ {
		p := NewPool(limit)
		for range n {
			s := p.NewShare(limit)
			var err error
			for err == nil {
				err = s.Reserve(1024)
			}
		}
		if err := p.NewShare(limit).Reserve(limit / 32); err != nil {
			t.Errorf("%d stuck shares hold %d of %d and leave no room: %v", n, p.Used(), limit, err)
		}
	}
}
