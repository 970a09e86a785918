package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// crashed is one life of a spool in the crash test: what producers were told, against what the broker has at the end.
type crashed struct {
	t     *testing.T
	r     *rand.Rand
	b     *broker
	next  int
	acked map[place][]string // told durable, in order
}

// TestCrash takes the power away, or kills the process, at random points over and over; in the end every message that a
// producer was told is safe must be in the log once, in order.
func TestCrash(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if text := os.Getenv("DATABUS_TEST_CRASH_ROUNDS"); text != "" {
		if n, err := strconv.ParseUint(text, 10, 32); err == nil {
			seeds = n
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := crashed{t: t, r: rand.New(rand.NewPCG(seed, 1)), b: newBroker(), acked: map[place][]string{}}
			fs := newMemFS()
			for range 6 {
				s, err := Open(Config{Dir: "d", FS: fs, FileBytes: 4 << 10})
				if err != nil {
					t.Fatal(err)
				}
				if d := s.Recovery().Damaged; d > 0 {
					t.Fatalf("a crash looks like damage in %d places", d)
				}
				c.live(s, fs)
				if c.r.IntN(2) == 0 {
					fs = fs.crash(c.r)
				} else {
					fs = fs.kill()
				}
				closeSpool(t, s) // the old file system: nobody sees it
			}
			s := open(t, Config{Dir: "d", FS: fs})
			drain(t, s, c.b)
			c.check()
		})
	}
}

var errDiskTest = errors.New("input/output error")

// waiting is the partition's queue, where it has batches. It is not pinned, so that the spool may forget it.
func (c *crashed) waiting(s *Spool, p place) *Queue {
	for _, q := range s.Waiting() {
		if q.place == p {
			return q
		}
	}
	return nil
}

// live spools and sends for a while, leaving something half done.
func (c *crashed) live(s *Spool, fs *memFS) {
	snd := &sender{t: c.t, b: c.b, flying: map[*Queue][]Item{}}
	for range 5 + c.r.IntN(40) {
		p := place{"t", int32(c.r.IntN(3))}
		switch c.r.IntN(4) {
		case 0, 1:
			for range 1 + c.r.IntN(4) { // a group
				c.next++
				value := fmt.Sprint("m", c.next)
				e := Entry{Channel: "c", Topic: p.topic, Partition: p.partition, Layout: 3, Batch: batchOf(c.t, value)}
				last := c.r.IntN(20) == 0
				done := make(chan error, 1)
				if err := s.Append(e, func(err error) { done <- err }); err != nil {
					c.t.Fatal(err)
				}
				if last {
					return // nobody waits for the answer
				}
				if err := <-done; err == nil {
					c.acked[p] = append(c.acked[p], value)
				}
			}
		case 2:
			if q := c.waiting(s, p); q != nil {
				snd.take(q)
			}
		case 3:
			q := c.waiting(s, p)
			if q == nil {
				continue
			}
			snd.answer(q, c.r.IntN(len(snd.flying[q])+1))
			if c.r.IntN(4) == 0 {
				q.Rewind()
				snd.flying[q] = nil
			}
			if c.r.IntN(10) == 0 {
				fs.fail(nil, errDiskTest) // the next group is lost, and perhaps the file with it
				_ = s.Flush(c.t.Context())
				fs.fail(nil, nil)
			}
		}
	}
}

// check compares: the log may hold messages whose producer was never answered, and nothing twice.
func (c *crashed) check() {
	for p, want := range c.acked {
		seen := map[string]bool{}
		var got []string
		for _, v := range c.b.logs[p] {
			if seen[v] {
				c.t.Errorf("%v: %s is in the log twice", p, v)
			}
			seen[v] = true
			got = append(got, v)
		}
		at := 0
		for _, v := range got {
			if at < len(want) && v == want[at] {
				at++
			}
		}
		if at < len(want) {
			c.t.Errorf("%v: %s is missing or out of order\nacknowledged %v\nlog          %v", p, want[at], want, got)
		}
	}
}

// TestDamage changes each byte of a file in turn. Whatever the damage, the rest is kept and nothing is sent under a sequence
// that belonged to another batch.
func TestDamage(t *testing.T) {
	t.Parallel()
	fs := newMemFS()
	s := open(t, Config{Dir: "d", FS: fs})
	b := newBroker()
	snd := &sender{t: t, b: b, flying: map[*Queue][]Item{}}
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprint("message-", i))
		putAll(t, s, orders, want[i])
	}
	q := s.Queue("orders", 0)
	snd.take(q)
	flush(t, s)
	snd.take(q)
	snd.answer(q, 1)
	flush(t, s)
	var name string
	for n := range fs.files {
		name = n
	}
	whole := len(fs.files[name].data)
	for at := range whole {
		again := fs.kill()
		again.files[name].data[at] ^= 0x5a
		s, err := Open(Config{Dir: "d", FS: again})
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		nb := b.clone()
		drain(t, s, nb)
		seen := map[string]bool{}
		for _, v := range nb.logs[orders] {
			if !strings.HasPrefix(v, "message-") {
				t.Errorf("byte %d: %q was never spooled", at, v)
			}
			seen[v] = true
		}
		if missing := len(want) - len(seen); missing > 1 {
			t.Errorf("byte %d: %d batches are missing: %v", at, missing, nb.logs[orders])
		}
		closeSpool(t, s)
	}
}

// TestTruncated cuts the file at each length: what is left is found, and nothing panics.
func TestTruncated(t *testing.T) {
	t.Parallel()
	fs := newMemFS()
	s := open(t, Config{Dir: "d", FS: fs})
	putAll(t, s, orders, "a", "b", "c")
	var name string
	for n := range fs.files {
		name = n
	}
	last := 0
	for size := range len(fs.files[name].data) + 1 {
		again := fs.kill()
		again.files[name].data = again.files[name].data[:size]
		s, err := Open(Config{Dir: "d", FS: again})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		n := s.Recovery().Batches
		if n < last {
			t.Errorf("%d bytes: %d batches, fewer than with less", size, n)
		}
		last = n
		closeSpool(t, s)
	}
	if last != 3 {
		t.Errorf("%d batches in the whole file", last)
	}
}

// TestVersion refuses files of the future, rather than dropping what they hold.
func TestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	putAll(t, s, orders, "a")
	closeSpool(t, s)
	names, err := filepath.Glob(filepath.Join(dir, "*"+fileSuffix))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	h := fileHeader(1)
	h[7] = 9
	putCRC(h)
	if err := os.WriteFile(names[0], append(h, data[fileHeaderSize:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "format 9") {
		t.Errorf("Open: %v, want one that names the format", err)
	}
}
