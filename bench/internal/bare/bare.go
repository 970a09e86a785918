// Package bare is the least HTTP server that could take an event: net/http, a
// handler that reads the body and answers. It runs as a process of its own, by
// starting the benchmark's binary again.
package bare

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/databus-suite/databus/bench/internal/child"
	"github.com/databus-suite/databus/bench/internal/ports"
)

// Flag is the argument that makes a benchmark's binary be the server.
const Flag = "-bare-http"

// Serve answers every request once its body is read, until ctx ends. It prints its address first.
func Serve(ctx context.Context) error {
	addr, _, err := ports.Free()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	answer := []byte(`{"results":[{"topic":"bench-rest","partition":0,"offset":"0","timestamp":"2026-01-01T00:00:00Z"}]}`)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})}
	go func() { <-ctx.Done(); _ = srv.Close() }()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Start starts the server as a child process and gives its address and process.
func Start(ctx context.Context) (addr string, pid int, stop func(), err error) {
	return child.Start(ctx, Flag)
}
