// Package journaltest holds implementations of journal.Journal to what the interface says. Nothing outside of tests may use it.
package journaltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/services/broker/internal/journal"
)

// Place is where a journal keeps what it has.
type Place interface {
	// Open opens the journal; again after Close, or after its process is thought to have died.
	Open() (journal.Journal, error)
	// PowerLoss returns what a loss of power at this moment leaves. The place itself goes on unharmed.
	PowerLoss(rng *rand.Rand) Place
	// Fail makes every write and sync from now on fail with err, without an effect; nil ends that.
	Fail(err error)
	// FailSync is Fail for syncs alone: what is written is there until the power fails.
	FailSync(err error)
}

// Run is the whole suite. newPlace returns an empty place; a journal in it should need several files, or whatever it trims by, for
// 5 KB.
func Run(t *testing.T, newPlace func(t *testing.T) Place) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Place)
	}{
		{"what is appended is replayed in order", order},
		{"entries are not kept", notKept},
		{"what is trimmed may go, the rest stays", trim},
		{"all of it can be trimmed", trimAll},
		{"it can be read while it is appended to", readBeside},
		{"many at a time", concurrent},
		{"no room leaves it usable", full},
		{"a failure is final", failed},
		{"an error of the reader ends a replay", readerFails},
		{"it can be closed", closed},
		{"what is replayed is durable", replayIsDurable},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newPlace(t)) })
	}
	t.Run("what was acknowledged survives a loss of power", func(t *testing.T) {
		for seed := range uint64(60) {
			powerLoss(t, newPlace(t), rand.New(rand.NewPCG(seed, 5)))
		}
	})
}

func entry(partition int32, base int64, text string) journal.Entry {
	return journal.Entry{Topic: [16]byte{1, byte(partition)}, Partition: partition, Base: base, Last: base + 1, Batches: [][]byte{[]byte(text), []byte("!")}}
}

func line(partition int32, base int64, text string) string {
	return fmt.Sprintf("%d/%d/%d/%d %s!", partition, partition, base, base+1, text)
}

// open opens a journal and returns what it replays.
func open(t *testing.T, p Place) (journal.Journal, []string) {
	t.Helper()
	j, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	lines, err := collect(t, j.Replay)
	if err != nil {
		t.Fatal(err)
	}
	return j, lines
}

// collect calls Replay or Read.
func collect(t *testing.T, call func(func(uint64, journal.Entry) error) error) (lines []string, err error) {
	t.Helper()
	last := uint64(0)
	err = call(func(seq uint64, e journal.Entry) error {
		if seq < last {
			t.Errorf("flush %d after %d", seq, last)
		}
		last = seq
		var text strings.Builder
		for _, b := range e.Batches {
			text.Write(b)
		}
		lines = append(lines, fmt.Sprintf("%d/%d/%d/%d %s", e.Topic[1], e.Partition, e.Base, e.Last, text.String()))
		return nil
	})
	return lines, err
}

func add(t *testing.T, j journal.Journal, entries ...journal.Entry) uint64 {
	t.Helper()
	seq, err := j.Append(entries)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func reopen(t *testing.T, j journal.Journal, p Place) (journal.Journal, []string) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, p)
}

func want(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func order(t *testing.T, p Place) {
	j, lines := open(t, p)
	want(t, lines, nil)
	var all []string
	var last uint64
	for i := range int64(50) {
		seq := add(t, j, entry(0, i, "a"), entry(1, i, "b"))
		if seq <= last {
			t.Fatalf("flush %d after %d", seq, last)
		}
		last = seq
		all = append(all, line(0, i, "a"), line(1, i, "b"))
	}
	j, lines = reopen(t, j, p)
	want(t, lines, all)
	if seq := add(t, j, entry(0, 50, "c")); seq <= last {
		t.Errorf("flush %d after %d and a restart", seq, last)
	}
	_, lines = open(t, p) // the process died
	want(t, lines, append(all, line(0, 50, "c")))
}

func notKept(t *testing.T, p Place) {
	j, _ := open(t, p)
	e := []journal.Entry{entry(0, 0, "mine")}
	add(t, j, e...)
	copy(e[0].Batches[0], "yours")
	e[0].Base = 99
	lines, err := collect(t, j.Read)
	if err != nil {
		t.Error(err)
	}
	want(t, lines, []string{line(0, 0, "mine")})
}

func trim(t *testing.T, p Place) {
	j, _ := open(t, p)
	var seqs []uint64
	var kept []string
	const text = "some text to fill a file with"
	for i := range int64(100) {
		seqs = append(seqs, add(t, j, entry(0, i, text)))
		if i > 79 {
			kept = append(kept, line(0, i, text))
		}
	}
	before := j.Size()
	if err := j.Trim(seqs[79]); err != nil {
		t.Fatal(err)
	}
	if j.Size() >= before || j.Size() == 0 {
		t.Errorf("a trim of four fifths left %d of %d bytes", j.Size(), before)
	}
	for i := int64(100); i < 150; i++ {
		add(t, j, entry(0, i, "over what was trimmed"))
		kept = append(kept, line(0, i, "over what was trimmed"))
	}
	read, err := collect(t, j.Read)
	if err != nil {
		t.Error(err)
	}
	_, replayed := reopen(t, j, p)
	for _, lines := range [][]string{read, replayed} {
		if len(lines) < len(kept) {
			t.Fatalf("%d entries are left, want %d at least", len(lines), len(kept))
		}
		want(t, lines[len(lines)-len(kept):], kept)
	}
}

func trimAll(t *testing.T, p Place) {
	j, _ := open(t, p)
	for i := range int64(5) {
		add(t, j, entry(0, i, "x"))
	}
	if err := j.Trim(^uint64(0)); err != nil {
		t.Fatal(err)
	}
	if j.Size() != 0 {
		t.Errorf("%d bytes are left", j.Size())
	}
	_, lines := reopen(t, j, p)
	want(t, lines, nil)
}

func readBeside(t *testing.T, p Place) {
	j, _ := open(t, p)
	var all []string
	for i := range int64(40) {
		add(t, j, entry(0, i, "some text to fill a file with"))
		all = append(all, line(0, i, "some text to fill a file with"))
		lines, err := collect(t, j.Read)
		if err != nil {
			t.Fatal(err)
		}
		want(t, lines, all)
	}
}

func concurrent(t *testing.T, p Place) {
	j, _ := open(t, p)
	const each = 40
	var wg sync.WaitGroup
	for n := range int32(4) {
		wg.Go(func() {
			for i := range int64(each) {
				if _, err := j.Append([]journal.Entry{entry(n, i, "text")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range each {
			if _, err := collect(t, j.Read); err != nil {
				t.Error(err)
			}
			if err := j.Trim(0); err != nil || j.Size() < 0 {
				t.Errorf("trim nothing: %v, %d bytes", err, j.Size())
			}
		}
	})
	wg.Wait()
	_, lines := reopen(t, j, p)
	next := make(map[int32]int64)
	for _, l := range lines {
		var topic, partition int32
		var base int64
		if _, err := fmt.Sscanf(l, "%d/%d/%d/", &topic, &partition, &base); err != nil || base != next[partition] {
			t.Fatalf("%s follows entry %d: %v", l, next[partition]-1, err)
		}
		next[partition]++
	}
	if len(lines) != 4*each {
		t.Errorf("%d entries of %d", len(lines), 4*each)
	}
}

func full(t *testing.T, p Place) {
	j, _ := open(t, p)
	add(t, j, entry(0, 0, "before"))
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		p.Fail(cause)
		for range 3 {
			if _, err := j.Append([]journal.Entry{entry(0, 1, strings.Repeat("refused", 300))}); !errors.Is(err, journal.ErrFull) || !errors.Is(err, cause) {
				t.Errorf("append without room: %v", err)
			}
		}
		p.Fail(nil)
	}
	add(t, j, entry(0, 1, "after"))
	lines, err := collect(t, j.Read)
	if err != nil {
		t.Error(err)
	}
	all := []string{line(0, 0, "before"), line(0, 1, "after")}
	want(t, lines, all)
	_, lines = reopen(t, j, p)
	want(t, lines, all)
}

func failed(t *testing.T, p Place) {
	j, _ := open(t, p)
	add(t, j, entry(0, 0, "before"))
	p.Fail(syscall.EIO)
	if _, err := j.Append([]journal.Entry{entry(0, 1, "refused")}); !errors.Is(err, journal.ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("append that fails: %v", err)
	}
	p.Fail(nil)
	if _, err := j.Append([]journal.Entry{entry(0, 1, "refused too")}); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("append after one that failed: %v", err)
	}
	lines, err := collect(t, j.Read)
	if err != nil {
		t.Error(err)
	}
	want(t, lines, []string{line(0, 0, "before")})
	j, lines = reopen(t, j, p)
	if len(lines) == 0 || lines[0] != line(0, 0, "before") {
		t.Errorf("after a restart: %v", lines)
	}
	add(t, j, entry(0, 1, "after"))
}

func readerFails(t *testing.T, p Place) {
	j, _ := open(t, p)
	for i := range int64(3) {
		add(t, j, entry(0, i, "x"))
	}
	own := errors.New("the reader's own")
	n := 0
	err := j.Read(func(uint64, journal.Entry) error { n++; return own })
	if !errors.Is(err, own) || n != 1 {
		t.Errorf("read: %v after %d entries", err, n)
	}
	again, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Replay(func(uint64, journal.Entry) error { return own }); !errors.Is(err, own) {
		t.Errorf("replay: %v", err)
	}
}

// replayIsDurable replays a flush that was written and not synced when its process died.
func replayIsDurable(t *testing.T, p Place) {
	j, _ := open(t, p)
	add(t, j, entry(0, 0, "synced"))
	p.FailSync(syscall.EIO)
	if _, err := j.Append([]journal.Entry{entry(0, 1, "written")}); err == nil {
		t.Fatal("a flush whose sync failed was acknowledged")
	}
	p.FailSync(nil)
	_, lines := open(t, p) // the process died
	for seed := range uint64(8) {
		_, left := open(t, p.PowerLoss(rand.New(rand.NewPCG(seed, 0))))
		want(t, left, lines)
	}
}

func closed(t *testing.T, p Place) {
	j, _ := open(t, p)
	add(t, j, entry(0, 0, "x"))
	for range 2 {
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := j.Append([]journal.Entry{entry(0, 1, "x")}); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	_, lines := open(t, p)
	want(t, lines, []string{line(0, 0, "x")})
}

// powerLoss appends and trims through some losses of power. Nothing acknowledged is missing, however often files are written
// over, and what is there goes on without a hole.
func powerLoss(t *testing.T, p Place, rng *rand.Rand) {
	t.Helper()
	var acked, trimmed int64
	for range 4 {
		j, err := p.Open()
		if err != nil {
			t.Fatal(err)
		}
		next, last := trimmed, int64(-1)
		err = j.Replay(func(_ uint64, e journal.Entry) error {
			if e.Base > next || last >= 0 && e.Base != last+1 {
				return fmt.Errorf("entry %d after %d and %d", e.Base, last, next)
			}
			last, next = e.Base, max(next, e.Last)
			return nil
		})
		if err != nil || next < acked {
			t.Fatalf("replayed up to %d of %d: %v", next, acked, err)
		}
		acked = next
		for range rng.IntN(60) {
			e := journal.Entry{Base: acked, Last: acked + 1, Batches: [][]byte{make([]byte, rng.IntN(300))}}
			seq, err := j.Append([]journal.Entry{e})
			if err != nil {
				t.Fatal(err)
			}
			acked++
			if rng.IntN(8) == 0 {
				if err := j.Trim(seq); err != nil {
					t.Fatal(err)
				}
				trimmed = acked
			}
		}
		if rng.IntN(2) == 0 { // in the middle of a flush
			p.Fail(syscall.EIO)
			_, _ = j.Append([]journal.Entry{{Base: acked, Last: acked + 1, Batches: [][]byte{make([]byte, 700)}}})
			p.Fail(nil)
		}
		_ = j.Close()
		if rng.IntN(3) > 0 { // else the process alone died
			p = p.PowerLoss(rng)
		}
	}
}
