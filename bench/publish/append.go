package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// appendFigures are the gRPC append measurements of all rounds.
type appendFigures struct {
	records       int
	bare, databus []float64 // MB/s
	messages      []float64 // messages/s over gRPC
}

func (f *appendFigures) measure(ctx context.Context, s *suite.Suite, o options) error {
	batch, records, err := makeBatch(o.batchBytes)
	if err != nil {
		return err
	}
	f.records = records
	bare, err := writeSync(s.Dir, batch, o)
	if err != nil {
		return err
	}
	mbs, err := appendStream(ctx, s.Addr(8091), batch, o)
	if err != nil {
		return err
	}
	f.bare, f.databus = append(f.bare, bare), append(f.databus, mbs)
	f.messages = append(f.messages, mbs*1e6/float64(len(batch))*float64(records))
	return nil
}

// makeBatch builds one batch of 1 KiB records that do not compress.
func makeBatch(size int) ([]byte, int, error) {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	rng := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 1024)
	for b.Size()+len(value) < size || b.Count() == 0 {
		_, _ = rng.Read(value)
		b.Append(time.Now().UnixMilli(), nil, value, nil)
	}
	n := b.Count()
	batch, err := b.Build(nil)
	return batch, n, err
}

// writeSync writes groups of as many batches as the stream keeps in flight and syncs
// each group: what the barest group commit of the same bytes would do.
func writeSync(dir string, batch []byte, o options) (mbPerSecond float64, err error) {
	f, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	group := make([]byte, 0, len(batch)*o.inFlight)
	for range o.inFlight {
		group = append(group, batch...)
	}
	start := time.Now()
	var n int
	for time.Since(start) < o.duration {
		if _, err := f.Write(group); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("fdatasync %s: %w", f.Name(), err)
		}
		n += len(group)
	}
	return float64(n) / 1e6 / time.Since(start).Seconds(), nil
}

func appendStream(ctx context.Context, addr string, batch []byte, o options) (mbPerSecond float64, err error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{}), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := brokerv1.NewLogServiceClient(conn).AppendStream(ctx)
	if err != nil {
		return 0, err
	}
	slots := make(chan struct{}, o.inFlight)
	acked := make(chan error, 1)
	start := time.Now()
	var answered int
	go func() {
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				acked <- nil
				return
			}
			if err == nil && resp.GetError() != nil {
				err = fmt.Errorf("append %d: %s", resp.GetSequence(), resp.GetError().GetMessage())
			}
			if err != nil {
				acked <- err
				return
			}
			answered++
			<-slots
		}
	}()
	for seq := int64(0); time.Since(start) < o.duration; seq++ {
		select {
		case slots <- struct{}{}:
		case err := <-acked:
			return 0, err
		}
		// Every append gets bytes of its own, as from a real producer: the codec may hand them on without a copy.
		req := &brokerv1.AppendStreamRequest{Topic: "bench-append", Sequence: seq, Ack: brokerv1.AckLevel_ACK_LEVEL_DURABLE, Batches: batch}
		if err := stream.Send(req); err != nil {
			return 0, fmt.Errorf("send append %d: %w", seq, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	if err := <-acked; err != nil {
		return 0, err
	}
	return float64(answered) * float64(len(batch)) / 1e6 / time.Since(start).Seconds(), nil
}

func (f *appendFigures) print(w io.Writer, o options) {
	fmt.Fprintf(w, "\ngRPC AppendStream, batches of %d KiB (%d records of 1 KiB), %d in flight, medians of %d rounds:\n\n", o.batchBytes>>10, f.records, o.inFlight, o.rounds)
	t := report.Table{Head: []string{"", "MB/s", "messages/s"}}
	t.Row("bare write + fdatasync, the in-flight bytes a sync", report.Median(f.bare), "")
	t.Row("databus, DURABLE, one partition", report.Median(f.databus), report.Median(f.messages))
	t.Print(w)
	fmt.Fprintf(w, "\ndatabus / bare: %s of MB/s\n", report.Ratio(f.databus, f.bare))
}
