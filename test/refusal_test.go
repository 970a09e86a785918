package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

// refusal is one bad request and what its answer must say.
type refusal struct {
	name    string
	service int // default port
	path    string
	header  http.Header
	body    string
	status  int
	field   string   // the field that the answer names; "" where none is to blame
	says    []string // what the message has in it
}

var refusals = []refusal{
	{name: "unknown channel", service: harness.AgentHTTP, path: "/v1/channels/nowhere/messages",
		body: `{"messages":[{"value":1}]}`, status: 404, says: []string{"nowhere"}},
	{name: "unknown channel, raw", service: harness.AgentHTTP, path: "/v1/channels/nowhere/events",
		body: `1`, status: 404, says: []string{"nowhere"}},
	{name: "malformed envelope", service: harness.AgentHTTP, path: "/v1/channels/refusals/messages",
		body: "{\"messages\":[\n  {\"value\":tru}]}", status: 400, says: []string{"line 2", "column"}},
	{name: "envelope cut short", service: harness.AgentHTTP, path: "/v1/channels/refusals/messages",
		body: "{\"messages\":[\n\n{\"value\":[1,2", status: 400, says: []string{"line 3", "column"}},
	{name: "unknown envelope field", service: harness.AgentHTTP, path: "/v1/channels/refusals/messages",
		body: `{"messages":[{"valeu":1}]}`, status: 400, says: []string{"valeu", "line 1", "column"}},
	{name: "no messages", service: harness.AgentHTTP, path: "/v1/channels/refusals/messages",
		body: `{"messages":[]}`, status: 400, field: "messages"},
	{name: "malformed raw JSON", service: harness.AgentHTTP, path: "/v1/channels/refusals/events",
		body: "{\n\"a\": nope}", status: 400, says: []string{"line 2", "column"}},
	{name: "malformed NDJSON line", service: harness.AgentHTTP, path: "/v1/channels/refusals/events",
		header: http.Header{"Content-Type": {"application/x-ndjson"}}, body: "1\n2\n{\"a\":}\n", status: 400, says: []string{"line 3", "column"}},
	{name: "value past the size limit", service: harness.AgentHTTP, path: "/v1/channels/refusals.small/events",
		body: `"` + strings.Repeat("x", 5000) + `"`, status: 413, says: []string{"1024"}},
	{name: "value past the size limit, envelope", service: harness.AgentHTTP, path: "/v1/channels/refusals.small/messages",
		body: `{"messages":[{"value":"` + strings.Repeat("x", 5000) + `"}]}`, status: 413, says: []string{"1024"}},
	{name: "wrong content type", service: harness.AgentHTTP, path: "/v1/channels/refusals/messages",
		header: http.Header{"Content-Type": {"text/plain"}}, body: `{"messages":[{"value":1}]}`, status: 415, says: []string{"text/plain", "application/json"}},
	{name: "bad key path", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"bad","config":{"keyPath":"$..id"}}`, status: 400, field: "config.keyPath"},
	{name: "bad codec", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"bad","config":{"compression":{"codec":"BROTLI"}}}`, status: 400, field: "config.compression.codec", says: []string{"BROTLI"}},
	{name: "bad compression level", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"bad","config":{"compression":{"codec":"GZIP","level":15}}}`, status: 400, field: "config.compression.level"},
	{name: "bad route rule", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"bad","config":{"routes":[{"topic":"bad","when":"headers["}]}}`, status: 400, field: "config.routes[0].when"},
	{name: "bad channel name", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"a b"}`, status: 400, field: "name"},
	{name: "unknown config field", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"bad","config":{"lingerr":"5ms"}}`, status: 400, says: []string{"lingerr"}},
	{name: "bad topic name", service: harness.BrokerHTTP, path: "/v1/topics",
		body: `{"name":"a/b"}`, status: 400, field: "name"},
	{name: "bad partition count", service: harness.BrokerHTTP, path: "/v1/topics",
		body: `{"name":"bad","partitions":-1}`, status: 400, field: "partitions"},
	{name: "channel that exists", service: harness.BrokerHTTP, path: "/v1/channels",
		body: `{"name":"refusals"}`, status: 409, says: []string{"refusals"}},
}

// TestRefusals shows that bad input is refused with the right status, and an answer that says what is wrong where.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newClients(t, sharedSuite(t))
	c.createChannel(t, "refusals", "")
	c.createChannel(t, "refusals.small", `{"limits":{"maxMessageBytes":1024}}`)
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			answer, err := harness.Call(t.Context(), c.http, http.MethodPost, c.suite.URL(r.service)+r.path, []byte(r.body), r.header)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Status != r.status {
				t.Fatalf("status %d, want %d: %s", answer.Status, r.status, answer.Body)
			}
			checkStatus(t, r, answer)
		})
	}
}

// checkStatus looks at an error body: google.rpc.Status with an ErrorInfo that has a reason and a next step.
func checkStatus(t *testing.T, r refusal, answer harness.Answer) {
	t.Helper()
	if got := answer.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q, want application/json", got)
	}
	var body struct {
		Code    int
		Message string
		Details []struct {
			Type            string `json:"@type"`
			Reason, Domain  string
			Metadata        map[string]string
			FieldViolations []struct{ Field string }
		}
	}
	if err := json.Unmarshal(answer.Body, &body); err != nil {
		t.Fatalf("no google.rpc.Status: %v: %s", err, answer.Body)
	}
	var fields []string
	explained := false
	for _, d := range body.Details {
		explained = explained || strings.HasSuffix(d.Type, "google.rpc.ErrorInfo") && d.Reason != "" && d.Metadata["nextStep"] != ""
		for _, v := range d.FieldViolations {
			fields = append(fields, v.Field)
		}
	}
	if body.Code == 0 || !explained {
		t.Errorf("no code, or no ErrorInfo with a reason and a next step: %s", answer.Body)
	}
	if r.field != "" && !slices.Contains(fields, r.field) {
		t.Errorf("fields named %q, want %q: %s", fields, r.field, answer.Body)
	}
	for _, words := range r.says {
		if !strings.Contains(string(answer.Body), words) {
			t.Errorf("the answer does not say %q: %s", words, answer.Body)
		}
	}
}

// TestNothingOfARefusedRequestIsPublished posts NDJSON whose last line is wrong: the lines before it are not in the log.
func TestNothingOfARefusedRequestIsPublished(t *testing.T) {
	t.Parallel()
	c := newClients(t, sharedSuite(t))
	c.createChannel(t, "refused.whole", "")
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	if _, err := c.agent(t.Context(), "/v1/channels/refused.whole/events", []byte("\"kept\"\n"), ndjson); err != nil {
		t.Fatal(err)
	}
	var refusal *refused
	if _, err := c.agent(t.Context(), "/v1/channels/refused.whole/events", []byte("1\n2\nthree\n"), ndjson); !errors.As(err, &refusal) || refusal.status != 400 {
		t.Fatalf("a line that is no JSON was answered with %v, want status 400", err)
	}
	messages, err := c.suite.Read(t.Context(), c.http, "refused.whole")
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) != 1 || string(messages[0].Value) != `"kept"` {
		t.Errorf("the topic holds %d messages, want the one of the good request: %v", len(messages), messages)
	}
}

// TestSecondDevRefuses starts a second suite on a directory that one holds.
func TestSecondDevRefuses(t *testing.T) {
	t.Parallel()
	suite := sharedSuite(t)
	out, err := runDev(t, "--data", suite.Dir(), "--port-offset", "0")
	if err == nil {
		t.Fatalf("the second databus dev ended well:\n%s", out)
	}
	if !strings.Contains(out, suite.Dir()) {
		t.Errorf("the refusal does not name the directory %s:\n%s", suite.Dir(), out)
	}
	if _, err := suite.Read(t.Context(), newClients(t, suite).http, "nowhere"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the first suite no longer answers: %v", err)
	}
}

// TestPortInUse starts a suite while something else listens on one of its ports.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	for name, port := range map[string]int{"agent": harness.AgentHTTP, "broker": harness.BrokerGRPC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offset, err := harness.FreeOffset()
			if err != nil {
				t.Fatal(err)
			}
			addr := fmt.Sprintf("127.0.0.1:%d", port+offset)
			squatter, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer squatter.Close()
			out, err := runDev(t, "--data", t.TempDir(), "--port-offset", fmt.Sprint(offset))
			if err == nil {
				t.Fatalf("databus dev ended well with %s in use:\n%s", addr, out)
			}
			for _, want := range []string{fmt.Sprint(port + offset), name, "--port-offset"} {
				if !strings.Contains(out, want) {
					t.Errorf("the refusal does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

// runDev runs a `databus dev` that is expected to refuse, to its end. The bound only ends one that does not refuse.
func runDev(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dev := exec.CommandContext(ctx, binary, append([]string{"dev"}, args...)...)
	var out bytes.Buffer
	dev.Stdout, dev.Stderr = &out, &out
	err := dev.Run()
	if ctx.Err() != nil {
		t.Fatalf("databus dev %v neither refused nor ended:\n%s", args, out.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), err
}
