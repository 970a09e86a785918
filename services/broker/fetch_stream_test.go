package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// TestFetchStreamsOfFiles reads by many streams at once what a broker has on disk only: each must get every byte, though the
// buffers that the files are read into are used again and again.
func TestFetchStreamsOfFiles(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	const batches = 60
	want := make([]string, batches)
	for i := range want {
		want[i] = fmt.Sprint(i, ":", strings.Repeat(string(rune('a'+rand.N(26))), 40_000+rand.N(20_000)))
		res, err := w.logs().Append(t.Context(), &brokerv1.AppendRequest{Topic: "t", Batches: batch(t, recordbatch.None, want[i])})
		if err != nil || res.GetBaseOffset() != int64(i) {
			t.Fatal(res, err)
		}
	}
	w.halt()
	w.run() // nothing is in memory now
	viaConnect := brokerv1connect.NewLogServiceClient(w.h2c(), w.base)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req := &brokerv1.FetchStreamRequest{Topic: "t", MaxBytes: int32(100_000 + 100_000*(n%4))}
			next, err := openFetch(ctx, w.logs(), viaConnect, n%3 == 0, req)
			if err != nil {
				t.Error(err)
				return
			}
			for at := 0; at < batches && (n%4 > 0 || at < batches/2); { // some leave early
				res, err := next()
				if err != nil {
					t.Errorf("stream %d at %d: %v", n, at, err)
					return
				}
				if at, err = compareBatches(res.GetBatches(), want, at); err != nil || res.GetNextOffset() != int64(at) || len(res.GetBatches()) > int(req.GetMaxBytes()) {
					t.Errorf("stream %d: at %d, answer of %d bytes up to %d: %v", n, at, len(res.GetBatches()), res.GetNextOffset(), err)
					return
				}
			}
		})
	}
	all.Wait()
}

func openFetch(ctx context.Context, direct brokerv1.LogServiceClient, viaConnect brokerv1connect.LogServiceClient, useConnect bool, req *brokerv1.FetchStreamRequest) (func() (*brokerv1.FetchStreamResponse, error), error) {
	if !useConnect {
		stream, err := direct.FetchStream(ctx, req)
		if err != nil {
			return nil, err
		}
		return stream.Recv, nil
	}
	stream, err := viaConnect.FetchStream(ctx, req)
	if err != nil {
		return nil, err
	}
	return func() (*brokerv1.FetchStreamResponse, error) {
		if !stream.Receive() {
			return nil, stream.Err()
		}
		return stream.Msg(), nil
	}, nil
}

// compareBatches checks batches of one record against what was appended, from offset at on, and says where they end.
func compareBatches(b []byte, want []string, at int) (int, error) {
	for len(b) > 0 {
		one, rest, err := recordbatch.Split(b)
		if err != nil {
			return at, err
		}
		if _, err := recordbatch.Check(one); err != nil {
			return at, err
		}
		for r, err := range recordbatch.Records(one, 0) {
			if err != nil || r.Offset != int64(at) || string(r.Value) != want[at] {
				return at, fmt.Errorf("offset %d where %d belongs, or another value: %w", r.Offset, at, err)
			}
			at++
		}
		b = rest
	}
	return at, nil
}
