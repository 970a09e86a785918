package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

// TestAgentRestartsWithoutRefusingAConnection replaces a running agent several times while producers open a connection for each
// publish. Every one is answered with 200, and every key is in the log once and in order.
func TestAgentRestartsWithoutRefusingAConnection(t *testing.T) {
	t.Parallel()
	const producers, restarts = 4, 3
	pair := harness.RunPair(t, binary, "")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if err := pair.Broker.CreateChannel(t.Context(), client, "hot", `{"batch":{"adaptive":true}}`); err != nil {
		t.Fatal(err)
	}
	target := pair.Agent.URL(harness.AgentHTTP) + "/v1/channels/hot/messages"
	stop := make(chan struct{})
	var sent [producers]int
	var work sync.WaitGroup
	for k := range producers {
		work.Go(func() {
			for ; ; sent[k]++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Appendf(nil, `{"messages":[{"key":"k%d","value":%d}]}`, k, sent[k])
				answer, err := harness.Call(t.Context(), client, http.MethodPost, target, body, nil)
				if err != nil || answer.Status != http.StatusOK {
					t.Errorf("producer %d, message %d: status %d: %v", k, sent[k], answer.Status, err)
					return
				}
			}
		})
	}
	for n := range restarts {
		if err := pair.Agent.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		for strings.Count(pair.Agent.Output(), "msg=serving") < n+2 {
			pauseFor(t, 10*time.Millisecond)
		}
	}
	close(stop)
	work.Wait()

	messages, err := pair.Broker.Read(t.Context(), client, "hot")
	if err != nil {
		t.Fatal(err)
	}
	var next [producers]int
	for _, m := range messages {
		var k int
		if _, err := fmt.Sscanf(string(m.Key), "k%d", &k); err != nil {
			t.Fatalf("key %q", m.Key)
		}
		if string(m.Value) != fmt.Sprint(next[k]) {
			t.Fatalf("k%d: found %s where %d should be", k, m.Value, next[k])
		}
		next[k]++
	}
	if next != sent {
		t.Fatalf("in the log: %v, acknowledged: %v", next, sent)
	}
}
