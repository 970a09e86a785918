package journal_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/journal"
	"github.com/databus-suite/databus/services/broker/internal/journal/journaltest"
)

// place is a directory for a Local, on a file system that loses power and fails as it is told.
type place struct {
	mem   *vfstest.Mem
	fault *vfstest.Fault
}

func newPlace(mem *vfstest.Mem) place { return place{mem, vfstest.NewFault(mem)} }

func (p place) Open() (journal.Journal, error) {
	j, err := journal.OpenLocal("/d/journal", journal.Options{FS: p.fault, FileBytes: 5 * vfs.DirectAlign})
	if err != nil {
		return nil, err
	}
	return j, nil
}

func (p place) PowerLoss(rng *rand.Rand) journaltest.Place { return newPlace(p.mem.Crash(rng)) }

func (p place) Fail(err error)     { p.fail(err, vfstest.OpWrite, vfstest.OpSync) }
func (p place) FailSync(err error) { p.fail(err, vfstest.OpSync) }

func (p place) fail(err error, ops ...vfstest.Op) {
	p.fault.Set(func(op vfstest.Op, _ string) error {
		if slices.Contains(ops, op) {
			return err
		}
		return nil
	})
}

func TestLocal(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Place {
		mem := vfstest.NewMem()
		if err := mem.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		if err := mem.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		return newPlace(mem)
	})
}
