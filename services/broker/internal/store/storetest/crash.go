package storetest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

func createSurvives(t *testing.T, open Open) {
	k, before := key("t", 1, 3), key("before", 2, 0)
	eachStep(t, open, func(b *bed) { b.create(before, 0) }, func(b *bed) error {
		_, err := b.Create(k, 42, segment.Options{})
		return err
	}, func(left *bed, done bool) {
		left.wantBases(before, 0)
		found, err := left.Load(k)
		left.must(err)
		if done && (len(found.Segments) != 1 || found.Segments[0].Base != 42) {
			t.Errorf("what was created is not there: %v", found.Segments)
		}
		if done {
			left.wantList(before, k)
		}
		left.must(left.DeletePartition(k)) // a half made one is in nobody's way
		left.create(k, 0)
		left.wantBases(k, 0)
	})
}

// createAfterDeath creates what a process that died had begun to create, so that some of it is there and not yet durable.
func createAfterDeath(t *testing.T, open Open) {
	k := key("t", 1, 0)
	for step := range 30 {
		dead := newBed(t, open)
		n := 0
		dead.fault.Set(func(vfstest.Op, string) error {
			if n++; n > step {
				return errPower
			}
			return nil
		})
		_, _ = dead.Create(k, 0, segment.Options{}, dead.Dirs()[1].ID)
		b := openBed(t, open, dead.mem.Clone())
		b.create(k, 0, b.Dirs()[1].ID)
		for seed := range uint64(8) {
			left := b.afterPowerLoss(seed)
			left.wantList(k)
			left.wantBases(k, 0)
		}
	}
}

// checkpointSurvives saves checkpoints of different lengths in a row. The one before the one at which the power fails is whole.
func checkpointSurvives(t *testing.T, open Open) {
	k := key("t", 1, 0)
	text := func(generation uint64) string {
		return fmt.Sprintf("%d:%s;", generation, strings.Repeat(strconv.FormatUint(generation, 10), int(3000*(1+generation*7%4)))) //nolint:gosec // small
	}
	for last := uint64(1); last < 6; last++ {
		eachStep(t, open, func(b *bed) {
			for generation := uint64(1); generation < last; generation++ {
				b.must(b.SaveCheckpoint(k, b.Dirs()[0].ID, generation, []byte(text(generation))))
			}
		}, func(b *bed) error { return b.SaveCheckpoint(k, b.Dirs()[0].ID, last, []byte(text(last))) }, func(left *bed, done bool) {
			found, err := left.Load(k)
			left.must(err)
			newest := last - 1
			if done {
				newest = last
			}
			has := func(generation uint64) bool {
				return slices.ContainsFunc(found.Checkpoints, func(c []byte) bool { return string(c) == text(generation) })
			}
			if newest > 0 && !has(newest) {
				t.Errorf("checkpoint %d of %d was lost", newest, last)
			}
		})
	}
}

// swapSurvives: at any moment there is either the swap, and FinishSwap completes it, or what it stands for.
func swapSurvives(t *testing.T, open Open) {
	k := key("t", 1, 0)
	var w store.Swap
	eachStep(t, open, func(b *bed) { w = b.threeAndSwap(k) }, func(b *bed) error { return b.FinishSwap(w) }, func(left *bed, done bool) {
		found, err := left.Load(k)
		left.must(err)
		switch {
		case len(found.Swaps) > 0 && done:
			t.Error("the swap is back")
		case len(found.Swaps) > 1 || len(found.Swaps) == 1 && (found.Swaps[0].First != 0 || found.Swaps[0].End != 20 || found.Swaps[0].Size != w.Size):
			t.Errorf("swaps: %+v, want one like %+v", found.Swaps, w)
		case len(found.Swaps) == 1:
			left.must(left.FinishSwap(found.Swaps[0]))
		}
		left.wantBases(k, 0, 20)
		if found, err = left.Load(k); err != nil || len(found.Swaps) > 0 || len(found.Segments) == 0 || found.Segments[0].Size != w.Size {
			t.Errorf("the compacted segment of %d bytes is not in its place: %+v, %v", w.Size, found, err)
		}
	})
}

// threeAndSwap makes three segments in one directory and a swap for the first two.
func (b *bed) threeAndSwap(k store.Key) store.Swap {
	b.t.Helper()
	first := b.create(k, 0)
	avoid := b.Dirs()[0].ID
	if first.Dir == avoid {
		avoid = b.Dirs()[1].ID
	}
	b.create(k, 10, avoid)
	b.create(k, 20, avoid)
	return b.swap(k, first, 0, 20)
}

func dropSwap(t *testing.T, open Open) {
	b := newBed(t, open)
	k := key("t", 1, 0)
	w := b.threeAndSwap(k)
	unfinished := filepath.Join(w.Dir, store.SwapName(20, 30)+store.CleanedSuffix)
	b.must(vfs.WriteFile(b.fault, unfinished, []byte("half of a segment")))
	found, err := b.Load(k)
	if err != nil || len(found.Swaps) != 1 {
		t.Fatalf("swaps: %+v, %v", found.Swaps, err)
	}
	if _, err := b.mem.Stat(unfinished); err == nil {
		t.Error("an unfinished compaction stays")
	}
	b.must(b.DropSwap(found.Swaps[0]))
	b.wantBases(k, 0, 10, 20)
	if found, err = b.Load(k); err != nil || len(found.Swaps) > 0 {
		t.Errorf("a swap that was dropped is still there: %+v, %v", found.Swaps, err)
	}
}

// deleteSurvives: in each directory all of a partition is there or nothing, and other partitions are not affected.
func deleteSurvives(t *testing.T, open Open) {
	gone, stays := key("t", 1, 0), key("t", 1, 1)
	place := make(map[int64]store.ID)
	eachStep(t, open, func(b *bed) {
		all := b.Dirs()
		for base := range int64(4) {
			place[base] = b.create(gone, base, all[base%2].ID).Dir
		}
		b.create(stays, 9)
	}, func(b *bed) error { return b.DeletePartition(gone) }, func(left *bed, done bool) {
		left.wantBases(stays, 9)
		in := make(map[store.ID]int)
		for _, base := range left.content(gone) {
			in[place[base]]++
		}
		for _, n := range in {
			if n != 2 {
				t.Errorf("a part of a deleted partition is left: %v", in)
			}
		}
		if done {
			left.wantList(stays)
		}
		left.must(left.DeletePartition(gone))
		left.wantList(stays)
	})
}
