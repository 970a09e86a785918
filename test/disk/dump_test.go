//go:build clients

package disk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/test/harness"
)

// compacted is a topic whose records have few keys.
const compacted = "compacted"

// TestDumpAfterKills has Kafka's own tool read what a broker left that was killed under load: as the next start mended it, and as
// `databus log repair` did. One topic is compacted.
func TestDumpAfterKills(t *testing.T) {
	dir, copies := t.TempDir(), t.TempDir()
	broker := startBroker(t, dir, "nats.store_dir="+t.TempDir())
	known := newLedger()
	mustCreate(t, broker)
	if out, err := databus(t, broker, "topic", "create", compacted, "-p", "1", "--cleanup", "compact", "--retention", "0s", "--set", "segmentBytes=64KiB"); err != nil {
		t.Fatal(err, out)
	}
	for range number(t, "DATABUS_TEST_CRASH_ROUNDS", 3) {
		l := startLoad(t, broker, known)
		appendKeyed(t, broker)
		for range 5 {
			l.each(t, false)
		}
		must(t, broker.Kill())
		l.cancel()
		offline(t, "verify", dir)
		mended := filepath.Join(copies, "mended")
		must(t, os.RemoveAll(mended))
		must(t, os.CopyFS(mended, os.DirFS(dir)))
		offline(t, "repair", "--yes", mended)
		mustDump(t, topic, producers*partitions*5, mended)
		must(t, broker.Start(t.Context()))
		mustCheck(t, broker, known)
	}
	appendKeyed(t, broker)
	before := len(harness.SegmentFiles(t, dir, compacted))
	for len(harness.SegmentFiles(t, dir, compacted)) >= before { // the broker compacts every half minute
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	appendKeyed(t, broker)
	must(t, broker.Kill())
	must(t, broker.Start(t.Context()))
	must(t, broker.Stop())
	offline(t, "verify", dir)
	mustDump(t, topic, producers*partitions*5, dir)
	mustDump(t, compacted, 1, dir)
}

// TestDumpAfterPowerLoss has Kafka's own tool read what a broker mended after losses of power.
func TestDumpAfterPowerLoss(t *testing.T) {
	f := startFaulty(t, "0", "1")
	for seed := range number(t, "DATABUS_TEST_POWER_ROUNDS", 6) {
		l := startLoad(t, f.broker, f.known)
		for range 3 {
			l.each(t, false)
		}
		f = f.afterPowerLoss(t, seed)
		l.cancel()
	}
	must(t, f.broker.Stop())
	mustDump(t, topic, producers*partitions*3, f.dirs...)
}

// offline runs a `databus log` command that may not find any damage.
func offline(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, append([]string{"log"}, args...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "DAMAGED") {
		t.Fatalf("databus log %q: %v\n%s", args, err, out)
	}
}

// mustDump has Kafka's tool read a topic, of which it must find so many records at least.
func mustDump(t *testing.T, topic string, records int, dirs ...string) {
	t.Helper()
	var files []string
	for _, dir := range dirs {
		files = append(files, harness.SegmentFiles(t, dir, topic)...)
	}
	d := harness.DumpLogSegments(t, files)
	if topic == compacted {
		d.Problems = slices.DeleteFunc(d.Problems, func(line string) bool { return strings.Contains(line, harness.Gap) })
	}
	if len(d.Problems) > 0 {
		t.Errorf("Kafka's tool complains:\n%s", strings.Join(d.Problems, "\n"))
	}
	if d.Records < records || d.IndexEntries == 0 || d.TimeEntries == 0 || d.Sane != d.Indexes {
		t.Errorf("Kafka's tool read %d records of %d, %d index and %d time index entries, and found %d of %d indexes sane: too few",
			d.Records, records, d.IndexEntries, d.TimeEntries, d.Sane, d.Indexes)
	}
	t.Logf("%s: %d files, %d batches, %d records, %d index and %d time index entries, %d sane indexes", topic, len(files), d.Batches, d.Records, d.IndexEntries, d.TimeEntries, d.Sane)
}

// appendKeyed appends records with few keys to the compacted topic.
func appendKeyed(t *testing.T, broker *harness.Service) {
	t.Helper()
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for n := range 20 {
		b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
		for i := range 50 {
			b.Append(int64(n), fmt.Appendf(nil, "key %d", i%7), []byte(strings.Repeat("v", 200)), nil)
		}
		batch, err := b.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = brokerv1.NewLogServiceClient(conn).Append(t.Context(), &brokerv1.AppendRequest{Topic: compacted, Batches: batch}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
	}
}
