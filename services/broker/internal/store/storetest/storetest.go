// Package storetest holds implementations of store.Store to what the interface says, over a file system that loses power and
// fails as it is told. Nothing outside of tests may use it.
package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// Open opens a store in directories of a file system; see store.OpenFS. What an implementation keeps elsewhere it finds by dirs.
type Open func(fsys vfs.FS, files *vfs.Files, dirs []string) (store.Store, error)

// Run is the whole suite.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"a new store is empty", empty},
		{"what is created is found", created},
		{"names that can not be are refused", names},
		{"places", places},
		{"directories fail and come back", fences},
		{"an error of the disk comes back as it is", diskErrors},
		{"remove", remove},
		{"a topic made again is another one", again},
		{"many at a time", concurrent},
		{"what is created survives", createSurvives},
		{"what a dead process left is made durable", createAfterDeath},
		{"of two checkpoints one survives", checkpointSurvives},
		{"a swap is one step", swapSurvives},
		{"a swap can be dropped", dropSwap},
		{"a deletion is one step", deleteSurvives},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

// bed is a store with what is below it.
type bed struct {
	store.Store
	t     *testing.T
	open  Open
	mem   *vfstest.Mem
	fault *vfstest.Fault
	files *vfs.Files
}

var dirs = []string{"/a", "/b"}

func newBed(t *testing.T, open Open) *bed { return openBed(t, open, vfstest.NewMem()) }

func openBed(t *testing.T, open Open, mem *vfstest.Mem) *bed {
	t.Helper()
	b := &bed{t: t, open: open, mem: mem, fault: vfstest.NewFault(mem)}
	b.files = vfs.NewFiles(b.fault, 8)
	s, err := open(b.fault, b.files, dirs)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	b.Store = s
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		b.files.Close()
	})
	return b
}

// afterPowerLoss opens what a loss of power at this moment leaves.
func (b *bed) afterPowerLoss(seed uint64) *bed {
	b.t.Helper()
	return openBed(b.t, b.open, b.mem.Crash(rand.New(rand.NewPCG(seed, 0))))
}

var errPower = errors.New("the power fails")

// eachStep lets the power fail at each step of do on a new bed, before the first and after the last one too, and has check look at
// what is left. done says whether do had returned without an error.
func eachStep(t *testing.T, open Open, prepare func(*bed), do func(*bed) error, check func(left *bed, done bool)) {
	t.Helper()
	for step := 0; ; step++ {
		b := newBed(t, open)
		prepare(b)
		n := 0
		b.fault.Set(func(op vfstest.Op, _ string) error {
			if op == vfstest.OpRead || op == vfstest.OpStat {
				return nil
			}
			if n++; n > step {
				return errPower
			}
			return nil
		})
		err := do(b)
		b.fault.Set(nil)
		if err != nil && !errors.Is(err, errPower) {
			t.Fatalf("step %d: %v", step, err)
		}
		for seed := range uint64(12) {
			check(b.afterPowerLoss(seed), err == nil)
			if t.Failed() {
				t.Fatalf("after step %d, power loss %d", step, seed)
			}
		}
		if err == nil {
			if step < 2 {
				t.Fatalf("done in %d steps: this test proves nothing", step)
			}
			return
		}
	}
}

func key(topic string, id byte, partition int32) store.Key {
	return store.Key{Topic: topic, ID: store.ID{id}, Partition: partition}
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// create makes a segment with one synced batch, somewhere but in the directories to avoid.
func (b *bed) create(k store.Key, base int64, avoid ...store.ID) store.Segment {
	b.t.Helper()
	s, err := b.Create(k, base, segment.Options{}, avoid...)
	b.must(err)
	builder := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	builder.Append(1, nil, fmt.Appendf(nil, "%s %d", k, base), nil)
	batch, err := builder.Build(nil)
	b.must(err)
	recordbatch.SetOffset(batch, base, 0)
	h, err := recordbatch.Check(batch)
	b.must(err)
	b.must(s.Append([][]byte{batch}, []segment.Batch{segment.BatchOf(h)}))
	b.must(s.Seal())
	return s
}

// content is what the segments of a partition hold, by base; a segment whose bytes are not those of create is an error.
func (b *bed) content(k store.Key) (bases []int64) {
	b.t.Helper()
	found, err := b.Load(k)
	b.must(err)
	if found.Key != k {
		b.t.Errorf("load %v answers with %v", k, found.Key)
	}
	if !slices.IsSortedFunc(found.Segments, func(x, y store.Stub) int { return cmp.Compare(x.Base, y.Base) }) {
		b.t.Errorf("segments are not in order: %v", found.Segments)
	}
	for _, stub := range found.Segments {
		s, err := b.Open(k, stub, segment.Options{})
		b.must(err)
		records := 0
		_, err = s.Scan(0, stub.Size, func(_ int64, h recordbatch.Header, batch []byte) error {
			for r, err := range recordbatch.Records(batch, 0) {
				if want := fmt.Appendf(nil, "%s %d", k, h.BaseOffset); err != nil || !bytes.Equal(r.Value, want) {
					b.t.Errorf("segment %d holds %q, want %q: %v", stub.Base, r.Value, want, err)
				}
				records++
			}
			return nil
		})
		if err != nil || records == 0 {
			b.t.Errorf("segment %d of %d bytes holds %d records: %v", stub.Base, stub.Size, records, err)
		}
		bases = append(bases, stub.Base)
	}
	return bases
}

func (b *bed) wantBases(k store.Key, want ...int64) {
	b.t.Helper()
	if got := b.content(k); !slices.Equal(got, want) {
		b.t.Errorf("%v has segments %v, want %v", k, got, want)
	}
}

func (b *bed) wantList(want ...store.Key) {
	b.t.Helper()
	got, err := b.List()
	b.must(err)
	order := func(x, y store.Key) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), bytes.Compare(x.ID[:], y.ID[:]), cmp.Compare(x.Partition, y.Partition))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		b.t.Errorf("the store lists %v, want %v", got, want)
	}
}

// swap leaves a complete compacted segment of [first, end), with what create puts at first and at more, as a compaction does.
func (b *bed) swap(k store.Key, beside store.Segment, first, end int64) store.Swap {
	b.t.Helper()
	var all []byte
	found, err := b.Load(k)
	b.must(err)
	for _, stub := range found.Segments {
		if stub.Base >= first && stub.Base < end {
			text, err := vfs.ReadFile(b.fault, filepath.Join(beside.Segment.Dir(), segment.Name(stub.Base, segment.LogSuffix)))
			b.must(err)
			all = append(all, text...)
		}
	}
	b.must(vfs.WriteFile(b.fault, filepath.Join(beside.Segment.Dir(), store.SwapName(first, end)), all))
	b.must(b.fault.SyncDir(beside.Segment.Dir()))
	return store.Swap{Dir: beside.Segment.Dir(), ID: beside.Dir, First: first, End: end, Size: int64(len(all))}
}
