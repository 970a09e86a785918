package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/test/harness"
)

const (
	producers  = 8
	partitions = 16
	topic      = "power"
	inFlight   = 5 // of one producer to one partition, as Kafka's clients have it
	// A disk lives through so many losses of power before the next round begins with a new one.
	roundsPerDisk = 8
)

// binary is the path of the binary under test.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "databus-disk-")
	if err == nil {
		binary, err = harness.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// number is what the environment says of a test, or otherwise.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s=%q: want a number", variable, text)
	}
	return n
}

// key is one producer's part of one partition.
type key struct {
	producer  int
	partition int32
}

// ledger is what has been acknowledged. A loss of power is one moment for it and for the disk.
type ledger struct {
	mu     sync.Mutex
	next   map[key]int32              // sequences before it are acknowledged
	start  map[int32]int64            // records before it were deleted
	at     map[int32]map[int64]string // what is at an offset
	acks   int                        // in this life
	enough chan struct{}
	want   int
}

func newLedger() *ledger {
	l := &ledger{next: make(map[key]int32), start: make(map[int32]int64), at: make(map[int32]map[int64]string)}
	for n := range int32(partitions) {
		l.at[n] = make(map[int64]string)
	}
	return l
}

func (l *ledger) ack(k key, sequence int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next[k] = sequence + 1
	l.at[k.partition][offset] = value(k, sequence)
	if l.acks++; l.acks == l.want {
		close(l.enough)
	}
}

// await says when so many more are acknowledged.
func (l *ledger) await(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks, l.want, l.enough = 0, n, make(chan struct{})
	return l.enough
}

// cut takes what is acknowledged and the disk as a loss of power at this moment leaves them.
func (l *ledger) cut(disk *vfstest.Mem, rng *rand.Rand) (*ledger, *vfstest.Mem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := newLedger()
	for k, n := range l.next {
		left.next[k] = n
	}
	for p, m := range l.at {
		for o, v := range m {
			left.at[p][o] = v
		}
	}
	return left, disk.Crash(rng)
}

// value is a record's content: who sent it, and a size that differs.
func value(k key, sequence int32) string {
	h := uint32(k.producer*7919+int(k.partition)*104729) + uint32(sequence)*2654435761
	size := h >> 20 % 1500
	if h>>8%64 == 0 {
		size += 40 << 10
	}
	return fmt.Sprintf("%d/%d/%d/%s", k.producer, k.partition, sequence, strings.Repeat("x", int(size)))
}

func needsFuse(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 {
		t.Skip("needs /dev/fuse and the right to mount")
	}
}

// TestPowerLoss takes the power from the disk below the real broker at random moments, under load from idempotent producers
// that send again what was not acknowledged. No acknowledged record may be lost, and none may be there twice.
func TestPowerLoss(t *testing.T) {
	needsFuse(t)
	rounds := int(number(t, "DATABUS_TEST_POWER_ROUNDS", 6))
	seed := number(t, "DATABUS_TEST_POWER_SEED", 1)
	rng := rand.New(rand.NewPCG(seed, 0))
	for done := 0; done < rounds; done += roundsPerDisk {
		power(t, rng, min(rounds-done, roundsPerDisk), 1+done/roundsPerDisk%2)
		if t.Failed() {
			t.Fatalf("disk %d of seed %d", done/roundsPerDisk, seed)
		}
	}
}

// power runs some losses of power on one disk with so many data directories.
func power(t *testing.T, rng *rand.Rand, rounds, dirs int) {
	t.Helper()
	disk, known := vfstest.NewMem(), newLedger()
	metadata := t.TempDir()
	at := mountPoint(t)
	acked := 0
	for round := range rounds + 1 {
		unmount, err := mount(at, disk)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for i := range dirs {
			paths = append(paths, filepath.Join(at, strconv.Itoa(i)))
		}
		broker, err := harness.StartService(t.Context(), binary, "broker", "data_dirs="+strings.Join(paths, ","), "nats.store_dir="+metadata,
			"journal_bytes=1MiB", "checkpoint_bytes=100KiB")
		if err != nil {
			t.Fatal(errors.Join(err, unmount()))
		}
		if round == 0 {
			err = create(t.Context(), broker)
		}
		if err == nil {
			err = check(t.Context(), broker, known)
		}
		if err == nil && disk.Syncs() == 0 {
			err = errors.New("the broker synced nothing: it does not work on this disk")
		}
		if err == nil && round < rounds {
			var n int
			known, disk, n, err = runUntilPowerFails(t.Context(), broker, known, disk, rng)
			acked += n
		}
		if err != nil {
			t.Errorf("%d directories, round %d: %v\n%s", dirs, round, err, broker.Output())
		}
		if err := errors.Join(broker.Kill(), unmount()); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d directories: %d losses of power, %d records acknowledged, all there once", dirs, rounds, acked)
}

// mountPoint is a directory that is left alone should the mount outlive the test.
func mountPoint(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "databus-power-") //nolint:usetesting // its removal would go into the mount
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); errors.Is(err, syscall.EBUSY) {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			_ = os.Remove(dir)
		}
	})
	return dir
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

func create(ctx context.Context, broker *harness.Service) error {
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = brokerv1.NewTopicServiceClient(conn).CreateTopic(ctx, &brokerv1.CreateTopicRequest{
		Name: topic, Partitions: partitions, Config: &brokerv1.TopicConfig{SegmentBytes: 256 << 10, Retention: durationpb.New(0)},
	}, grpc.WaitForReady(true))
	return err
}

// runUntilPowerFails loads the broker and takes the power away in the middle of it.
func runUntilPowerFails(ctx context.Context, broker *harness.Service, known *ledger, disk *vfstest.Mem, rng *rand.Rand) (*ledger, *vfstest.Mem, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := known.await(50 + rng.IntN(2500))
	failed := make(chan error, producers*partitions)
	var wg sync.WaitGroup
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		return nil, nil, 0, err
	}
	defer conn.Close()
	for p := range producers {
		for n := range int32(partitions) {
			wg.Go(func() {
				if err := produce(ctx, conn, key{p, n}, known); err != nil && ctx.Err() == nil {
					failed <- err
				}
			})
		}
	}
	select {
	case <-enough:
	case err = <-failed:
	}
	left, crashed := known.cut(disk, rng)
	acked := known.acks
	cancel()
	wg.Wait()
	return left, crashed, acked, err
}

// produce appends a producer's records to one partition, from the first one on that is not acknowledged.
func produce(ctx context.Context, conn *grpc.ClientConn, k key, known *ledger) error {
	stream, err := brokerv1.NewLogServiceClient(conn).AppendStream(ctx)
	if err != nil {
		return err
	}
	known.mu.Lock()
	first := known.next[k]
	known.mu.Unlock()
	window := make(chan struct{}, inFlight)
	sent := make(chan error, 1)
	go func() {
		for sequence := first; ; sequence++ {
			select {
			case window <- struct{}{}:
			case <-ctx.Done():
				sent <- nil
				return
			}
			batch, err := build(k, sequence)
			if err == nil {
				err = stream.Send(&brokerv1.AppendStreamRequest{Topic: topic, Partition: k.partition, Sequence: int64(sequence), Batches: batch})
			}
			if err != nil {
				sent <- err
				return
			}
		}
	}()
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if status := answer.GetError(); status != nil {
			return fmt.Errorf("producer %d, partition %d, sequence %d: %s", k.producer, k.partition, answer.GetSequence(), status)
		}
		known.ack(k, int32(answer.GetSequence()), answer.GetBaseOffset())
		<-window
	}
}

func build(k key, sequence int32) ([]byte, error) {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	b.Append(int64(sequence)+1, nil, []byte(value(k, sequence)), nil)
	batch, err := b.Build(nil)
	if err == nil {
		recordbatch.SetProducer(batch, int64(1000+k.producer), 0, sequence)
	}
	return batch, err
}

// check reads everything: acknowledged records are where they were acknowledged, and nothing is there twice. What was sent
// and not acknowledged may be there.
func check(ctx context.Context, broker *harness.Service, known *ledger) error {
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		return err
	}
	defer conn.Close()
	client := brokerv1.NewLogServiceClient(conn)
	for n := range int32(partitions) {
		start := known.start[n]
		found, err := read(ctx, client, n, start)
		if err != nil {
			return err
		}
		where := make(map[string]int64, len(found))
		for i, v := range found {
			offset := start + int64(i)
			if first, twice := where[v]; twice {
				return fmt.Errorf("partition %d has %.20q at %d and at %d", n, v, first, offset)
			}
			where[v] = offset
			var k key
			var sequence int32
			if _, err := fmt.Sscanf(v, "%d/%d/%d/", &k.producer, &k.partition, &sequence); err != nil {
				return fmt.Errorf("partition %d has %.20q at %d: %w", n, v, offset, err)
			}
			if sequence >= known.next[k]+inFlight {
				return fmt.Errorf("partition %d has %.20q at %d, and the producer has only %d", n, v, offset, known.next[k])
			}
		}
		for offset, v := range known.at[n] {
			switch i := offset - start; {
			case i < 0:
			case i >= int64(len(found)):
				return fmt.Errorf("partition %d ends with %d: acknowledged %.20q at %d is lost", n, start+int64(len(found)), v, offset)
			case found[i] != v:
				return fmt.Errorf("partition %d has %.20q at %d, where %.20q was acknowledged", n, found[i], offset, v)
			}
		}
	}
	return nil
}

// read returns a partition's records; its offsets must be those from start on.
func read(ctx context.Context, client brokerv1.LogServiceClient, partition int32, start int64) (values []string, err error) {
	for next := start; ; {
		page, err := client.Fetch(ctx, &brokerv1.FetchRequest{Topic: topic, Partition: partition, Offset: next, MaxBytes: 8 << 20}, grpc.WaitForReady(true))
		if err != nil {
			return nil, fmt.Errorf("fetch partition %d from %d: %w", partition, next, err)
		}
		for rest := page.GetBatches(); len(rest) > 0; {
			var batch []byte
			if batch, rest, err = recordbatch.Split(rest); err != nil {
				return nil, err
			}
			for r, err := range recordbatch.Records(batch, 0) {
				if err != nil {
					return nil, err
				}
				if r.Offset < start { // deleted, in a batch with others
					continue
				}
				if r.Offset != next {
					return nil, fmt.Errorf("partition %d: offset %d follows %d", partition, r.Offset, next-1)
				}
				next++
				values = append(values, string(r.Value))
			}
		}
		if next >= page.GetHighWatermark() {
			return values, nil
		}
		if len(page.GetBatches()) == 0 {
			return nil, fmt.Errorf("partition %d: nothing at %d, the high watermark is %d", partition, next, page.GetHighWatermark())
		}
	}
}
