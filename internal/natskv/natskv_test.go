package natskv

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/databus-suite/databus/internal/errs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// nats-server keeps one for the process.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"))
}

type value struct {
	N int    `json:"n"`
	S string `json:"s,omitempty"`
}

func startServer(t testing.TB, dir string) *Server {
	t.Helper()
	s, err := StartServer(t.Context(), ServerConfig{StoreDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func bucket(t testing.TB, c *Conn, name string) *Bucket[value] {
	t.Helper()
	b, err := OpenBucket(t.Context(), c, BucketConfig{Name: name, History: 64}, JSON[value]())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConformance runs one suite over both ways to reach a server.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	for _, way := range []struct {
		name string
		dial func() (*Conn, error)
	}{
		{"embedded", func() (*Conn, error) { return s.Connect(t.Context(), "test", nil) }},
		{"tcp", func() (*Conn, error) { return Dial(t.Context(), DialConfig{URL: s.URL(), Name: "test"}) }},
	} {
		conn, err := way.dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		t.Run(way.name, func(t *testing.T) {
			t.Run("write", func(t *testing.T) { testWrite(t, bucket(t, conn, way.name+"-write")) })
			t.Run("history", func(t *testing.T) { testHistory(t, bucket(t, conn, way.name+"-history")) })
			t.Run("list", func(t *testing.T) { testList(t, bucket(t, conn, way.name+"-list")) })
			t.Run("watch", func(t *testing.T) { testWatch(t, bucket(t, conn, way.name+"-watch")) })
			t.Run("race", func(t *testing.T) { testRace(t, bucket(t, conn, way.name+"-race")) })
		})
	}
}

func wantCode(t *testing.T, err error, code errs.Code) {
	t.Helper()
	if errs.CodeOf(err) != code {
		t.Errorf("error %v has code %v, want %v", err, errs.CodeOf(err), code)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func testWrite(t *testing.T, b *Bucket[value]) {
	ctx := t.Context()
	_, err := b.Get(ctx, "a..b.")
	wantCode(t, err, errs.NotFound)
	first := must[uint64](t)(b.Create(ctx, "a..b.", value{N: 1}))
	_, err = b.Create(ctx, "a..b.", value{N: 2})
	wantCode(t, err, errs.AlreadyExists)
	second := must[uint64](t)(b.Update(ctx, "a..b.", value{N: 2}, first))
	_, err = b.Update(ctx, "a..b.", value{N: 3}, first)
	wantCode(t, err, errs.Conflict)
	_, err = b.Update(ctx, "none", value{N: 3}, first)
	wantCode(t, err, errs.Conflict)
	e := must[Entry[value]](t)(b.Get(ctx, "a..b."))
	if e.Value.N != 2 || e.Revision != second || e.Key != "a..b." || e.Time.IsZero() {
		t.Errorf("Get = %+v", e)
	}
	wantCode(t, b.Delete(ctx, "a..b.", first), errs.Conflict)
	if err := b.Delete(ctx, "a..b.", second); err != nil {
		t.Fatal(err)
	}
	_, err = b.Get(ctx, "a..b.")
	wantCode(t, err, errs.NotFound)
	if again := must[uint64](t)(b.Create(ctx, "a..b.", value{N: 4})); again <= second {
		t.Errorf("revision %d after %d", again, second)
	}
	_, err = b.Put(ctx, "a//b", value{})
	wantCode(t, err, errs.Invalid)
	_, err = b.Put(ctx, "big", value{S: strings.Repeat("x", 2*MaxValueBytes)})
	wantCode(t, err, errs.TooLarge)
}

func testHistory(t *testing.T, b *Bucket[value]) {
	for n := range 70 {
		must[uint64](t)(b.Put(t.Context(), "k", value{N: n}))
	}
	list := must[[]Entry[value]](t)(b.History(t.Context(), "k"))
	if len(list) != 64 || list[0].Value.N != 69 || list[63].Value.N != 6 {
		t.Errorf("history has %d entries, %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	_, err := b.History(t.Context(), "none")
	wantCode(t, err, errs.NotFound)
}

func testList(t *testing.T, b *Bucket[value]) {
	if list := must[[]Entry[value]](t)(b.List(t.Context())); len(list) != 0 {
		t.Errorf("an empty bucket lists %v", list)
	}
	want := []string{".", "a/b", "a/c d", "é", "z_-Z"}
	for n, key := range want {
		must[uint64](t)(b.Put(t.Context(), key, value{N: n}))
	}
	must[uint64](t)(b.Put(t.Context(), "gone", value{}))
	if err := b.Delete(t.Context(), "gone", 0); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range must[[]Entry[value]](t)(b.List(t.Context())) {
		got = append(got, e.Key)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("List = %q, want %q", got, want)
	}
}

func testWatch(t *testing.T, b *Bucket[value]) {
	ctx := t.Context()
	must[uint64](t)(b.Put(ctx, "a", value{N: 1}))
	must[uint64](t)(b.Put(ctx, "a", value{N: 2}))
	next, stop := iter.Pull(b.Watch(ctx))
	defer stop()
	wantEvent(t, next, "a=2")
	wantEvent(t, next, "synced")
	must[uint64](t)(b.Put(ctx, "b", value{N: 3}))
	if err := b.Delete(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, next, "b=3")
	wantEvent(t, next, "a gone")
}

func wantEvent(t *testing.T, next func() (Event[value], bool), want string) {
	t.Helper()
	e, ok := next()
	got := fmt.Sprintf("%s=%d", e.Entry.Key, e.Entry.Value.N)
	switch {
	case !ok:
		got = "end"
	case e.Err != nil:
		got = e.Err.Error()
	case e.Synced:
		got = "synced"
	case e.Entry.Deleted:
		got = e.Entry.Key + " gone"
	}
	if got != want {
		t.Fatalf("event %q, want %q", got, want)
	}
}

// testRace: of many that build on one revision exactly one gets through.
func testRace(t *testing.T, b *Bucket[value]) {
	const writers, rounds = 8, 10
	must[uint64](t)(b.Create(t.Context(), "n", value{}))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < rounds; {
				e, err := b.Get(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				_, err = b.Update(t.Context(), "n", value{N: e.Value.N + 1}, e.Revision)
				if err == nil {
					done++
				} else if errs.CodeOf(err) != errs.Conflict {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if e := must[Entry[value]](t)(b.Get(t.Context(), "n")); e.Value.N != writers*rounds {
		t.Errorf("counted to %d, want %d", e.Value.N, writers*rounds)
	}
}

// TestWatchSurvivesRestart: a watch goes on over a server that went away and came back on the same port.
func TestWatchSurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, dir)
	var port int
	if _, err := fmt.Sscanf(s.URL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), DialConfig{URL: s.URL(), Name: "watcher"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := bucket(t, conn, "watched")
	must[uint64](t)(b.Put(t.Context(), "a", value{N: 1}))
	next, stop := iter.Pull(b.Watch(t.Context()))
	defer stop()
	wantEvent(t, next, "a=1")
	wantEvent(t, next, "synced")
	s.Close()
	again, err := StartServer(t.Context(), ServerConfig{StoreDir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	local, err := again.Connect(t.Context(), "writer", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	must[uint64](t)(bucket(t, local, "watched").Put(t.Context(), "b", value{N: 2}))
	wantEvent(t, next, "b=2")
}

func TestServerKeepsWhatItAnswered(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s := startServer(t, dir)
	conn, err := s.Connect(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	must[uint64](t)(bucket(t, conn, "kept").Put(t.Context(), "a", value{N: 7}))
	if _, err := StartServer(t.Context(), ServerConfig{StoreDir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server on one store: %v", err)
	}
	conn.Close()
	s.Close()
	s.Close()
	s = startServer(t, dir)
	conn, err = s.Connect(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if e := must[Entry[value]](t)(bucket(t, conn, "kept").Get(t.Context(), "a")); e.Value.N != 7 {
		t.Errorf("after a restart: %+v", e)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	conn, err := Dial(t.Context(), DialConfig{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := bucket(t, conn, "away")
	conn.Close()
	_, err = b.Put(t.Context(), "a", value{})
	wantCode(t, err, errs.Unavailable)
	if !errs.Retryable(err) {
		t.Error("a store that is away may come back")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, DialConfig{URL: "nats://127.0.0.1:1", Name: "test"})
	wantCode(t, err, errs.Unavailable)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	var port int
	if _, err := fmt.Sscanf(s.URL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := StartServer(ctx, ServerConfig{StoreDir: t.TempDir(), Port: port}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server on one port: %v", err)
	}
}

func FuzzKey(f *testing.F) {
	for _, seed := range []string{"orders", "a.b", "..", "a/b=c", "é\xff", "//"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		_, _ = decodeKey(key)
		encoded, err := encodeKey(key)
		if err != nil {
			return
		}
		back, err := decodeKey(encoded)
		if err != nil || back != key {
			t.Fatalf("%q became %q became %q (%v)", key, encoded, back, err)
		}
	})
}
