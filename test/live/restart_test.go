package live

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

// TestRestartInPlaceRefusesNobody replaces the agent's program several times under a steady load, whose connections are kept, or
// opened for each request. Not one is refused or cut, and every message arrives once and in order.
func TestRestartInPlaceRefusesNobody(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]loadConfig{
		"a connection for each request": {connections: 4, rate: 400, reconnect: true},
		"connections are kept":          {connections: 16, rate: 1600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restarts := size(t, "DATABUS_LIVE_RESTARTS", 3)
			broker := startBroker(t)
			agent := startAgent(t, broker.GRPCAddr())
			e := &editor{t: t, client: &http.Client{}, broker: broker, agents: 1}
			e.call(http.MethodPost, "/v1/topics", map[string]any{"name": "door", "config": map[string]any{"timestampType": "TIMESTAMP_TYPE_LOG_APPEND_TIME"}}, nil)
			e.call(http.MethodPost, "/v1/channels", map[string]any{"name": "door"}, nil)

			cfg.channel, cfg.agents = "door", []*harness.Service{agent}
			l := startLoad(cfg)
			for n := 1; n <= restarts; n++ {
				l.awaitAcks(t, 100)
				if err := agent.Signal(syscall.SIGUSR2); err != nil {
					t.Fatal(err)
				}
				awaitServing(t, agent, n+1)
			}
			l.awaitAcks(t, 100)
			taken := l.finish(t)
			if err := agent.Stop(); err != nil {
				t.Error(err)
			}
			checkKeys(t, taken, readBack(t, broker, []string{"door"}))
			t.Logf("%d messages acknowledged through %d restarts, request p50 %s, p99 %s, max %s", l.acked.Load(), restarts,
				l.percentile(.5), l.percentile(.99), l.percentile(1))
		})
	}
}

// awaitServing waits until the service has said for the nth time that it serves.
func awaitServing(t *testing.T, s *harness.Service, n int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	bound := time.After(60 * time.Second)
	for strings.Count(s.Output(), "msg=serving") < n {
		select {
		case <-tick.C:
		case <-bound:
			t.Fatalf("the agent did not come back after restart %d", n-1)
		}
	}
}
