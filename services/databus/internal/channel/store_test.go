package channel

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

// watcher is a store whose plans can be waited for.
type watcher struct {
	*Store
	mu    sync.Mutex
	cond  *sync.Cond
	plans map[string]int64
}

func watch(t *testing.T, b *brokertest.Broker, path string, run bool) *watcher {
	t.Helper()
	conn, err := grpc.NewClient(b.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{plans: make(map[string]int64)}
	w.cond = sync.NewCond(&w.mu)
	w.Store, err = NewStore(Config{Client: databusv1.NewChannelServiceClient(conn), Path: path, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Agent: &databusv1.AgentInfo{AgentId: "a", Labels: map[string]string{"zone": "1"}},
		Apply: func(p *Plan) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.plans[p.Name] = p.Revision
			w.cond.Broadcast()
		},
		Remove: func(name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.plans, name)
			w.cond.Broadcast()
		},
		Report: func() []*databusv1.ChannelReport { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	if run {
		go func() { defer close(done); w.Run(ctx) }()
	} else {
		close(done)
	}
	t.Cleanup(func() {
		cancel()
		<-done
		conn.Close()
	})
	return w
}

// await waits until the channel runs the revision; 0: until it is gone.
func (w *watcher) await(name string, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.plans[name] != revision {
		w.cond.Wait()
	}
}

func TestWatchFollows(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	first := b.SetChannel("a", nil)
	w := watch(t, b, "", true)
	w.await("a", first)
	<-w.Synced()
	w.await("a", b.SetChannel("a", &databusv1.ChannelConfig{KeyPath: "$.x"}))
	w.await("b", b.SetChannel("b", nil))
	b.DeleteChannel("a")
	w.await("a", 0)

	// What changes while nobody watches is seen afterwards.
	b.Down()
	b.DeleteChannel("b")
	third := b.SetChannel("c", nil)
	b.Up()
	w.await("c", third)
	w.await("b", 0)
}

func TestFindAsksOnce(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	w := watch(t, b, "", false)
	if err := w.Find(t.Context(), "a"); errs.From(err).Reason != "CHANNEL_NOT_FOUND" {
		t.Fatal(err)
	}
	rev := b.SetChannel("b", nil)
	if err := w.Find(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.await("b", rev)
	b.Down()
	if err := w.Find(t.Context(), "other"); errs.From(err).Reason != "CONTROL_PLANE_UNAVAILABLE" {
		t.Fatal(err)
	}
	if err := w.Find(t.Context(), "a"); errs.CodeOf(err) == 0 {
		t.Fatal("an unknown channel was found")
	}
}

func TestBadConfigKeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	w := watch(t, b, "", true)
	good := b.SetChannel("a", nil)
	w.await("a", good)
	b.SetChannel("a", &databusv1.ChannelConfig{KeyPath: "$..no"})
	b.AwaitReport(func(r *databusv1.ReportAgentRequest) bool {
		return len(r.Channels) == 1 && r.Channels[0].Error != "" && r.Channels[0].Revision == good
	})
	w.await("a", good)
	w.await("a", b.SetChannel("a", &databusv1.ChannelConfig{KeyPath: "$.yes"}))
}

func TestCacheIsUsedWithoutABroker(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	path := filepath.Join(t.TempDir(), "channels.json")
	w := watch(t, b, path, true)
	rev := b.SetChannel("a", &databusv1.ChannelConfig{KeyPath: "$.x"})
	w.await("a", rev)
	b.AwaitReport(func(r *databusv1.ReportAgentRequest) bool { return len(r.Channels) == 1 })
	b.Down()

	again := watch(t, b, path, false)
	again.await("a", rev)

	if err := os.WriteFile(path, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := watch(t, b, path, false).Size(); n != 0 {
		t.Fatalf("%d channels from a torn file", n)
	}
}

func TestCanaryByLabels(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{Agent: &databusv1.AgentInfo{Labels: map[string]string{"zone": "1"}}}}
	for _, tc := range []struct {
		labels map[string]string
		want   int64
	}{
		{map[string]string{"zone": "1"}, 2},
		{map[string]string{"zone": "2"}, 1},
		{map[string]string{"zone": "1", "rack": "7"}, 1},
		{nil, 1},
	} {
		ch := &databusv1.Channel{Name: "a", Revision: 1, Canary: &databusv1.Canary{Labels: tc.labels, Revision: 2}}
		if got := s.mine(ch).GetRevision(); got != tc.want {
			t.Errorf("labels %v: revision %d, want %d", tc.labels, got, tc.want)
		}
	}
}
