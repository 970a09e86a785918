package disk

import (
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/test/harness"
)

// faulty is a broker on a file system, mounted by FUSE, that fails as it is told and keeps apart what was synced.
type faulty struct {
	mem      *vfstest.Mem
	fault    *vfstest.Fault
	at       string
	dirs     []string
	metadata string
	broker   *harness.Service
	known    *ledger
	hits     atomic.Int64 // operations that failed
}

func startFaulty(t *testing.T, dirs ...string) *faulty {
	t.Helper()
	needsFuse(t)
	f := &faulty{mem: vfstest.NewMem(), at: mountPoint(t), metadata: t.TempDir(), known: newLedger()}
	for _, dir := range dirs {
		f.dirs = append(f.dirs, filepath.Join(f.at, dir))
	}
	f.start(t)
	mustCreate(t, f.broker)
	return f
}

// start mounts f.mem and starts a broker on it.
func (f *faulty) start(t *testing.T) {
	t.Helper()
	f.fault = vfstest.NewFault(f.mem)
	unmount, err := mount(f.at, f.fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	f.broker = startBroker(t, strings.Join(f.dirs, ","), "nats.store_dir="+f.metadata)
}

// fail makes operations below a directory of the mount fail with EIO.
func (f *faulty) fail(dir string, ops ...vfstest.Op) {
	f.fault.Set(func(op vfstest.Op, name string) error {
		for _, o := range ops {
			if o == op && strings.HasPrefix(name, "/"+dir+"/") {
				f.hits.Add(1)
				return syscall.EIO
			}
		}
		return nil
	})
}

// afterPowerLoss starts a broker on what a loss of power at this moment leaves, and checks that all that was acknowledged is there.
func (f *faulty) afterPowerLoss(t *testing.T, seed uint64) *faulty {
	t.Helper()
	left, disk := f.known.cut(f.mem, rand.New(rand.NewPCG(seed, 0)))
	if err := f.broker.Kill(); err != nil {
		t.Fatal(err)
	}
	after := &faulty{mem: disk, at: mountPoint(t), known: left, metadata: f.metadata}
	for _, dir := range f.dirs {
		after.dirs = append(after.dirs, filepath.Join(after.at, filepath.Base(dir)))
	}
	after.start(t)
	mustCheck(t, after.broker, left)
	return after
}

// mustBe checks how the command line and the metrics show the state of a directory.
func mustBe(t *testing.T, broker *harness.Service, path, state string) {
	t.Helper()
	line := ""
	for l := range strings.Lines(directories(t, broker)) {
		if strings.Contains(l, `"`+path+`"`) {
			line = l
		}
	}
	healthy := map[string]string{"HEALTHY": "1", "FENCED": "0"}[state]
	metrics, err := harness.Call(t.Context(), http.DefaultClient, http.MethodGet, broker.URL()+"/metrics", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(line, `"state":"`+state+`"`) || strings.Contains(line, `"error"`) != (state == "FENCED") {
		t.Errorf("%s should be %s: %s", path, state, line)
	}
	if want := `databus_broker_directory_healthy{directory="` + path + `"} ` + healthy; !strings.Contains(string(metrics.Body), want) {
		t.Errorf("the metrics do not have %s", want)
	}
}

// mustComeBack restores a directory by command: not while it fails, and once it works again.
func mustComeBack(t *testing.T, broker *harness.Service, path string, mend func()) {
	t.Helper()
	mustBe(t, broker, path, "FENCED")
	if _, err := databus(t, broker, "directory", "restore", path); err == nil {
		t.Error("a directory that still fails was taken back")
	}
	mustBe(t, broker, path, "FENCED")
	mend()
	if _, err := databus(t, broker, "directory", "restore", path); err != nil {
		t.Fatal(err)
	}
	mustBe(t, broker, path, "HEALTHY")
}

// TestOneOfTwoDirectoriesFails: when writes or syncs of a directory fail, partitions go on in the other one and producers notice
// nothing but the time it takes. No sync that failed counts: a loss of power afterwards takes nothing that was acknowledged.
func TestOneOfTwoDirectoriesFails(t *testing.T) {
	for _, c := range []struct {
		name, dir string
		op        vfstest.Op
	}{
		{"write beside the journal", "0", vfstest.OpWrite}, {"sync beside the journal", "0", vfstest.OpSync},
		{"write", "1", vfstest.OpWrite}, {"sync", "1", vfstest.OpSync},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startFaulty(t, "0", "1")
			path := filepath.Join(f.at, c.dir)
			l := startLoad(t, f.broker, f.known)
			l.each(t, false)
			l.gap()
			f.fail(c.dir, c.op)
			l.each(t, false)
			l.each(t, false)
			t.Logf("%s was the longest that a producer waited while %s of its directory failed", l.gap(), c.op)
			if n := l.refusals(); len(n) > 0 || f.hits.Load() == 0 {
				t.Errorf("refused, while another directory works: %v; %d operations failed", n, f.hits.Load())
			}
			mustComeBack(t, f.broker, path, func() { f.fault.Set(nil) })
			for range 3 {
				l.each(t, false)
			}
			f.fail(c.dir, c.op) // and once more, in the middle of which the power fails
			l.each(t, false)
			f.afterPowerLoss(t, 1)
			l.cancel()
		})
	}
}

// TestOnlyDirectoryFails: without another directory appends are refused in a way that can be tried again, reads go on, and a
// command brings it back.
func TestOnlyDirectoryFails(t *testing.T) {
	for _, op := range []vfstest.Op{vfstest.OpWrite, vfstest.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			f := startFaulty(t, "0")
			l := startLoad(t, f.broker, f.known)
			l.each(t, false)
			f.fail("0", op)
			l.each(t, true)
			if n := l.refusals(); n["NO_SPACE"] > 0 {
				t.Errorf("refusals: %v", n)
			}
			l.stop(t)
			mustCheck(t, f.broker, f.known)
			l = startLoad(t, f.broker, f.known)
			l.each(t, true)
			mustComeBack(t, f.broker, f.dirs[0], func() { f.fault.Set(nil) })
			l.each(t, false)
			f.afterPowerLoss(t, 1)
			l.cancel()
		})
	}
}

// TestReadsFail: what can not be read now is an error that can be tried again, never a wrong or a missing record; appends and
// what memory has are not affected.
func TestReadsFail(t *testing.T) {
	f := startFaulty(t, "0")
	l := startLoad(t, f.broker, f.known)
	for range 5 {
		l.each(t, false)
	}
	l.stop(t)
	if err := f.broker.Kill(); err != nil { // memory forgets
		t.Fatal(err)
	}
	if err := f.broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.fail("0", vfstest.OpRead)
	conn, err := dial(f.broker.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fetch := func(offset int64) error {
		_, err := brokerv1.NewLogServiceClient(conn).Fetch(t.Context(), &brokerv1.FetchRequest{Topic: topic, Offset: offset}, grpc.WaitForReady(true))
		return err
	}
	err = fetch(0)
	if reason, bad := retryable(err); err == nil || bad != nil || reason != "DIRECTORY_FAILED" {
		t.Errorf("fetch: %v, reason %q", err, reason)
	}
	l = startLoad(t, f.broker, f.known)
	l.each(t, false)
	l.stop(t)
	if err := fetch(int64(len(f.known.at[0]) - 1)); err != nil {
		t.Errorf("fetch what memory has: %v", err)
	}
	f.fault.Set(nil)
	mustCheck(t, f.broker, f.known)
}
