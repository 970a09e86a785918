package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/test/harness"
)

// vanish makes a directory go away, with files in it open, and returns what brings it back.
var vanish = map[string]func(t *testing.T, dir string) (back func()){
	"renamed": func(t *testing.T, dir string) func() {
		t.Helper()
		must(t, os.Rename(dir, dir+".away"))
		return func() { must(t, os.Rename(dir+".away", dir)) }
	},
	"unmounted": func(t *testing.T, dir string) func() {
		t.Helper()
		must(t, unix.Unmount(dir, unix.MNT_DETACH))
		return func() { must(t, unix.Mount(dir+".disk", dir, "", unix.MS_BIND, "")) }
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goneDirs makes data directories. Each is a mount of another directory, where it is to be unmounted.
func goneDirs(t *testing.T, how string, names ...string) (dirs []string) {
	t.Helper()
	parent := t.TempDir()
	for _, name := range names {
		dir := filepath.Join(parent, name)
		must(t, os.Mkdir(dir, 0o700))
		dirs = append(dirs, dir)
		if how != "unmounted" {
			continue
		}
		must(t, os.Mkdir(dir+".disk", 0o700))
		if err := unix.Mount(dir+".disk", dir, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("needs the right to mount: %v", err)
		}
		t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	}
	return dirs
}

// awaitFenced loads the broker until it has noticed that a directory is gone.
func awaitFenced(t *testing.T, broker *harness.Service, l *load) {
	t.Helper()
	began := time.Now()
	for !strings.Contains(directories(t, broker), `"state":"FENCED"`) {
		select {
		case <-l.failed:
			t.Fatal(l.err)
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		default:
		}
	}
	t.Logf("fenced after %s", time.Since(began))
}

// TestDirectoryGone takes a data directory away from a broker under load. Its partitions go on in the other one, or are refused in
// a way that can be tried again where there is none; nothing is made in its place; and a command takes it back once it is there.
func TestDirectoryGone(t *testing.T) {
	for how := range vanish {
		for name, gone := range map[string]int{"one of two with the journal": 0, "one of two": 1, "the only one": -1} {
			t.Run(how+" "+name, func(t *testing.T) {
				dirs := goneDirs(t, how, "0", "1")
				if gone < 0 {
					dirs = dirs[:1]
				}
				directoryGone(t, how, dirs, dirs[max(gone, 0)])
			})
		}
	}
}

func directoryGone(t *testing.T, how string, dirs []string, dir string) {
	t.Helper()
	broker := startBroker(t, strings.Join(dirs, ","), "nats.store_dir="+t.TempDir())
	known := newLedger()
	mustCreate(t, broker)
	l := startLoad(t, broker, known)
	l.each(t, false)
	l.gap()
	back := vanish[how](t, dir)
	awaitFenced(t, broker, l)
	l.each(t, len(dirs) == 1)
	if len(dirs) > 1 {
		l.each(t, false)
		t.Logf("%s was the longest that a producer waited", l.gap())
	}
	if n := l.refusals(); len(dirs) > 1 && len(n) > 0 {
		t.Errorf("refused, while another directory works: %v", n)
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
		t.Errorf("%s is gone, and %v was made in its place", dir, left)
	}
	mustComeBack(t, broker, dir, back)
	for range 3 {
		l.each(t, false)
	}
	l.stop(t)
	mustCheck(t, broker, known)
	must(t, broker.Kill())
	must(t, broker.Start(t.Context()))
	mustCheck(t, broker, known)
}

// TestDirectoryDeleted deletes one of two data directories under load. What it held is lost; the other goes on, and an empty
// directory in its place is not taken for it.
func TestDirectoryDeleted(t *testing.T) {
	dirs := goneDirs(t, "deleted", "0", "1")
	broker := startBroker(t, strings.Join(dirs, ","), "nats.store_dir="+t.TempDir())
	known := newLedger()
	mustCreate(t, broker)
	l := startLoad(t, broker, known)
	l.each(t, false)
	must(t, os.Rename(dirs[1], dirs[1]+".deleted")) // at once: what is written meanwhile would not let the directory go
	must(t, os.RemoveAll(dirs[1]+".deleted"))
	awaitFenced(t, broker, l)
	l.each(t, false)
	l.each(t, false)
	l.stop(t)
	if n := l.refusals(); len(n) > 0 {
		t.Errorf("refused, while another directory works: %v", n)
	}
	must(t, os.Mkdir(dirs[1], 0o700))
	if out, err := databus(t, broker, "directory", "restore", dirs[1]); err == nil || !strings.Contains(out, "another directory stands in its place") {
		t.Errorf("restore an empty directory: %v %s", err, out)
	}
}
