package disk

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/test/harness"
)

// smallDisk mounts a file system of so many bytes: ext4 on a file where the machine can, else one in memory.
func smallDisk(t *testing.T, size int64) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs the right to mount")
	}
	dir = mountPoint(t)
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	kind := "ext4"
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Logf("no ext4 on a file here: %v\n%s", err, out)
			kind = "tmpfs"
			break
		}
	}
	if kind == "tmpfs" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Skipf("needs the right to mount: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// takeRoom makes a file that leaves so many bytes of its file system free.
func takeRoom(t *testing.T, name string, left int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(name), &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left) //nolint:gosec // it is small
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// databus runs a client command against the broker.
func databus(t *testing.T, broker *harness.Service, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, append(args, "--addr", broker.HTTPAddr())...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("databus %q: %w\n%s", args, err, out)
	}
	return string(out), err
}

// TestDiskFull fills the file system of a broker's only data directory, which has its metadata too. Producers are told to try
// again, reads go on, a broker that is killed or stopped starts again, and once there is room, whoever made it, everything goes on
// by itself. Nothing acknowledged is lost and nothing is there twice.
func TestDiskFull(t *testing.T) {
	mount := smallDisk(t, 64<<20)
	ballast := filepath.Join(mount, "ballast")
	broker := startBroker(t, filepath.Join(mount, "log"))
	known := newLedger()
	mustCreate(t, broker)
	takeRoom(t, ballast, 12<<20)

	fill := func() *load {
		l := startLoad(t, broker, known)
		l.each(t, true)
		if state := directories(t, broker); !strings.Contains(state, `"FULL"`) {
			t.Errorf("the full directory is not reported: %s", state)
		}
		return l
	}
	l := fill()
	l.stop(t)
	t.Logf("full after %d records; refusals: %v", len(known.at[0])*partitions, l.refusals())
	mustCheck(t, broker, known)
	refusesMetadata(t, broker)

	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatalf("start on a full disk: %v", err)
	}
	mustCheck(t, broker, known)
	fill().stop(t)
	if err := broker.Stop(); err != nil {
		t.Fatalf("stop on a full disk: %v", err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatalf("start on a full disk: %v", err)
	}
	mustCheck(t, broker, known)

	// The ballast goes.
	l = fill()
	if err := os.Truncate(ballast, 1<<20); err != nil {
		t.Fatal(err)
	}
	l.each(t, false)
	// Records go.
	l.each(t, true)
	l.stop(t)
	mustCheck(t, broker, known)
	deleteRecords(t, broker, known)
	l = startLoad(t, broker, known)
	l.each(t, false)
	l.stop(t)
	mustCheck(t, broker, known)

	// Retention lets records go, within half a minute.
	deleteRecords(t, broker, known) // a new retention is metadata: it needs room too
	retain(t, broker, "100KiB")
	l = fill()
	l.each(t, false)
	l.stop(t)
	retain(t, broker, "0B")
	findStart(t, broker, known)
	mustCheck(t, broker, known)
	if _, err := databus(t, broker, "topic", "create", "other"); err != nil {
		t.Errorf("the metadata store does not come back: %v", err)
	}
}

// refusesMetadata shows that what needs the metadata store is refused in a way that can be tried again.
func refusesMetadata(t *testing.T, broker *harness.Service) {
	t.Helper()
	answer, err := harness.Call(t.Context(), http.DefaultClient, http.MethodPost, broker.URL()+"/v1/topics", []byte(`{"name":"other"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(answer.Body), "NO_SPACE") {
		t.Errorf("create a topic on a full disk: status %d, Retry-After %q: %s", answer.Status, answer.Header.Get("Retry-After"), answer.Body)
	}
}

// deleteRecords drops the older half of each partition.
func deleteRecords(t *testing.T, broker *harness.Service, known *ledger) {
	t.Helper()
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := brokerv1.NewTopicServiceClient(conn)
	for n := range int32(partitions) {
		half := int64(len(known.at[n]) / 2)
		answer, err := client.DeleteRecords(t.Context(), &brokerv1.DeleteRecordsRequest{Topic: topic, Partition: n, BeforeOffset: half}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatalf("delete records of a full directory: %v", err)
		}
		known.start[n] = answer.GetLogStartOffset()
	}
}

// retain sets how many bytes of each partition are kept.
func retain(t *testing.T, broker *harness.Service, size string) {
	t.Helper()
	if _, err := databus(t, broker, "topic", "update", topic, "--retention-bytes", size); err != nil {
		t.Fatal(err)
	}
}

// findStart asks where the partitions begin.
func findStart(t *testing.T, broker *harness.Service, known *ledger) {
	t.Helper()
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := brokerv1.NewTopicServiceClient(conn).GetTopic(t.Context(), &brokerv1.GetTopicRequest{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	moved := false
	for _, p := range answer.GetTopic().GetPartitionOffsets() {
		moved = moved || p.GetLogStartOffset() > known.start[p.GetPartition()]
		known.start[p.GetPartition()] = p.GetLogStartOffset()
	}
	if !moved {
		t.Error("retention let nothing go")
	}
}

// TestOneDirectoryFull fills one of two data directories: producers notice nothing but the time that a move takes.
func TestOneDirectoryFull(t *testing.T) {
	mount := smallDisk(t, 64<<20)
	full, other := filepath.Join(mount, "log"), t.TempDir()
	broker := startBroker(t, full+","+other, "nats.store_dir="+t.TempDir())
	known := newLedger()
	mustCreate(t, broker)
	takeRoom(t, filepath.Join(mount, "ballast"), 6<<20)
	l := startLoad(t, broker, known)
	for !strings.Contains(directories(t, broker), `"state":"FULL"`) {
		l.each(t, false)
	}
	for range 5 {
		l.each(t, false)
	}
	l.stop(t)
	if n := l.refusals(); len(n) > 0 {
		t.Errorf("refused, while another directory has room: %v", n)
	}
	t.Logf("%s was the longest that a producer waited while its directory became full", l.gap())
	mustCheck(t, broker, known)
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustCheck(t, broker, known)
}
