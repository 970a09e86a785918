package harness

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess(saysReady, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.signal(context.Background(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestReadyLine(t *testing.T) {
	t.Parallel()
	p := shell(t, "echo not ready yet; echo ready in 5 ms; exec sleep 60")
	if err := p.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.output(); got != "not ready yet\nready in 5 ms" {
		t.Errorf("output %q", got)
	}
}

func TestReadyLineOnStandardErrorDoesNotCount(t *testing.T) {
	t.Parallel()
	p := shell(t, "echo ready >&2; echo port 1 in use; exit 7")
	var exit *ExitError
	if err := p.awaitReady(t.Context()); !errors.As(err, &exit) || exit.Code != 7 || !strings.Contains(exit.Output, "in use") {
		t.Errorf("got %v, want an ExitError with code 7 and the output", err)
	}
}

func TestNoReadyLineInTime(t *testing.T) {
	t.Parallel()
	p := shell(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.awaitReady(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script string
		signal syscall.Signal
		want   int
	}{
		"stops cleanly":     {`trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, syscall.SIGTERM, 0},
		"stops with a code": {`trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`, syscall.SIGTERM, 3},
		"is killed":         {`trap '' TERM; echo ready; while :; do sleep 0.01; done`, syscall.SIGKILL, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shell(t, tc.script)
			if err := p.awaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second finds it gone
				code, err := p.signal(t.Context(), tc.signal)
				if err != nil {
					t.Fatal(err)
				}
				if code != tc.want {
					t.Errorf("code %d, want %d", code, tc.want)
				}
			}
		})
	}
}

func TestStubbornProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.signal(ctx, syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	<-p.exited
}

func TestLongOutputKeepsItsEnd(t *testing.T) {
	t.Parallel()
	p := shell(t, `i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done`)
	<-p.exited
	lines := strings.Split(p.output(), "\n")
	if len(lines) != logLines || lines[logLines-1] != "line 999" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestOffsetsShareNoPort(t *testing.T) {
	t.Parallel()
	used := make(map[int]int)
	for range 20 {
		offset, err := FreeOffset()
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range defaultPorts {
			if other, twice := used[port+offset]; twice {
				t.Fatalf("port %d is in the blocks at offsets %d and %d", port+offset, other, offset)
			}
			used[port+offset] = offset
		}
	}
}

func TestParseLines(t *testing.T) {
	t.Parallel()
	got := parseLines("f", []byte("{\"event\":\"push\",\"payload\":{}}\n{bad\n\n 1.0 \n"))
	want := []Line{{"f", 1, []byte(`{"event":"push","payload":{}}`), "push"}, {"f", 4, []byte("1.0"), ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
