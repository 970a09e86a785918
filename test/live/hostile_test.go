package live

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/databus-suite/databus/test/harness"
)

// residentBound is what an agent with the bounds of these tests may hold, the program itself included.
const residentBound = 400 << 20

// TestHostileClients sends what no honest client does: each gets its status, the agent keeps its memory, and others are served.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	agent := startAgent(t, broker.GRPCAddr(), "memory_bytes=64MiB", "max_request_bytes=4MiB", "unix_socket="+socket)
	e := &editor{t: t, client: &http.Client{}, broker: broker, agents: 1}
	e.call(http.MethodPost, "/v1/channels", map[string]any{"name": "fort"}, nil)

	t.Run("bodies", func(t *testing.T) { hostileBodies(t, agent) })
	t.Run("idle connections", func(t *testing.T) { idleConnections(t, agent) })
	t.Run("Unix socket", func(t *testing.T) { overSocket(t, socket) })
	t.Run("pages", func(t *testing.T) { pages(t, agent) })
	if held := resident(t, agent.PID()); held > residentBound {
		t.Errorf("the agent holds %d MiB, at most %d are allowed", held>>20, residentBound>>20)
	} else {
		t.Logf("the agent holds %d MiB", held>>20)
	}
}

func hostileBodies(t *testing.T, agent *harness.Service) {
	const head = "POST /v1/channels/fort/messages HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\n"
	bomb := bytes.Repeat([]byte{' '}, 256<<20)
	for _, tc := range []struct {
		name, headers string
		body          io.Reader
		end           bool // nothing comes after the body
		want          int
	}{
		{"100 MB announced", "Content-Length: 104857600\r\n", strings.NewReader("{"), false, http.StatusRequestEntityTooLarge},
		{"100 MB in chunks", "Transfer-Encoding: chunked\r\n", chunks(100), false, http.StatusRequestEntityTooLarge},
		{"shorter than announced", "Content-Length: 100\r\n", strings.NewReader(`{"messages":[{"value":1}]}`), true, http.StatusBadRequest},
		{"gzip bomb", "Content-Encoding: gzip\r\n", packed(t, bomb, gzipTo), false, http.StatusRequestEntityTooLarge},
		{"zstd bomb", "Content-Encoding: zstd\r\n", packed(t, bomb, zstdTo), false, http.StatusRequestEntityTooLarge},
		{"no gzip", "Content-Encoding: gzip\r\n", strings.NewReader(`{"messages":[]}`), false, http.StatusBadRequest},
		{"unknown encoding", "Content-Encoding: lzma\r\n", strings.NewReader(`{"messages":[]}`), false, http.StatusUnsupportedMediaType},
		{"gzip", "Content-Encoding: gzip\r\n", packed(t, []byte(`{"messages":[{"value":1}]}`), gzipTo), false, http.StatusOK},
		{"zstd", "Content-Encoding: zstd\r\n", packed(t, []byte(`{"messages":[{"value":1}]}`), zstdTo), false, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			headers := tc.headers
			if sized, ok := tc.body.(interface{ Len() int }); ok && !strings.Contains(headers, "Length") {
				headers += fmt.Sprintf("Content-Length: %d\r\n", sized.Len())
			}
			conn := connect(t, agent.HTTPAddr())
			go func() { // the agent may answer before it has read everything
				_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(head+headers+"\r\n"), tc.body))
				if tc.end {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
			}()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode != tc.want {
				text, _ := io.ReadAll(answer.Body)
				t.Errorf("status %d, want %d: %s", answer.StatusCode, tc.want, text)
			}
		})
	}
}

func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// chunks is a chunked body of so many MiB of blanks.
func chunks(n int) io.Reader {
	chunk := "100000\r\n" + strings.Repeat(" ", 1<<20) + "\r\n"
	var parts []io.Reader
	for range n {
		parts = append(parts, strings.NewReader(chunk))
	}
	return io.MultiReader(append(parts, strings.NewReader("0\r\n\r\n"))...)
}

func packed(t *testing.T, body []byte, to func(io.Writer) (io.WriteCloser, error)) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	w, err := to(&out)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(out.Bytes())
}

func gzipTo(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func zstdTo(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }

// idleConnections holds many connections that say nothing, or only the beginning of a request, while others publish.
func idleConnections(t *testing.T, agent *harness.Service) {
	n := size(t, "DATABUS_LIVE_IDLE", 500)
	before := resident(t, agent.PID())
	for i := range n {
		conn := connect(t, agent.HTTPAddr())
		if i%2 == 1 {
			if _, err := io.WriteString(conn, "POST /v1/channels/fort/messages HTTP/1.1\r\nHost: "); err != nil {
				t.Fatal(err)
			}
		}
	}
	publishOne(t, http.DefaultClient, agent.URL())
	t.Logf("%d connections cost %d KiB each", n, max(0, resident(t, agent.PID())-before)/1024/int64(n))
}

func publishOne(t *testing.T, client *http.Client, url string) {
	t.Helper()
	answer, err := harness.Call(t.Context(), client, http.MethodPost, url+"/v1/channels/fort/messages", []byte(`{"messages":[{"key":"k","value":1}]}`), nil)
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("status %d, error %v: %s", answer.Status, err, answer.Body)
	}
}

func overSocket(t *testing.T, path string) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	publishOne(t, &http.Client{Transport: transport}, "http://agent")
}

// pages looks at the page that lets one try the API, and at the document that it reads.
func pages(t *testing.T, agent *harness.Service) {
	page, err := harness.Call(t.Context(), http.DefaultClient, http.MethodGet, agent.URL()+"/docs", nil, nil)
	if err != nil || page.Status != http.StatusOK || !bytes.Contains(page.Body, []byte("/openapi.json")) {
		t.Errorf("GET /docs: status %d, error %v, reads /openapi.json: %t", page.Status, err, bytes.Contains(page.Body, []byte("/openapi.json")))
	}
	text, err := harness.Call(t.Context(), http.DefaultClient, http.MethodGet, agent.URL()+"/openapi.json", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Paths map[string]json.RawMessage }
	if err := json.Unmarshal(text.Body, &document); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/channels/{channel}/messages", "/v1/channels/{channel}:status"} {
		if document.Paths[path] == nil {
			t.Errorf("/openapi.json does not describe %s", path)
		}
	}
}

// resident is the memory that a process holds, 0 where the system does not say.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	return 0
}
