//go:build clients

package clients

import (
	"bytes"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/test/harness"
)

// example is a publisher in another language: it publishes standard input's lines and prints one JSON line a message.
type example struct {
	name    string
	setup   [][]string // commands that make it ready, run in the example's folder
	publish []string   // the command, to which flags are added
	port    int        // default port of the agent that it speaks to
	scheme  string
}

var examples = []example{
	{
		name: "python", setup: [][]string{{"./setup.sh"}},
		publish: []string{".venv/bin/python", "publish.py"}, port: harness.AgentGRPC,
	},
	{
		name: "typescript", setup: [][]string{{"npm", "ci", "--silent"}, {"npm", "run", "--silent", "build"}},
		publish: []string{"node", "dist/src/publish.js"}, port: harness.AgentHTTP, scheme: "http://",
	},
}

// TestExamples publishes test data with each example and reads back the same bytes, key, headers and order.
func TestExamples(t *testing.T) {
	lines := testLines(t)
	suite := harness.Run(t, binary)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			folder := filepath.Join(root, "examples", e.name)
			for _, command := range e.setup {
				execute(t, folder, nil, command...)
			}
			channel := "example." + e.name
			if err := suite.CreateChannel(t.Context(), httpClient, channel, ""); err != nil {
				t.Fatal(err)
			}
			published := execute(t, folder, append(bytes.Join(lines, []byte("\n")), '\n'), append(e.publish,
				"--agent", e.scheme+suite.Addr(e.port), "--channel", channel, "--key", "klíč", "--header", "from="+e.name)...)
			if got := strings.Count(published, "\n"); got != len(lines) {
				t.Errorf("printed %d lines for %d messages", got, len(lines))
			}
			messages, err := suite.Read(t.Context(), httpClient, channel)
			if err != nil {
				t.Fatal(err)
			}
			if len(messages) != len(lines) {
				t.Fatalf("%d messages in the log, want %d", len(messages), len(lines))
			}
			for i, m := range messages {
				if !bytes.Equal(m.Value, lines[i]) || string(m.Key) != "klíč" {
					t.Errorf("message %d is %q: %.200q, want %.200q", i, m.Key, m.Value, lines[i])
				}
				if diff := cmp.Diff([]harness.Header{{Key: "from", Value: e.name}}, m.Headers); diff != "" {
					t.Errorf("headers of message %d (-want +got):\n%s", i, diff)
				}
			}
			refusesUnknownChannel(t, suite, e, folder)
		})
	}
}

// refusesUnknownChannel shows that an example ends with code 1 and says why.
func refusesUnknownChannel(t *testing.T, suite *harness.Suite, e example, folder string) {
	t.Helper()
	args := append(e.publish[1:len(e.publish):len(e.publish)], "--agent", e.scheme+suite.Addr(e.port), "--channel", "nowhere")
	publish := exec.CommandContext(t.Context(), e.publish[0], args...)
	publish.Dir = folder
	publish.Stdin = strings.NewReader("1\n")
	out, err := publish.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "nowhere") {
		t.Errorf("publish to an unknown channel: %v\n%s", err, out)
	}
}

// testLines are the payloads: the shared data where it is, and a few of our own.
func testLines(t *testing.T) [][]byte {
	t.Helper()
	lines := [][]byte{
		[]byte(`12345678901234567890`), []byte(`1.0`), []byte(`null`), []byte(`{"a":1,"a":2}`), []byte(`"\ud83d"`),
		[]byte("\"raw \u2028 line separator\""), []byte(`{ "spaced" :  [1, 2 ] }`),
	}
	for _, file := range []string{"json-edges.jsonl", "github-webhooks.jsonl"} {
		more, err := harness.Lines(file)
		if errors.Is(err, fs.ErrNotExist) {
			t.Logf("goes on without the lines of %s: %v", file, err)
		} else if err != nil {
			t.Fatal(err)
		}
		for _, line := range more {
			lines = append(lines, line.Value)
		}
	}
	return lines
}
