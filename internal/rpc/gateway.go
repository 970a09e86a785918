package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/telemetry"
)

const (
	pipeBytes = 1 << 20
	// bodyTimeout bounds how long a REST body may take to arrive.
	bodyTimeout = 30 * time.Second
)

// Gateway serves generated REST handlers. They call the gRPC services through a connection inside the process, so
// that what those see is the same by every protocol. It may be called once for each service.
func (s *Server) Gateway(ctx context.Context, register func(ctx context.Context, mux *runtime.ServeMux, conn *grpc.ClientConn) error) error {
	if s.gateway == nil {
		if err := s.openGateway(); err != nil {
			return fmt.Errorf("open the REST gateway: %w", err)
		}
	}
	mux := s.gateway.(*gateway).mux
	if err := register(ctx, mux, s.conn); err != nil {
		return fmt.Errorf("register with the REST gateway: %w", err)
	}
	return nil
}

func (s *Server) openGateway() error {
	pipe := bufconn.Listen(pipeBytes)
	conn, err := grpc.NewClient("passthrough:///gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(outgoingTrace(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(outgoingTrace(ctx), desc, cc, method, opts...)
		}),
	)
	if err != nil {
		return errors.Join(err, pipe.Close())
	}
	opts := append([]runtime.ServeMuxOption{
		runtime.WithErrorHandler(gatewayError),
		runtime.WithRoutingErrorHandler(gatewayRoutingError),
		runtime.WithStreamErrorHandler(func(_ context.Context, err error) *status.Status { return errs.From(err).GRPCStatus() }),
	}, s.opts.gateway...)
	s.pipe, s.conn = pipe, conn
	s.gateway = &gateway{mux: runtime.NewServeMux(opts...), maxBytes: s.cfg.MaxRequestBytes}
	return nil
}

// outgoingTrace hands the caller's trace on to the service, whatever the gateway's header matcher lets through.
func outgoingTrace(ctx context.Context) context.Context {
	if !telemetry.Carries(ctx) {
		return ctx
	}
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	telemetry.Inject(ctx, func(key, value string) { md.Set(key, value) })
	return metadata.NewOutgoingContext(ctx, md)
}

func gatewayError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	errs.WriteHTTP(w, err)
}

func gatewayRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusNotFound:
		errs.WriteHTTP(w, notFound(r))
	case http.StatusMethodNotAllowed:
		writeMethodNotAllowed(w, r, nil)
	default:
		errs.WriteHTTP(w, errs.New(errs.Invalid, "BAD_REQUEST", "%s %s: %s", r.Method, r.URL.Path, http.StatusText(code)))
	}
}

// gateway bounds the bodies that it hands to the generated handlers, which read them into memory as a whole.
type gateway struct {
	mux      *runtime.ServeMux
	maxBytes int64
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		body, err := readBody(w, r, g.maxBytes)
		if err != nil {
			w.Header().Set("Connection", "close") // the rest of the body is not worth reading
			errs.WriteHTTP(w, err)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	g.mux.ServeHTTP(w, r)
}

// readBody reads a body of at most limit bytes, within bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	tooLarge := errs.New(errs.TooLarge, "REQUEST_TOO_LARGE", "%s %s: the body is larger than %d bytes", r.Method, r.URL.Path, limit).
		WithNext("send less in one request")
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	deadlined := rc.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead) // at most limit
	}
	_, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, errs.New(errs.Invalid, "BODY_INCOMPLETE", "%s %s: read the body", r.Method, r.URL.Path).
			WithNext("send the whole body within %s", bodyTimeout).Wrap(err)
	}
	if int64(buf.Len()) > limit {
		return nil, tooLarge
	}
	if deadlined {
		_ = rc.SetReadDeadline(time.Time{}) // it could be set, so it can be unset
	}
	return buf.Bytes(), nil
}
