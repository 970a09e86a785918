package live

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

var topics = []string{"red", "green", "blue"}

// TestReconfigureUnderLoad changes a channel in every way, in random order, while connections publish to it through several
// agents. No request may be refused beyond what a pause means, every message arrives once, in order within its key, and
// every agent follows each change.
func TestReconfigureUnderLoad(t *testing.T) {
	t.Parallel()
	agentCount := size(t, "DATABUS_LIVE_AGENTS", 4)
	connections := size(t, "DATABUS_LIVE_CONNECTIONS", 12)
	rate := size(t, "DATABUS_LIVE_RATE", 2000)
	changes := size(t, "DATABUS_LIVE_CHANGES", 28)

	broker := startBroker(t)
	e := &editor{t: t, client: &http.Client{}, broker: broker, agents: agentCount}
	for _, topic := range topics {
		e.call(http.MethodPost, "/v1/topics", map[string]any{"name": topic, "partitions": 2, "config": map[string]any{"timestampType": "TIMESTAMP_TYPE_LOG_APPEND_TIME"}}, nil)
	}
	e.call(http.MethodPost, "/v1/channels", map[string]any{"name": "paint", "config": map[string]any{"routes": route("red")}}, nil)
	var agents []*harness.Service
	for range agentCount {
		agents = append(agents, startAgent(t, broker.GRPCAddr()))
	}
	e.load = startLoad(loadConfig{channel: "paint", agents: agents, connections: connections, rate: rate})
	e.await(0, time.Now())
	began, acked := time.Now(), e.load.acked.Load()
	for _, change := range e.plan(changes) {
		change()
		if t.Failed() {
			break
		}
	}
	took := time.Since(began)
	acked = e.load.acked.Load() - acked
	taken := e.load.finish(t)
	e.awaitSpools()
	for _, a := range agents {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	}
	checkKeys(t, taken, readBack(t, broker, topics))
	e.report(rate, acked, took)
}

func route(topic string) []any { return []any{map[string]any{"topic": topic}} }

// editor changes the channel and watches the agents follow.
type editor struct {
	t       *testing.T
	client  *http.Client
	broker  *harness.Service
	agents  int
	load    *load
	reports []time.Duration // from a change until an agent's report of it reached the broker
}

// plan is n changes of every kind in random order.
func (e *editor) plan(n int) []func() {
	kinds := []func(){e.topic, e.rule, e.codec, e.linger, e.partitions, e.level, e.pause}
	list := make([]func(), n)
	for i := range list {
		list[i] = kinds[i%len(kinds)]
	}
	rand.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (e *editor) topic() { e.change("routes", map[string]any{"routes": route(topics[rand.IntN(3)])}) }

func (e *editor) rule() {
	order := rand.Perm(3)
	e.change("routes", map[string]any{"routes": []any{
		map[string]any{"topic": topics[order[0]], "when": fmt.Sprintf(`headers["kind"] == "%d"`, rand.IntN(3))},
		map[string]any{"topic": topics[order[1]], "when": fmt.Sprintf(`key.endsWith("%d")`, rand.IntN(8))},
		map[string]any{"topic": topics[order[2]]}}})
}

func (e *editor) codec() {
	codec := []string{"CODEC_NONE", "CODEC_GZIP", "CODEC_SNAPPY", "CODEC_LZ4", "CODEC_ZSTD"}[rand.IntN(5)]
	e.change("compression", map[string]any{"compression": map[string]any{"codec": codec}})
}

func (e *editor) linger() {
	e.change("batch", map[string]any{"batch": map[string]any{"linger": fmt.Sprintf("%dms", rand.IntN(20)), "adaptive": rand.IntN(2) == 0,
		"maxMessages": 1 + rand.IntN(500)}})
}

func (e *editor) level() {
	e.change("durability", map[string]any{"durability": []string{"DURABILITY_DURABLE", "DURABILITY_BUFFERED", "DURABILITY_SPOOLED"}[rand.IntN(3)]})
}

func (e *editor) pause() {
	e.load.pauses.begin()
	e.change("paused", map[string]any{"paused": true})
	e.change("paused", map[string]any{"paused": false})
	e.load.pauses.end()
}

// partitions grows a topic.
func (e *editor) partitions() {
	topic := "/v1/topics/" + topics[rand.IntN(3)]
	var now struct{ Partitions int }
	e.call(http.MethodGet, topic, nil, &now)
	e.call(http.MethodPatch, topic, map[string]any{"partitions": now.Partitions + 1 + rand.IntN(3)}, nil)
}

// change writes config fields and waits until every agent runs them.
func (e *editor) change(mask string, config map[string]any) {
	var channel struct {
		Revision   int64 `json:",string"`
		UpdateTime time.Time
	}
	e.call(http.MethodPatch, "/v1/channels/paint", map[string]any{"config": config, "updateMask": mask}, &channel)
	e.await(channel.Revision, channel.UpdateTime)
}

// agentReport is one agent's part of a channel's status.
type agentReport struct {
	Agent  struct{ AgentID string }
	Report struct {
		Revision   int64 `json:",string"`
		SpoolBytes int64 `json:",string"`
		ReportTime time.Time
		Error      string
	}
}

// await waits until every agent runs the revision. Both times are from the broker's clock.
func (e *editor) await(revision int64, since time.Time) {
	e.poll(fmt.Sprintf("run revision %d", revision), func(a *agentReport) bool {
		if a.Report.Error != "" {
			e.t.Errorf("agent %s reports: %s", a.Agent.AgentID, a.Report.Error)
		}
		done := a.Report.Revision >= revision
		if done && revision > 0 {
			e.reports = append(e.reports, a.Report.ReportTime.Sub(since))
		}
		return done
	})
}

// awaitSpools waits until no agent has anything in its spool any more.
func (e *editor) awaitSpools() {
	since := time.Now()
	e.poll("have an empty spool", func(a *agentReport) bool {
		return a.Report.SpoolBytes == 0 && a.Report.ReportTime.After(since)
	})
}

// poll reads the channel's status until each agent's report was done once.
func (e *editor) poll(what string, done func(*agentReport) bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(e.t.Context(), 30*time.Second)
	defer cancel()
	seen := make(map[string]bool)
	for {
		var status struct{ Agents []agentReport }
		e.call(http.MethodGet, "/v1/channels/paint:status", nil, &status)
		for i := range status.Agents {
			if a := &status.Agents[i]; !seen[a.Agent.AgentID] && done(a) {
				seen[a.Agent.AgentID] = true
			}
		}
		if len(seen) == e.agents {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Errorf("%d of %d agents %s after 30 s", len(seen), e.agents, what)
			return
		case <-tick.C:
		}
	}
}

// call makes a REST call of the broker's that must succeed.
func (e *editor) call(method, path string, in, out any) {
	e.t.Helper()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			e.t.Fatal(err)
		}
	}
	answer, err := harness.Call(e.t.Context(), e.client, method, e.broker.URL()+path, body, nil)
	if err == nil && answer.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.Status, answer.Body)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(answer.Body, out)
	}
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// report logs the figures. The product's promise is a second at p99, for a machine that has the time.
func (e *editor) report(offered int, acked int64, took time.Duration) {
	if len(e.reports) == 0 {
		return
	}
	slices.Sort(e.reports)
	at := func(p float64) time.Duration {
		return e.reports[int(p*float64(len(e.reports)-1))].Round(time.Millisecond)
	}
	paused := e.load.pauses.total
	e.t.Logf("%d messages/s offered; %.0f/s acknowledged in %s, of which the channel was paused, or being so, for %s: %d requests refused by that; "+
		"request p50 %s, p99 %s, from when it was due; change to report: p50 %s, p99 %s, max %s over %d reports",
		offered, float64(acked)/took.Seconds(), took.Round(time.Millisecond), paused.Round(time.Millisecond), e.load.refused.Load(),
		e.load.percentile(.5), e.load.percentile(.99), at(.5), at(.99), at(1), len(e.reports))
}
