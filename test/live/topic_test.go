package live

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// TestTopicMadeAgainUnderLoad deletes a topic and makes it again with fewer partitions, and then grows it, under load. Nobody is
// refused. What the old topic had is gone with it; everything that was taken later, and what was on its way, is in the new one, once
// and in the order of its key.
func TestTopicMadeAgainUnderLoad(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"DURABLE", "BUFFERED", "SPOOLED"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			const connections = 4
			broker := startBroker(t)
			agent := startAgent(t, broker.GRPCAddr())
			e := &editor{t: t, client: &http.Client{}, broker: broker, agents: 1}
			topic := map[string]any{"name": "again", "partitions": 12, "config": map[string]any{"timestampType": "TIMESTAMP_TYPE_LOG_APPEND_TIME"}}
			e.call(http.MethodPost, "/v1/topics", topic, nil)
			e.call(http.MethodPost, "/v1/channels", map[string]any{"name": "again", "config": map[string]any{"durability": level}}, nil)
			l := startLoad(loadConfig{channel: "again", agents: []*harness.Service{agent}, connections: connections, rate: 1000})
			l.awaitAcks(t, 300)

			topic["partitions"] = 5
			remake(t, e, topic)
			after := l.acked.Load()
			l.awaitAcks(t, 500)
			e.call(http.MethodPatch, "/v1/topics/again", map[string]any{"partitions": 12}, nil)
			l.awaitAcks(t, 2000)
			taken := l.finish(t)
			after = l.acked.Load() - after
			if err := agent.Stop(); err != nil { // it sends what it has
				t.Error(err)
			}

			found := readBack(t, broker, []string{"again"})
			kept := 0
			for key, records := range found {
				first := records[0].number
				for _, r := range records {
					first = min(first, r.number)
				}
				for i := range records {
					records[i].number -= first
				}
				taken[key] -= first
				kept += len(records)
			}
			checkKeys(t, taken, found)
			if int64(kept) < after {
				t.Errorf("%d messages are in the topic, %d were taken since it was made again", kept, after)
			}
			t.Logf("%d messages acknowledged, %d of them after the topic was made again, where %d are", l.acked.Load(), after, kept)
		})
	}
}

// remake deletes a topic and makes it again; the agent, which does so too, may come first.
func remake(t *testing.T, e *editor, topic map[string]any) {
	t.Helper()
	for {
		e.call(http.MethodDelete, "/v1/topics/"+topic["name"].(string), nil, nil)
		body, err := json.Marshal(topic)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := harness.Call(t.Context(), e.client, http.MethodPost, e.broker.URL()+"/v1/topics", body, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch answer.Status {
		case http.StatusOK:
			return
		case http.StatusConflict:
		default:
			t.Fatalf("make the topic again: status %d: %s", answer.Status, answer.Body)
		}
	}
}
