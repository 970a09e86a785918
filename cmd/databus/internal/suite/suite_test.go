package suite

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// events is what happened, in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, what)
}

// part is a service that notes what is done to it. It ends with err when fail is closed.
func part(t *testing.T, name string, e *events, fail chan struct{}, err error) Part {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	return Part{
		Name:     name,
		Listen:   func() error { e.add("listen " + name); return nil },
		ReadyURL: func() string { return srv.URL },
		Close:    func() error { e.add("close " + name); return nil },
		Run: func(ctx context.Context) error {
			e.add("run " + name)
			select {
			case <-ctx.Done():
				e.add("stop " + name)
				return nil
			case <-fail:
				return err
			}
		},
	}
}

var quiet = slog.New(slog.DiscardHandler)

func TestOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := &events{}
	err := Run(ctx, quiet, []Part{part(t, "broker", e, nil, nil), part(t, "agent", e, nil, nil)}, func(context.Context) error {
		e.add("ready")
		cancel()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The agent may note its start after its address answers: only the order of the rest is told.
	got := slices.DeleteFunc(e.list, func(s string) bool { return strings.HasPrefix(s, "run ") })
	want := []string{"listen broker", "listen agent", "ready", "stop agent", "stop broker"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestPartThatEndsStopsTheRest(t *testing.T) {
	t.Parallel()
	e, fail, broken := &events{}, make(chan struct{}), errors.New("disk gone")
	err := Run(t.Context(), quiet, []Part{part(t, "broker", e, fail, broken), part(t, "agent", e, nil, nil)}, func(context.Context) error {
		close(fail)
		return nil
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "broker ended") {
		t.Fatalf("got %v, want the broker's error", err)
	}
	if !slices.Contains(e.list, "stop agent") {
		t.Fatalf("the agent was not stopped: %v", e.list)
	}
}

func TestPortInUseStartsNothing(t *testing.T) {
	t.Parallel()
	e, taken := &events{}, errors.New("port taken")
	agent := part(t, "agent", e, nil, nil)
	agent.Listen = func() error { return taken }
	err := Run(t.Context(), quiet, []Part{part(t, "broker", e, nil, nil), agent}, func(context.Context) error {
		t.Error("ready was called")
		return nil
	})
	if !errors.Is(err, taken) || !strings.Contains(err.Error(), "agent") {
		t.Fatalf("got %v, want the agent's error", err)
	}
	if want := []string{"listen broker", "close broker", "close agent"}; !slices.Equal(e.list, want) {
		t.Fatalf("got %v, want %v", e.list, want)
	}
}

func TestErrorOfReadyStopsEverything(t *testing.T) {
	t.Parallel()
	e, broken := &events{}, errors.New("demo failed")
	err := Run(t.Context(), quiet, []Part{part(t, "broker", e, nil, nil)}, func(context.Context) error { return broken })
	if !errors.Is(err, broken) || !slices.Contains(e.list, "stop broker") {
		t.Fatalf("got %v and %v, want the error and a stopped broker", err, e.list)
	}
}

func TestPartThatEndsBeforeItIsReady(t *testing.T) {
	t.Parallel()
	e, fail, broken := &events{}, make(chan struct{}), errors.New("cannot recover")
	close(fail)
	p := part(t, "broker", e, fail, broken)
	never := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(never.Close)
	p.ReadyURL = func() string { return never.URL }
	err := Run(t.Context(), quiet, []Part{p, part(t, "agent", e, nil, nil)}, func(context.Context) error { return nil })
	if !errors.Is(err, broken) || !slices.Contains(e.list, "close agent") {
		t.Fatalf("got %v and %v, want the broker's error and a closed agent", err, e.list)
	}
}
