package plainhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// echo answers with what it got of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	names := make([]string, 0, len(r.Header))
	for name, values := range r.Header {
		if name != "Content-Length" { // of no use beside Request.ContentLength
			names = append(names, fmt.Sprintf("%s=%q", name, values))
		}
	}
	slices.Sort(names)
	w.Header().Set("Content-Type", "text/plain")
	if string(body) == "teapot" {
		w.WriteHeader(http.StatusTeapot)
	}
	fmt.Fprintf(w, "%s %s %s host=%s part=%s headers=%s length=%d body=%q err=%v\n",
		r.Method, r.URL.Path, r.Proto, r.Host, r.PathValue("part"), names, r.ContentLength, body, err)
}

// pair is a server with plain requests before net/http.
type pair struct {
	plain *Server
	addr  string
	serve http.HandlerFunc

	plainly, byNetHTTP atomic.Int64 // requests
}

func start(tb testing.TB, serve http.HandlerFunc) *pair {
	tb.Helper()
	p := &pair{serve: serve}
	p.plain = New(slog.New(slog.DiscardHandler), func(net.Conn, http.ConnState) {})
	p.plain.Handle("POST /v1/{part}/events", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.plainly.Add(1); p.serve(w, r) }))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{part}/events", func(w http.ResponseWriter, r *http.Request) { p.byNetHTTP.Add(1); p.serve(w, r) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p.addr = l.Addr().String()
	srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	both := p.plain.Listener(context.Background(), l)
	go func() { ended <- srv.Serve(both) }()
	tb.Cleanup(func() {
		p.plain.Close()
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	return p
}

func dial(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// talk sends all of it, ends its side, and returns the answers, one a line, and how the conversation ended.
func talk(tb testing.TB, addr, text string) string {
	tb.Helper()
	c := dial(tb, addr)
	go func() {
		_, _ = io.WriteString(c, text) // the server may have said no already
		_ = c.CloseWrite()
	}()
	return answers(c)
}

func answers(c net.Conn) string {
	var out strings.Builder
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return out.String() // by EOF, or by a reset where the server had no use for the rest
		}
		body, err := io.ReadAll(resp.Body)
		fmt.Fprintf(&out, "%d %s %q %v\n", resp.StatusCode, resp.Header.Get("Content-Type"), body, err)
	}
}

func request(path, header, body string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + header + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// conversations are what callers send on one connection. plain is how many of the requests are answered plainly.
var conversations = []struct {
	name, text string
	plain      int64
}{
	{"one", request("/v1/a/events", "", `{"a":1}`), 1},
	{"none", "", 0},
	{"empty body", request("/v1/a/events", "", ""), 1},
	{"status", request("/v1/a/events", "", "teapot"), 1},
	{"headers", request("/v1/a/events", "content-TYPE:  a/b \r\nX-A: 1\r\nx-a: 2\r\nX-Empty:\r\nX-\u00e9: no\r\n", "x"), 0},
	{"header values", request("/v1/a/events", "content-TYPE: \t a/b \r\nX-A: 1\r\nx-a: \u00e9\r\nX-Empty:\r\n", "x"), 1},
	{"pipelined", request("/v1/a/events", "", "1") + request("/v1/b/events", "", "22") + request("/v1/b/events", "X: y\r\n", "3") + request("/v1/b/events", "X: y\r\n", "4"), 4},
	{"one fewer header", request("/v1/a/events", "X: y\r\n", "1") + request("/v1/a/events", "", "2"), 2},
	{"other path, then plain again", request("/v1/a/events", "", "1") + request("/v2/a", "", "2") + request("/v1/a/events", "", "3"), 1},
	{"large", request("/v1/a/events", "", strings.Repeat("x", maxPlain+1)), 0},
	{"nearly large", request("/v1/a/events", "", strings.Repeat("x", maxPlain-200)) + request("/v1/a/events", "", "2"), 2},
	{"large head", request("/v1/a/events", "X: "+strings.Repeat("x", maxPlain)+"\r\n", "1"), 0},
	{"chunked", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 0},
	{"chunked and length", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0},
	{"no length", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\n\r\n", 0},
	{"two lengths", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 0},
	{"same length twice", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 0},
	{"length with sign", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx", 0},
	{"length of nothing", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\nx", 0},
	{"length with space before the colon", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length : 1\r\n\r\nx", 0},
	{"long length", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nx", 0},
	{"folded", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\nx", 0},
	{"folded length", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n 1\r\n\r\nx", 0},
	{"bare LF", "POST /v1/a/events HTTP/1.1\nHost: h\nContent-Length: 1\n\nx", 0},
	{"bare LF within", "POST /v1/a/events HTTP/1.1\r\nHost: h\nX: y\r\nContent-Length: 1\r\n\r\nx", 0},
	{"bare CR within", "POST /v1/a/events HTTP/1.1\r\nHost: h\rX: y\r\nContent-Length: 1\r\n\r\nx", 0},
	{"no host", "POST /v1/a/events HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 0},
	{"two hosts, one empty", "POST /v1/a/events HTTP/1.1\r\nHost:\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"a byte too many", request("/v1/a/events", "", "1") + "\n", 1},
	{"line ends after a body", request("/v1/a/events", "", "1") + "\r\n" + request("/v1/a/events", "", "2") + "\r\n\r\n" + request("/v1/a/events", "", "3"), 3},
	{"more line ends after a body", request("/v1/a/events", "", "1") + "\r\n\r\n\r\n" + request("/v1/a/events", "", "2"), 1},
	{"line ends, then another method", request("/v1/a/events", "", "1") + "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 1},
	{"two hosts", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"bad host", "POST /v1/a/events HTTP/1.1\r\nHost: h h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"1.0", "POST /v1/a/events HTTP/1.0\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"absolute", "POST http://h/v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"query", request("/v1/a/events?x=y", "", "1"), 0},
	{"escaped", request("/v1/a%2Fb/events", "", "1"), 0},
	{"deeper", request("/v1/a/b/events", "", "1"), 0},
	{"dots", request("/v1/../events", "", "1"), 0},
	{"another method", "PUT /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 0},
	{"close", request("/v1/a/events", "Connection: close\r\n", "1") + request("/v1/a/events", "", "2"), 0},
	{"keep-alive", request("/v1/a/events", "Connection: Keep-Alive\r\n", "1") + request("/v1/a/events", "", "2"), 2},
	{"upgrade", request("/v1/a/events", "Connection: Upgrade\r\nUpgrade: x\r\n", "1"), 0},
	{"expect", request("/v1/a/events", "Expect: something\r\n", "1"), 0},
	{"cut head", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nConte", 0},
	{"cut body", "POST /v1/a/events HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx", 0},
	{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0},
}

// Whatever callers send, they get what net/http alone would answer.
func TestSameAsNetHTTP(t *testing.T) {
	both := start(t, echo)
	alone := netHTTP(t)
	for _, tc := range conversations {
		before := both.plainly.Load()
		got, want := talk(t, both.addr, tc.text), talk(t, alone, tc.text)
		if got != want {
			t.Errorf("%s: %.500q\ngot  %.500s\nwant %.500s", tc.name, tc.text, got, want)
		}
		if n := both.plainly.Load() - before; n != tc.plain {
			t.Errorf("%s: %d were answered plainly, want %d", tc.name, n, tc.plain)
		}
	}
}

// netHTTP is the address of the same service without this package.
func netHTTP(tb testing.TB) string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{part}/events", echo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go srv.Serve(l) //nolint:errcheck // it ends with the test
	tb.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

func FuzzSameAsNetHTTP(f *testing.F) {
	for _, tc := range conversations {
		if len(tc.text) < 1000 {
			f.Add(tc.text)
		}
	}
	both := start(f, echo)
	alone := netHTTP(f)
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := served(talk(t, both.addr, text)), served(talk(t, alone, text)); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", text, got, want)
		}
	})
}

// served is without a last word on what follows the requests that were answered: whether net/http has one depends on when it looks.
func served(answers string) string {
	if i := strings.Index(answers, "\n400 text/plain; charset"); i >= 0 {
		return answers[:i+1]
	}
	return answers
}

// The same head again costs no allocation of this package's.
func TestNoAllocations(t *testing.T) {
	var h head
	routes := []route{{prefix: "/v1/", param: "part", suffix: "/events"}}
	one, two := []byte(request("/v1/a/events", "X: y\r\n", "1")), []byte(request("/v1/a/events", "X: y\r\n", strings.Repeat("2", 100)))
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range [][]byte{one, two} {
			if _, _, v := h.read(t.Context(), b, routes); v != plain {
				t.Fatal(v)
			}
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	a := answer{header: make(http.Header)}
	value := []string{"application/json"}
	if n := testing.AllocsPerRun(100, func() {
		a.reset()
		a.header["Content-Type"] = value
		_, _ = a.Write(one)
		a.bytes(nil, false)
	}); n > 0 {
		t.Errorf("%v allocations of an answer", n)
	}
}

// exchange sends a request and reads its answer.
func exchange(t *testing.T, c net.Conn, in *bufio.Reader, text string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

func theOne(t *testing.T, p *pair) *conn {
	t.Helper()
	all := p.plain.all()
	if len(all) != 1 {
		t.Fatalf("%d connections", len(all))
	}
	return all[0]
}

// later is a time at which the sweep looks at a connection, as what it does now.
func (c *conn) later(ticks int64) int64 { return c.doing.Load()/8 + ticks }

func TestIdleConnectionsEnd(t *testing.T) {
	p := start(t, echo)
	c := dial(t, p.addr)
	in := bufio.NewReader(c)
	exchange(t, c, in, request("/v1/a/events", "", "1"))
	server := theOne(t, p)
	for server.doing.Load()%8 != idle { // it was answered a moment ago
		runtime.Gosched()
	}
	server.sweep(server.later(idleTicks))
	exchange(t, c, in, request("/v1/a/events", "", "2"))
	for server.doing.Load()%8 != idle {
		runtime.Gosched()
	}
	server.sweep(server.later(idleTicks + 1))
	if _, err := in.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

func TestSlowRequestsGoToNetHTTP(t *testing.T) {
	p := start(t, echo)
	c := dial(t, p.addr)
	text := request("/v1/a/events", "", "slow")
	if _, err := io.WriteString(c, text[:len(text)-2]); err != nil {
		t.Fatal(err)
	}
	for all := p.plain.all(); len(all) == 0 || all[0].doing.Load()%8 != reading; all = p.plain.all() {
		runtime.Gosched()
	}
	server := theOne(t, p)
	server.sweep(server.later(slowTicks))
	for len(p.plain.all()) > 0 {
		runtime.Gosched()
	}
	if resp := exchange(t, c, bufio.NewReader(c), text[len(text)-2:]); resp.StatusCode != http.StatusOK || p.byNetHTTP.Load() != 1 {
		t.Error(resp.Status)
	}
}

func TestCallerWentAway(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	c := dial(t, p.addr)
	if _, err := io.WriteString(c, request("/v1/a/events", "", "1")); err != nil {
		t.Fatal(err)
	}
	<-began
	server := theOne(t, p)
	server.sweep(server.later(slowTicks)) // the caller is there
	if server.ctx.Err() != nil {
		t.Fatal("the context of a caller who waits ended")
	}
	_ = c.Close()
	for server.ctx.Err() == nil {
		server.sweep(server.later(slowTicks))
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestShutdown(t *testing.T) {
	began, finish := make(chan struct{}, 1), make(chan struct{})
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-finish
		echo(w, r)
	})
	waiting, busy := dial(t, p.addr), dial(t, p.addr)
	if _, err := io.WriteString(busy, request("/v1/a/events", "", "1")); err != nil {
		t.Fatal(err)
	}
	<-began
	down := make(chan error)
	go func() { down <- p.plain.Shutdown(t.Context()) }()
	if text := answers(waiting); text != "" {
		t.Error(text)
	}
	close(finish)
	resp := exchange(t, busy, bufio.NewReader(busy), "")
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("%s, and the connection goes on: %v", resp.Status, !resp.Close)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestShutdownCutsWhatTakesTooLong(t *testing.T) {
	began := make(chan struct{})
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	})
	c := dial(t, p.addr)
	if _, err := io.WriteString(c, request("/v1/a/events", "", "1")); err != nil {
		t.Fatal(err)
	}
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.plain.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if text := answers(c); strings.Contains(text, "\n") && !strings.HasPrefix(text, "200") {
		t.Error(text)
	}
}

func TestPanicCutsTheConnection(t *testing.T) {
	p := start(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if text := talk(t, p.addr, request("/v1/a/events", "", "1")); text != "" {
		t.Error(text)
	}
}

// An answer's own values end no line.
func TestAnswerHasNoExtraLines(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-A", "1\r\nX-B: 2")
		w.Header().Set("Content-Length", "99")
		_, _ = w.Write(bytes.Repeat([]byte("x"), 3*maxKept))
	})
	c := dial(t, p.addr)
	in := bufio.NewReader(c)
	for range 2 {
		resp := exchange(t, c, in, request("/v1/a/events", "", "1"))
		if resp.Header.Get("X-B") != "" || resp.ContentLength != 3*maxKept || resp.Header.Get("Date") == "" {
			t.Errorf("%v", resp.Header)
		}
	}
}
