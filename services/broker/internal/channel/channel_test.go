package channel

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
)

type config = databusv1.ChannelConfig

// connect returns a connection to a metadata store of the test's own.
func connect(t *testing.T) *natskv.Conn {
	t.Helper()
	s, err := natskv.StartServer(t.Context(), natskv.ServerConfig{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.Connect(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); s.Close() })
	return conn
}

func open(t *testing.T, conn *natskv.Conn) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Config{Conn: conn, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ok(t *testing.T) func(*databusv1.Channel, error) *databusv1.Channel {
	return func(c *databusv1.Channel, err error) *databusv1.Channel {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func linger(ms int) *config {
	return &config{Batch: &databusv1.Batch{Linger: durationpb.New(time.Duration(ms) * time.Millisecond)}}
}

func lingerOf(c *config) int { return int(c.GetBatch().GetLinger().AsDuration().Milliseconds()) }

func wantReason(t *testing.T, err error, reason, field string) {
	t.Helper()
	if e := errs.From(err); err == nil || e.Reason != reason || e.Field != field {
		t.Errorf("error %v, want reason %s and field %q", err, reason, field)
	}
}

func TestRevisionsGrowAndNeverRepeat(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	r, ctx := open(t, conn), t.Context()
	c := ok(t)(r.Create(ctx, "orders", linger(1), false))
	if c.Revision != 1 || lingerOf(c.Config) != 1 || !c.CreateTime.IsValid() {
		t.Errorf("created %v", c)
	}
	_, err := r.Create(ctx, "orders", nil, false)
	wantReason(t, err, "CHANNEL_EXISTS", "name")
	c = ok(t)(r.Update(ctx, "orders", Change{Config: linger(2)}))
	if c.Revision != 2 || lingerOf(c.Config) != 2 {
		t.Errorf("updated %v", c)
	}
	if c = ok(t)(r.Update(ctx, "orders", Change{Config: linger(2)})); c.Revision != 2 {
		t.Errorf("a change that changes nothing made revision %d", c.Revision)
	}
	_, err = r.Update(ctx, "orders", Change{Config: linger(3), Revision: 1})
	wantReason(t, err, "REVISION_CONFLICT", "revision")
	c = ok(t)(r.Rollback(ctx, "orders", 1))
	if c.Revision != 3 || lingerOf(c.Config) != 1 {
		t.Errorf("rolled back %v", c)
	}
	if err := r.Delete(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	_, err = r.Get("orders")
	wantReason(t, err, "CHANNEL_NOT_FOUND", "")
	wantReason(t, r.Delete(ctx, "orders"), "CHANNEL_NOT_FOUND", "")

	r = open(t, conn) // as after a restart
	c = ok(t)(r.Create(ctx, "orders", nil, false))
	if c.Revision != 4 {
		t.Errorf("made again at revision %d, want 4", c.Revision)
	}
	if list, err := r.History(ctx, "orders"); err != nil || len(list) != 1 {
		t.Errorf("the history of a channel made again: %v %v", list, err)
	}
	_, err = r.Rollback(ctx, "orders", 2)
	wantReason(t, err, "REVISION_NOT_FOUND", "revision")
}

func TestHistory(t *testing.T) {
	t.Parallel()
	r, ctx := open(t, connect(t)), t.Context()
	ok(t)(r.Create(ctx, "c", nil, false))
	for n := 2; n <= 70; n++ {
		ok(t)(r.Update(ctx, "c", Change{Config: linger(n)}))
	}
	list, err := r.History(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != historySize || list[0].Revision != 70 || list[63].Revision != 7 {
		t.Fatalf("%d revisions, %d to %d", len(list), list[0].Revision, list[len(list)-1].Revision)
	}
	if diff := cmp.Diff([]string{"batch.linger: 69ms -> 70ms"}, list[0].Changes); diff != "" {
		t.Error(diff)
	}
	_, err = r.Rollback(ctx, "c", 6)
	wantReason(t, err, "REVISION_NOT_FOUND", "revision")
	if c := ok(t)(r.Rollback(ctx, "c", 7)); lingerOf(c.Config) != 7 || c.Revision != 71 {
		t.Errorf("rolled back to %v", c)
	}
}

func TestCanary(t *testing.T) {
	t.Parallel()
	r, ctx := open(t, connect(t)), t.Context()
	staging := map[string]string{"env": "staging"}
	ok(t)(r.Create(ctx, "c", linger(1), false))
	_, err := r.Promote(ctx, "c")
	wantReason(t, err, "NO_CANARY", "")
	c := ok(t)(r.Update(ctx, "c", Change{Config: linger(2), CanaryLabels: staging}))
	if c.Revision != 1 || lingerOf(c.Config) != 1 || c.Canary.GetRevision() != 2 || lingerOf(c.Canary.GetConfig()) != 2 {
		t.Errorf("with a canary: %v", c)
	}
	s := r.lookup("c")
	for labels, want := range map[string]int{"": 1, "env=prod": 1, "env=staging": 2, "env=staging,zone=a": 2} {
		set := map[string]string{}
		for _, l := range strings.Split(labels, ",") {
			if name, value, found := strings.Cut(l, "="); found {
				set[name] = value
			}
		}
		if got := s.protoFor(set); lingerOf(got.Config) != want || got.Canary != nil {
			t.Errorf("an agent with labels %q runs %v", labels, got)
		}
	}
	c = ok(t)(r.Promote(ctx, "c"))
	if c.Revision != 2 || lingerOf(c.Config) != 2 || c.Canary != nil {
		t.Errorf("promoted: %v", c)
	}
	// A second canary, replaced by a third, ended by a change for all.
	ok(t)(r.Update(ctx, "c", Change{Config: linger(3), CanaryLabels: staging}))
	c = ok(t)(r.Update(ctx, "c", Change{Config: linger(4), CanaryLabels: map[string]string{"zone": "a"}}))
	if c.Revision != 2 || c.Canary.GetRevision() != 4 || lingerOf(c.Canary.GetConfig()) != 4 {
		t.Errorf("replaced: %v", c)
	}
	c = ok(t)(r.Update(ctx, "c", Change{Config: linger(2)}))
	if c.Revision != 5 || c.Canary != nil || lingerOf(c.Config) != 2 {
		t.Errorf("ended: %v", c)
	}
	list, err := r.History(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range list {
		got = append(got, fmt.Sprintf("%d %d %v", v.Revision, lingerOf(v.Config), v.Changes))
	}
	want := []string{
		"5 2 [batch.linger: 4ms -> 2ms]",
		"4 4 [canary: none -> zone=a batch.linger: 3ms -> 4ms]",
		"3 3 [canary: none -> env=staging batch.linger: 2ms -> 3ms]",
		"2 2 [canary: none -> env=staging batch.linger: 1ms -> 2ms]",
		"1 1 []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = r.Update(ctx, "c", Change{Config: linger(9), CanaryLabels: map[string]string{"": "x"}})
	wantReason(t, err, "CANARY_LABELS", "canaryLabels")
}

func TestUpdateByMask(t *testing.T) {
	t.Parallel()
	r, ctx := open(t, connect(t)), t.Context()
	first := linger(1)
	first.KeyPath = "$.a"
	ok(t)(r.Create(ctx, "c", first, false))
	c := ok(t)(r.Update(ctx, "c", Change{Config: linger(2), Mask: &fieldmaskpb.FieldMask{Paths: []string{"config.keyPath", "batch.linger"}}}))
	if c.Config.KeyPath != "" || lingerOf(c.Config) != 2 {
		t.Errorf("updated %v", c)
	}
	c = ok(t)(r.Update(ctx, "c", Change{Config: linger(3), ValidateOnly: true}))
	if lingerOf(c.Config) != 3 || c.Revision != 3 {
		t.Errorf("validated %v", c)
	}
	if c = ok(t)(r.Get("c")); lingerOf(c.Config) != 2 || c.Revision != 2 {
		t.Errorf("validate only changed it: %v", c)
	}
	_, err := r.Update(ctx, "c", Change{Config: &config{KeyPath: "id"}})
	wantReason(t, err, "CHANNEL_CONFIG", "config.keyPath")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := open(t, connect(t))
	routes := func(topic, when string) *config {
		return &config{Routes: []*databusv1.Route{{Topic: "fine"}, {Topic: topic, When: when}}}
	}
	compression := func(codec databusv1.Codec, level int32) *config {
		return &config{Compression: &databusv1.Compression{Codec: codec, Level: level}}
	}
	for _, tc := range []struct {
		config        *config
		reason, field string
	}{
		{routes("", ""), "INVALID_FIELD", "config.routes[1].topic"},
		{routes("a b", ""), "TOPIC_NAME", "config.routes[1].topic"},
		{routes("a", "headers['x']"), "CHANNEL_CONFIG", "config.routes[1].when"},
		{routes("a", "nosuch == 1"), "CHANNEL_CONFIG", "config.routes[1].when"},
		{&config{KeyPath: "$.a[*]"}, "CHANNEL_CONFIG", "config.keyPath"},
		{&config{KeyPath: strings.Repeat("x", 2000)}, "INVALID_FIELD", "config.keyPath"},
		{compression(99, 0), "INVALID_FIELD", "config.compression.codec"},
		{compression(databusv1.Codec_CODEC_GZIP, 10), "CHANNEL_CONFIG", "config.compression.level"},
		{compression(databusv1.Codec_CODEC_LZ4, 10), "CHANNEL_CONFIG", "config.compression.level"},
		{compression(databusv1.Codec_CODEC_NONE, 1), "CHANNEL_CONFIG", "config.compression.level"},
		{compression(databusv1.Codec_CODEC_SNAPPY, 1), "CHANNEL_CONFIG", "config.compression.level"},
		{compression(databusv1.Codec_CODEC_ZSTD, 20), "INVALID_FIELD", "config.compression.level"},
		{linger(-1), "INVALID_FIELD", "config.batch.linger"},
		{linger(10_001), "INVALID_FIELD", "config.batch.linger"},
		{&config{Batch: &databusv1.Batch{MaxBytes: 1 << 30}}, "INVALID_FIELD", "config.batch.maxBytes"},
		{&config{Durability: 99}, "INVALID_FIELD", "config.durability"},
		{&config{RateLimit: &databusv1.RateLimit{MessagesPerSecond: -1}}, "INVALID_FIELD", "config.rateLimit.messagesPerSecond"},
		{&config{Retry: &databusv1.Retry{InitialBackoff: durationpb.New(3 * time.Second)}}, "CHANNEL_CONFIG", "config.retry.initialBackoff"},
	} {
		_, err := r.Create(t.Context(), "x", tc.config, true)
		if e := errs.From(err); err == nil || e.Code != errs.Invalid || e.Field != tc.field || e.Reason != tc.reason && tc.reason != "INVALID_FIELD" {
			t.Errorf("%v: error %v with reason %s and field %q, want %s %q", tc.config, err, e.Reason, e.Field, tc.reason, tc.field)
		}
	}
	for _, name := range []string{"", "..", "a/b", "é", strings.Repeat("x", 250)} {
		_, err := r.Create(t.Context(), name, nil, true)
		wantReason(t, err, "CHANNEL_NAME", "name")
	}
	big := &config{}
	for range 100 {
		big.Routes = append(big.Routes, &databusv1.Route{Topic: "t", When: "key == '" + strings.Repeat("x", 4000) + "'"})
	}
	_, err := r.Create(t.Context(), "x", big, true)
	if errs.CodeOf(err) != errs.TooLarge {
		t.Errorf("a config of %d bytes: %v", proto.Size(big), err)
	}
	if page, _ := r.List("", 10); len(page) != 0 {
		t.Errorf("validate only made %v", page)
	}
}

func text(e Event) string {
	switch {
	case e.Synced:
		return "synced"
	case e.Changed != nil:
		return fmt.Sprintf("%s@%d", e.Changed.Name, e.Changed.Revision)
	}
	return e.Deleted + " deleted"
}

func wantEvent(t *testing.T, next func() (Event, bool), want string) {
	t.Helper()
	e, more := next()
	if !more {
		t.Fatalf("the watch ended, want %s", want)
	}
	if got := text(e); got != want {
		t.Fatalf("event %s, want %s", got, want)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	r := open(t, connect(t))
	ctx, cancel := context.WithCancel(t.Context())
	ok(t)(r.Create(ctx, "a", nil, false))
	ok(t)(r.Create(ctx, "gone", nil, false))
	if err := r.Delete(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	all, stopAll := iter.Pull(r.Watch(ctx, nil))
	defer stopAll()
	staging, stopStaging := iter.Pull(r.Watch(ctx, map[string]string{"env": "staging"}))
	defer stopStaging()
	for _, next := range []func() (Event, bool){all, staging} {
		wantEvent(t, next, "a@1")
		wantEvent(t, next, "synced")
	}
	ok(t)(r.Update(ctx, "a", Change{Config: linger(2), CanaryLabels: map[string]string{"env": "staging"}}))
	wantEvent(t, staging, "a@2")
	ok(t)(r.Promote(ctx, "a"))
	wantEvent(t, all, "a@2") // and nothing for staging, which runs it already
	ok(t)(r.Update(ctx, "a", Change{Config: linger(3)}))
	wantEvent(t, all, "a@3")
	wantEvent(t, staging, "a@3")
	if err := r.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, all, "a deleted")
	ok(t)(r.Create(ctx, "a", nil, false))
	wantEvent(t, all, "a@4")
	cancel()
	if e, more := all(); more {
		t.Errorf("after its context ended the watch says %s", text(e))
	}
}

// TestSlowWatcherGetsTheNewest: many changes cost a slow watcher one event.
func TestSlowWatcherGetsTheNewest(t *testing.T) {
	t.Parallel()
	r, ctx := open(t, connect(t)), t.Context()
	next, stop := iter.Pull(r.Watch(ctx, nil))
	defer stop()
	wantEvent(t, next, "synced")
	ok(t)(r.Create(ctx, "a", nil, false))
	for n := range 9 {
		ok(t)(r.Update(ctx, "a", Change{Config: linger(n + 1)}))
	}
	wantEvent(t, next, "a@10")
}

func TestRunFollowsOthers(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	writer, reader := open(t, conn), open(t, conn)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { reader.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	next, stop := iter.Pull(reader.Watch(ctx, nil))
	defer stop()
	wantEvent(t, next, "synced")
	ok(t)(writer.Create(ctx, "a", nil, false))
	wantEvent(t, next, "a@1")
	if err := writer.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, next, "a deleted")
}

// TestConcurrentChanges: two brokers, many writers; every change is a revision of its own and none is lost.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	first := open(t, conn)
	ok(t)(first.Create(t.Context(), "c", nil, false))
	brokers := []*Registry{first, open(t, conn)}
	var revisions sync.Map
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 8 {
				c, err := brokers[i%2].Update(t.Context(), "c", Change{Config: linger(1 + i*100 + n)})
				if errs.CodeOf(err) == errs.Conflict {
					continue // contended past all retries; it says so
				}
				if err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
				if _, twice := revisions.LoadOrStore(c.Revision, true); twice {
					t.Errorf("revision %d was given twice", c.Revision)
				}
			}
		})
	}
	wg.Wait()
	list, err := brokers[0].History(t.Context(), "c")
	if err != nil || len(list) != int(made.Load())+1 {
		t.Errorf("%d revisions, want %d: %v", len(list), made.Load()+1, err)
	}
}

func TestAgentReports(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	r, err := Open(t.Context(), Config{Conn: connect(t), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ok(t)(r.Create(t.Context(), "c", nil, false))
	report := func(id string, complete bool, channels ...string) {
		t.Helper()
		var list []*databusv1.ChannelReport
		for _, c := range channels {
			list = append(list, &databusv1.ChannelReport{Channel: c, Revision: 1})
		}
		if err := r.Report(&databusv1.AgentInfo{AgentId: id, Host: "h"}, list, complete); err != nil {
			t.Fatal(err)
		}
	}
	agents := func(want ...string) {
		t.Helper()
		status, err := r.Status("c")
		if err != nil || status.Revision != 1 {
			t.Fatalf("status %v %v", status, err)
		}
		var got []string
		for _, a := range status.Agents {
			got = append(got, a.Agent.AgentId)
			if !a.Report.ReportTime.IsValid() || a.Report.Revision != 1 {
				t.Errorf("report %v", a.Report)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	agents()
	report("2", true, "c", "d")
	report("1", true, "c")
	agents("1", "2")
	report("1", false, "d") // only what changed
	agents("1", "2")
	report("1", true, "d")
	agents("2")
	now = now.Add(reportLife + time.Second)
	agents()
	report("3", true)
	if n := len(r.agents.byID); n != 1 {
		t.Errorf("%d agents are remembered, want 1", n)
	}
	wantReason(t, r.Report(&databusv1.AgentInfo{}, nil, true), "AGENT_ID", "agent.agentId")
	_, err = r.Status("nosuch")
	wantReason(t, err, "CHANNEL_NOT_FOUND", "")
}

func TestList(t *testing.T) {
	t.Parallel()
	r := open(t, connect(t))
	for _, name := range []string{"c", "a", "b"} {
		ok(t)(r.Create(t.Context(), name, nil, false))
	}
	page, more := r.List("", 2)
	if len(page) != 2 || page[0].Name != "a" || !more {
		t.Errorf("first page %v %v", page, more)
	}
	if page, more = r.List("b", 2); len(page) != 1 || page[0].Name != "c" || more {
		t.Errorf("second page %v %v", page, more)
	}
}
