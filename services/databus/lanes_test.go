package databus

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

func laneHeaders(r brokertest.Record) (lanes []string) {
	for _, h := range r.Headers {
		if h.Key == "databus-lane" {
			lanes = append(lanes, string(h.Value))
		}
	}
	return lanes
}

func TestLaneTags(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	const path = "/v1/channels/c/messages"
	r.want(200, path, "application/json", `{"messages":[{"key":"k","value":1}]}`)
	r.want(200, path, "application/json", `{"messages":[{"key":"k","value":2}]}`, "databus-lane", "red")
	r.want(200, path, "application/json", `{"messages":[{"key":"k","value":3,"headers":{"databus-lane":"blue"}}]}`, "baggage", "a=b,databus-lane=red")
	r.want(200, "/v1/channels/c/events", "text/plain", "4", "Databus-Key", "k", "baggage", "a=b,databus-lane=red")
	want := []string{"[]", "[red]", "[blue]", "[red]"}
	for i, rec := range flat(r.broker.Await("c", 4)) {
		if got := fmt.Sprint(laneHeaders(rec)); got != want[i] {
			t.Errorf("message %d: lanes %s, want %s", i+1, got, want[i])
		}
	}
	answer := r.want(400, path, "application/json", `{"messages":[{"value":1}]}`, "databus-lane", "no such/lane")
	if !strings.Contains(answer, "BAD_LANE") {
		t.Error(answer)
	}
}

func TestLaneTopics(t *testing.T) {
	t.Parallel()
	r := start(t)
	cfg := &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: "orders"}},
		Lanes: &databusv1.Lanes{Mode: databusv1.LaneMode_LANE_MODE_TOPIC, MaxTopics: 2, Expiry: durationpb.New(time.Hour)}}
	r.broker.SetChannel("c", cfg)
	const path = "/v1/channels/c/messages"
	if got := results(t, r.want(200, path, "application/json", `{"messages":[{"value":1},{"value":2,"headers":{"databus-lane":"red"}}]}`)); got[0].Topic != "orders" ||
		got[1].Topic != "orders.lane.red" || *got[1].Offset != "0" {
		t.Errorf("%+v", got)
	}
	if got := r.broker.Config("orders.lane.red").GetIdleExpiry().AsDuration(); got != time.Hour {
		t.Errorf("the lane's topic expires after %v, want an hour", got)
	}
	r.want(200, path, "application/json", `{"messages":[{"value":1}]}`, "databus-lane", "blue")
	if answer := r.want(429, path, "application/json", `{"messages":[{"value":1}]}`, "databus-lane", "green"); !strings.Contains(answer, "TOO_MANY_LANES") {
		t.Error(answer)
	}
	if recs := flat(r.broker.Await("orders.lane.red", 1)); fmt.Sprint(laneHeaders(recs[0])) != "[red]" {
		t.Errorf("%+v", recs[0])
	}
	if n := len(flat(r.broker.Records("orders"))); n != 1 {
		t.Errorf("%d messages in the channel's own topic, want 1", n)
	}
}

// TestStuckLane: nothing of what a lane does reaches the channel's own traffic, not even a change of the config.
func TestStuckLane(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.MemoryBytes = 4 << 20 })
	set := func(strategy databusv1.PartitionStrategy) {
		rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: databusv1.Durability_DURABILITY_BUFFERED,
			Partitioner: &databusv1.Partitioner{Strategy: strategy}, Lanes: &databusv1.Lanes{Mode: databusv1.LaneMode_LANE_MODE_TOPIC}})
		r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
			return len(q.Channels) == 1 && q.Channels[0].Revision == rev
		})
	}
	set(databusv1.PartitionStrategy_PARTITION_STRATEGY_STICKY)
	const path = "/v1/channels/c/messages"
	body := `{"messages":[{"value":"` + strings.Repeat("x", 50_000) + `"}]}`
	r.want(202, path, "application/json", body, "databus-lane", "red")
	r.broker.Await("c.lane.red", 1)
	release := r.broker.Hold("c.lane.red")
	full := false
	for range 200 {
		status, answer, _ := r.post(path, "application/json", body, "databus-lane", "red")
		if status == 429 && strings.Contains(answer, "LANES_FULL") {
			full = true
			break
		}
		if status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if !full {
		t.Error("a stuck lane is never full")
	}
	r.want(202, path, "application/json", body)
	set(databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH)
	r.want(202, path, "application/json", body)
	r.broker.Await("c", 2)
	release()
}

// TestManyLanes: of lanes that come and go the agent remembers no more than have topics at once, and what each took arrives.
func TestManyLanes(t *testing.T) {
	t.Parallel()
	for _, level := range []databusv1.Durability{databusv1.Durability_DURABILITY_DURABLE, databusv1.Durability_DURABILITY_SPOOLED} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			const most, lanes, writers = 16, 400, 4
			r := start(t)
			r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: level, Lanes: &databusv1.Lanes{Mode: databusv1.LaneMode_LANE_MODE_TOPIC,
				MaxTopics: most, Expiry: durationpb.New(time.Nanosecond)}})
			var work sync.WaitGroup
			for w := range writers {
				work.Go(func() {
					for i := w; i < lanes; i += writers {
						for try := range 2 { // and once more, soon
							body := fmt.Sprintf(`{"messages":[{"key":"k","value":%d}]}`, try)
							status, answer, _ := r.post("/v1/channels/c/messages", "application/json", body, "databus-lane", fmt.Sprint("pr-", i))
							if status != 200 {
								t.Errorf("lane %d: %d %s", i, status, answer)
							}
						}
					}
				})
			}
			work.Wait()
			known := 0
			for i := range lanes {
				name := fmt.Sprint("c.lane.pr-", i)
				if got := flat(r.broker.Await(name, 2)); len(got) != 2 || string(got[0].Value) != "0" {
					t.Errorf("topic %s has %v", name, got)
				}
				if _, ok := r.agent.topics.Known(name); ok {
					known++
				}
			}
			if ways := len(r.agent.batcher.Lanes()) + len(r.agent.spooled.Lanes()); ways > most || known > most {
				t.Errorf("of %d lanes the agent remembers %d topics and %d partitions, want %d at most", lanes, known, ways, most)
			}
		})
	}
}
