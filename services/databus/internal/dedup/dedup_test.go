package dedup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const window = 10 * time.Minute

// clock is a time that tests move.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.UnixMilli(1_700_000_000_000)} }

func open(t testing.TB, dir string, c *clock) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Now: func() time.Time { return c.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var target = Target{Topic: "orders", Partition: 3, ProducerID: 7, Epoch: 1, Sequence: 40, From: 90}

func mustClaim(t testing.TB, c *Channel, id, body string) *Claim {
	t.Helper()
	mine, theirs, first, err := c.Claim(KeyOf(id), SumOf([]byte(body)))
	if err != nil || mine == nil {
		t.Fatalf("claim %s: mine %v, theirs %v, first %v, error %v; want mine", id, mine, theirs, first, err)
	}
	return mine
}

func intend(c *Channel, claims ...*Claim) *Intent {
	members := make([]Member, len(claims))
	for i, m := range claims {
		members[i] = Member{Claim: m, Index: 2 * i, Timestamp: int64(1000 + i)}
	}
	return c.Intend(target, members)
}

func first(t testing.TB, c *Channel, id, body string) *Result {
	t.Helper()
	_, _, r, err := c.Claim(KeyOf(id), SumOf([]byte(body)))
	if err != nil || r == nil {
		t.Fatalf("claim %s again: result %v, error %v; want the first result", id, r, err)
	}
	return r
}

func TestRepeatGetsTheFirstResult(t *testing.T) {
	t.Parallel()
	dir, clk := t.TempDir(), newClock()
	s := open(t, dir, clk)
	c := s.Channel("c", window)
	a, b := mustClaim(t, c, "a", "x"), mustClaim(t, c, "b", "y")
	_, theirs, _, err := c.Claim(KeyOf("a"), SumOf([]byte("x")))
	if theirs != a || err != nil {
		t.Fatalf("a repeat in flight: %v, %v; want the first claim", theirs, err)
	}
	intend(c, a, b).Done(Answer{BaseOffset: 100, AppendTime: 0})
	<-theirs.Done()
	want := Result{Topic: "orders", Partition: 3, Offset: 102, Timestamp: 1001}
	if r, ok := b.Result(); !ok || r != want {
		t.Errorf("claim's result %+v %v, want %+v", r, ok, want)
	}
	check := func(c *Channel) {
		t.Helper()
		if diff := cmp.Diff(&want, first(t, c, "b", "y")); diff != "" {
			t.Error(diff)
		}
		if _, _, _, err := c.Claim(KeyOf("b"), SumOf([]byte("other"))); !errors.Is(err, ErrReused) {
			t.Errorf("other body: %v, want ErrReused", err)
		}
	}
	check(c)
	mustClaim(t, s.Channel("other", window), "b", "y")
	// The first store is not closed: as after SIGKILL.
	s = open(t, dir, clk)
	if d := s.Doubts(); len(d) != 0 {
		t.Errorf("%d doubts after everything was answered", len(d))
	}
	check(s.Channel("c", window))
	clk.now = clk.now.Add(window - time.Second)
	check(s.Channel("c", window))
	clk.now = clk.now.Add(2 * time.Second)
	mustClaim(t, s.Channel("c", window), "b", "other")
}

func TestAbandonedIdIsFree(t *testing.T) {
	t.Parallel()
	dir, clk := t.TempDir(), newClock()
	c := open(t, dir, clk).Channel("c", window)
	a := mustClaim(t, c, "a", "x")
	in := intend(c, a)
	in.Void()
	c.Abandon(a)
	<-a.Done()
	if _, ok := a.Result(); ok {
		t.Error("an abandoned claim has a result")
	}
	mustClaim(t, c, "a", "other")
	s := open(t, dir, clk)
	if d := s.Doubts(); len(d) != 0 {
		t.Errorf("%d doubts about a void record", len(d))
	}
	mustClaim(t, s.Channel("c", window), "a", "x")
}

func TestDoubt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		found bool
	}{{"found", true}, {"lost", false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, clk := t.TempDir(), newClock()
			c := open(t, dir, clk).Channel("c", window)
			intend(c, mustClaim(t, c, "a", "x"), mustClaim(t, c, "b", "y"))

			s := open(t, dir, clk)
			c = s.Channel("c", window)
			_, theirs, _, err := c.Claim(KeyOf("b"), SumOf([]byte("y")))
			if err != nil || theirs == nil || !theirs.Doubtful() {
				t.Fatalf("an id in doubt: %v, %v; want a claim in doubt", theirs, err)
			}
			d := s.Doubts()
			if len(d) != 1 || d[0].Target != target || d[0].Count != 2 || d[0].Channel != "c" {
				t.Fatalf("doubts %+v, want one of %+v", d, target)
			}
			if tc.found {
				d[0].Found(Answer{BaseOffset: 7, AppendTime: 5})
			} else {
				d[0].Lost()
			}
			<-theirs.Done()
			s = open(t, dir, clk) // and it stays so
			c = s.Channel("c", window)
			if n := len(s.Doubts()); n != 0 {
				t.Errorf("%d doubts after they were cleared up", n)
			}
			if !tc.found {
				mustClaim(t, c, "b", "y")
				return
			}
			want := &Result{Topic: "orders", Partition: 3, Offset: 9, Timestamp: 5}
			if diff := cmp.Diff(want, first(t, c, "b", "y")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTwoDoubtsOfOneID: a batch that went out under a second identity just before the end.
func TestTwoDoubtsOfOneID(t *testing.T) {
	t.Parallel()
	dir, clk := t.TempDir(), newClock()
	c := open(t, dir, clk).Channel("c", window)
	a := mustClaim(t, c, "a", "x")
	intend(c, a)
	intend(c, a)
	s := open(t, dir, clk)
	c = s.Channel("c", window)
	d := s.Doubts()
	if len(d) != 2 {
		t.Fatalf("%d doubts, want 2", len(d))
	}
	d[0].Lost()
	if _, theirs, _, err := c.Claim(KeyOf("a"), SumOf([]byte("x"))); theirs == nil || err != nil {
		t.Fatalf("free while one record is in doubt: %v", err)
	}
	d[1].Found(Answer{BaseOffset: 4})
	if r := first(t, c, "a", "x"); r.Offset != 4 {
		t.Errorf("offset %d, want 4", r.Offset)
	}
}

func TestFilesRotateAndGo(t *testing.T) {
	t.Parallel()
	dir, clk := t.TempDir(), newClock()
	s := open(t, dir, clk)
	c := s.Channel("a/../b", window)
	most := 0
	for i := range 400 {
		a := mustClaim(t, c, fmt.Sprint(i), "x")
		intend(c, a).Done(Answer{BaseOffset: int64(i)})
		clk.now = clk.now.Add(10 * time.Second)
		names, err := filepath.Glob(filepath.Join(dir, "*", "*"+fileSuffix))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(names))
	}
	if most > 6 || most < 4 {
		t.Errorf("up to %d files, want about five", most)
	}
	if n := s.IDs(); n < 60 || n > 80 {
		t.Errorf("%d ids, want a window's and at most a quarter more", n)
	}
	clk.now = clk.now.Add(2 * window)
	s.Expire()
	if n := s.IDs(); n != 0 {
		t.Errorf("%d ids after the window", n)
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	clk := newClock()
	forgotten := 0
	s, err := Open(Config{Dir: t.TempDir(), MaxIDs: 100, Now: func() time.Time { return clk.now }, Forgotten: func(_ string, n int) { forgotten += n }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.Channel("c", window)
	for i := range 1000 {
		intend(c, mustClaim(t, c, fmt.Sprint(i), "x")).Done(Answer{})
	}
	if n := s.IDs(); n > 210 {
		t.Errorf("%d ids, the bound is 100", n)
	}
	if forgotten < 790 {
		t.Errorf("%d reported as forgotten", forgotten)
	}
	first(t, c, "999", "x")
}

// TestDamage changes and cuts a file at every byte: nothing panics, and an id that is still known has its own result.
func TestDamage(t *testing.T) {
	t.Parallel()
	clk := newClock()
	dir := t.TempDir()
	c := open(t, dir, clk).Channel("c", window)
	for i, id := range []string{"a", "b", "d"} {
		intend(c, mustClaim(t, c, id, "x")).Done(Answer{BaseOffset: int64(i)})
	}
	names, err := filepath.Glob(filepath.Join(dir, "*", "*"+fileSuffix))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	whole, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte) {
		if err := os.WriteFile(names[0], b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir, Now: func() time.Time { return clk.now }})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer s.Close()
		c := s.Channel("c", window)
		for i, id := range []string{"a", "b", "d"} {
			_, _, r, err := c.Claim(KeyOf(id), SumOf([]byte("x")))
			if err != nil || r != nil && r.Offset != int64(i) {
				t.Errorf("%s: id %s: %v %v", what, id, r, err)
			}
		}
	}
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0x5a
		try(fmt.Sprint("byte ", i), b)
		try(fmt.Sprint("first ", i), whole[:i])
		if err := os.WriteFile(names[0], whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiskFailureKeepsIDsInMemory(t *testing.T) {
	t.Parallel()
	dir, clk := t.TempDir(), newClock()
	c := open(t, dir, clk).Channel("c", window)
	if err := os.WriteFile(c.dir, nil, 0o644); err != nil { // where the directory should be
		t.Fatal(err)
	}
	a := mustClaim(t, c, "a", "x")
	intend(c, a).Done(Answer{BaseOffset: 3})
	if r := first(t, c, "a", "x"); r.Offset != 3 {
		t.Errorf("offset %d, want 3", r.Offset)
	}
	clk.now = clk.now.Add(window + time.Second)
	c.store.Expire()
	mustClaim(t, c, "a", "x")
}

func TestSumTellsPiecesApart(t *testing.T) {
	t.Parallel()
	sums := map[Sum]string{}
	for _, pieces := range [][][]byte{{[]byte("ab"), []byte("c")}, {[]byte("a"), []byte("bc")}, {nil, []byte("abc")}, {{}, []byte("abc")}, {[]byte("abc")}} {
		s := SumOf(pieces...)
		if other, ok := sums[s]; ok {
			t.Errorf("%q and %s have the same sum", pieces, other)
		}
		sums[s] = fmt.Sprintf("%q", pieces)
	}
}

func FuzzRecord(f *testing.F) {
	valid := appendRecord(nil, 1, &target, []slot{{index: 1}, {index: 2}})
	f.Add(valid, "t")
	f.Fuzz(func(t *testing.T, b []byte, topic string) {
		if h, err := parseHead(b); err == nil && h.size <= len(b) {
			_ = recordSum(b[:h.size])
		}
		if h, err := parseRecord(b); err == nil {
			for i := range h.count {
				parseSlot(b[slotsAt+i*slotSize:])
			}
		}
		parseAnswer(b)
		if _, err := parseFileHeader(b); err != nil && !errors.Is(err, errRecord) && !errors.Is(err, ErrVersion) {
			t.Error(err)
		}
		if topic == "" || len(topic) > maxTopic {
			return
		}
		want := target
		want.Topic = topic
		h, err := parseRecord(appendRecord(nil, 1, &want, []slot{{index: 1}}))
		if err != nil || h.target != want {
			t.Errorf("%+v %v, want %+v", h.target, err, want)
		}
	})
}

func BenchmarkClaim(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir(), MaxIDs: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := s.Channel("c", window)
	b.ReportAllocs()
	const batch = 100
	members := make([]Member, batch)
	for i := 0; i < b.N; i += batch {
		for j := range members {
			members[j] = Member{Claim: mustClaim(b, c, fmt.Sprint(i+j), "x"), Index: j}
		}
		c.Intend(target, members).Done(Answer{BaseOffset: int64(i)})
	}
}
