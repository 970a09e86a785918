package rpc

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/telemetry"
)

// Bounds against slow and greedy callers. A whole request has no bound of its own: streams live long.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	maxStreams        = 1000
)

func (s *Server) newHTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS
	return &http.Server{
		Handler:           s.entry(s.mux),
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.conns.note,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // mostly callers that went away
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReceiveBufferPerConnection: connWindow - 1, // the most that net/http allows
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   10 * time.Second,
		},
	}
}

// entry takes the caller's trace into the context, and says which answer is a connection's last, whatever serves the call.
func (s *Server) entry(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The names as net/http writes them: Get would make them canonical for each request, which allocates.
		if len(r.Header["Traceparent"]) > 0 || len(r.Header["Baggage"]) > 0 {
			r = r.WithContext(telemetry.Extract(r.Context(), r.Header.Get))
		}
		if s.leaving.Load() && r.ProtoMajor == 1 {
			w.Header()["Connection"] = []string{"close"}
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) registerRoutes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.Handle("GET /metrics", s.cfg.Telemetry.MetricsHandler())
	if len(s.cfg.OpenAPI) > 0 {
		s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(s.cfg.OpenAPI)
		})
		s.mux.HandleFunc("GET /docs", serveDocs)
	}
	s.registerConnect()
	s.mux.Handle("/", s.recovering(http.HandlerFunc(s.fallback)))
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.isReady(r.Context()) {
		writeText(w, http.StatusOK, "ready\n")
		return
	}
	why := "not ready: starting or stopping\n"
	if missing := s.ready.notServing(); len(missing) > 0 {
		why = "not ready: " + strings.Join(missing, ", ") + "\n"
	}
	writeText(w, http.StatusServiceUnavailable, why)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(text))
}

// fallback serves what no handler of our own matched: the gateway's paths, and what does not exist.
func (s *Server) fallback(w http.ResponseWriter, r *http.Request) {
	if allowed := s.allowed(r); len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		writeMethodNotAllowed(w, r, allowed)
		return
	}
	if s.gateway != nil {
		s.gateway.ServeHTTP(w, r)
		return
	}
	errs.WriteHTTP(w, notFound(r))
}

// allowed lists the methods for which a handler of our own would have matched.
func (s *Server) allowed(r *http.Request) []string {
	if s.gateway != nil && strings.HasPrefix(r.URL.Path, "/v1/") {
		return nil // the gateway knows the methods of its own paths, and ours among them
	}
	var out []string
	probe := &http.Request{URL: r.URL, Host: r.Host}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != "" && pattern != "/" {
			out = append(out, method)
		}
	}
	if slices.Contains(out, r.Method) {
		return nil
	}
	return out
}

func notFound(r *http.Request) *errs.Error {
	return errs.New(errs.NotFound, "PATH_NOT_FOUND", "nothing is served at %s %s", r.Method, r.URL.Path).
		WithNext("see /openapi.json or /docs for the paths of this service")
}

// writeMethodNotAllowed answers 405, which no code of package errs has: the path is right and the method is not.
func writeMethodNotAllowed(w http.ResponseWriter, r *http.Request, allowed []string) {
	next := "see /openapi.json or /docs for the methods of this path"
	if len(allowed) > 0 {
		next = "use " + strings.Join(allowed, " or ")
	}
	e := errs.New(errs.Unimplemented, "METHOD_NOT_ALLOWED", "%s is not served at %s", r.Method, r.URL.Path).WithNext("%s", next)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusMethodNotAllowed)
	w.Write(errs.AppendJSON(nil, e.Proto()))
}

// recovering answers for a handler that panics.
func (s *Server) recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &trackedWriter{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				s.answerPanic(t, r, p)
			}
		}()
		h.ServeHTTP(t, r)
	})
}

func (s *Server) answerPanic(w *trackedWriter, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // asked for: net/http cuts the connection
	}
	err := s.recovered(r.Context(), r.Method+" "+r.URL.Path, p)
	if w.wrote {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	errs.WriteHTTP(w, err)
}

// trackedWriter knows whether the answer has begun.
type trackedWriter struct {
	http.ResponseWriter
	wrote bool
}

func (t *trackedWriter) WriteHeader(status int) {
	t.wrote = true
	t.ResponseWriter.WriteHeader(status)
}

func (t *trackedWriter) Write(p []byte) (int, error) {
	t.wrote = true
	return t.ResponseWriter.Write(p)
}

func (t *trackedWriter) Flush() {
	t.wrote = true
	if f, ok := t.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController reach the writer below.
func (t *trackedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
