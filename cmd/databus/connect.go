package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/errs"
)

// brokerFlags are the flags of every command that speaks to a broker.
type brokerFlags struct {
	Addr    string        `help:"HTTP address of the broker." default:"127.0.0.1:8090" env:"DATABUS_BROKER"`
	Timeout time.Duration `help:"Longest wait for one answer." default:"10s" env:"DATABUS_TIMEOUT"`
}

func (f brokerFlags) server() server {
	return brokerAt(f.Addr, f.Timeout)
}

// agentFlags are the flags of every command that speaks to an agent.
type agentFlags struct {
	Addr    string        `help:"HTTP address of the agent." default:"127.0.0.1:8080" env:"DATABUS_AGENT"`
	Timeout time.Duration `help:"Longest wait for one answer." default:"30s" env:"DATABUS_TIMEOUT"`
}

func (f agentFlags) server() server {
	return agentAt(f.Addr, f.Timeout)
}

// server is the service that a command speaks to.
type server struct {
	kind    string // broker or agent
	addr    string
	env     string
	timeout time.Duration
	http    *http.Client
}

func brokerAt(addr string, timeout time.Duration) server {
	return server{kind: "broker", addr: addr, env: "DATABUS_BROKER", timeout: timeout, http: newHTTPClient(timeout)}
}

func agentAt(addr string, timeout time.Duration) server {
	return server{kind: "agent", addr: addr, env: "DATABUS_AGENT", timeout: timeout, http: newHTTPClient(timeout)}
}

// newHTTPClient speaks HTTP/2, in plain text too, so that many streams share one connection.
func newHTTPClient(timeout time.Duration) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	dialer := &net.Dialer{Timeout: min(timeout, 5*time.Second)}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, Protocols: protocols,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}}
}

// hangUp closes connections that no call uses. A server that stops waits a second for those that nobody closes.
func (s server) hangUp() { s.http.CloseIdleConnections() }

// baseURL takes host:port (plain text, as on one machine or inside of a cluster) and http or https URLs.
func (s server) baseURL() (string, error) {
	raw := s.addr
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", &usage{message: fmt.Sprintf("the address %q is none", s.addr), next: "give --addr as HOST:PORT, such as 127.0.0.1:8090"}
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// dial returns what every generated client of this server is made from.
func (s server) dial() (base string, options []connect.ClientOption, err error) {
	base, err = s.baseURL()
	return base, []connect.ClientOption{connect.WithInterceptors(callErrors{s})}, err
}

func (s server) topics() (brokerv1connect.TopicServiceClient, error) {
	base, options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return brokerv1connect.NewTopicServiceClient(s.http, base, options...), nil
}

func (s server) reads() (brokerv1connect.ReadServiceClient, error) {
	base, options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return brokerv1connect.NewReadServiceClient(s.http, base, options...), nil
}

func (s server) storage() (brokerv1connect.StorageServiceClient, error) {
	base, options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return brokerv1connect.NewStorageServiceClient(s.http, base, options...), nil
}

func (s server) channels() (databusv1connect.ChannelServiceClient, error) {
	base, options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return databusv1connect.NewChannelServiceClient(s.http, base, options...), nil
}

func (s server) publish() (databusv1connect.PublishServiceClient, error) {
	base, options, err := s.dial()
	if err != nil {
		return nil, err
	}
	return databusv1connect.NewPublishServiceClient(s.http, base, options...), nil
}

// callErrors bounds each unary call and turns what failed into an *errs.Error that says what to do next.
type callErrors struct{ server }

func (c callErrors) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		res, err := next(ctx, req)
		return res, c.translate(err)
	}
}

// WrapStreamingClient leaves streams alone: their errors come out of Err, where follow translates them.
func (c callErrors) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c callErrors) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Reasons of failures that no server reported.
const (
	// reasonUnreachable: no connection could be made; nothing was sent, so a repeat is safe.
	reasonUnreachable = "UNREACHABLE"
	// reasonConnectionLost: the connection ended before the answer; whether the call took effect is unknown.
	reasonConnectionLost = "CONNECTION_LOST"
)

func (s server) translate(err error) error {
	if err == nil {
		return nil
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		e := errs.New(errs.Unavailable, reasonUnreachable, "cannot reach the %s at %s", s.kind, s.addr).Wrap(cause(dial))
		return e.WithNext("start everything with `databus dev`, or say where it is with --addr or %s", s.env)
	}
	c, ok := errors.AsType[*connect.Error](err)
	if ok && otherService(c.Message()) {
		return errs.New(errs.Invalid, "OTHER_SERVICE", "what answers at %s is no %s: %s", s.addr, s.kind, c.Message()).
			WithNext("give --addr or %s the %s's HTTP port", s.env, s.kind)
	}
	if !ok || connect.IsWireError(err) || c.Code() != connect.CodeUnavailable && c.Code() != connect.CodeUnknown {
		return errs.From(err)
	}
	return errs.New(errs.Unavailable, reasonConnectionLost, "lost the connection to the %s at %s before it answered", s.kind, s.addr).
		Wrap(c.Unwrap()).WithNext("check whether it runs, and whether the call took effect, before you repeat it")
}

// otherService recognises what answers a call that is not served there: bare HTTP statuses, and no HTTP/2 at all.
func otherService(message string) bool {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType} {
		if message == fmt.Sprintf("%d %s", status, http.StatusText(status)) {
			return true
		}
	}
	return strings.Contains(message, "malformed HTTP") || strings.Contains(message, "http2: frame") ||
		strings.Contains(message, "http2: failed reading the frame") || strings.Contains(message, "server gave HTTP response to HTTPS client")
}

// cause is the last link of a failed dial: "connection refused", "no such host".
func cause(dial *net.OpError) error {
	var number syscall.Errno
	if errors.As(dial.Err, &number) {
		return number
	}
	return dial.Err
}
