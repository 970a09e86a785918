package rpc

import (
	"context"
	"slices"
	"sync"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// readiness keeps what each service said of itself, and tells the health server. Its methods may run concurrently.
type readiness struct {
	mu      sync.Mutex
	health  *health.Server
	serving map[string]bool
	started bool
}

func (r *readiness) init(h *health.Server) {
	r.health, r.serving = h, map[string]bool{}
	r.publish()
}

// add makes a service known. It serves, unless it was said otherwise.
func (r *readiness) add(service string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.serving[service]; !known {
		r.serving[service] = true
	}
	r.publish()
}

func (r *readiness) set(service string, serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving[service] = serving
	r.publish()
}

func (r *readiness) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	r.publish()
}

// publish is called with the lock held. After the health server's Shutdown it changes nothing.
func (r *readiness) publish() {
	all := r.started
	for service, serving := range r.serving {
		all = all && serving
		r.health.SetServingStatus(service, servingStatus(r.started && serving))
	}
	r.health.SetServingStatus("", servingStatus(all))
}

func servingStatus(serving bool) healthpb.HealthCheckResponse_ServingStatus {
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// notServing lists the services that keep the server from being ready.
func (r *readiness) notServing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for service, serving := range r.serving {
		if !serving {
			out = append(out, service)
		}
	}
	slices.Sort(out)
	return out
}

// isReady asks the health server, which also knows of a drain.
func (s *Server) isReady(ctx context.Context) bool {
	res, err := s.health.Check(ctx, &healthpb.HealthCheckRequest{})
	return err == nil && res.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

func (s *Server) registerHealth() {
	healthpb.RegisterHealthServer(s.public, endingHealth{s.health, s.draining})
}

// endingHealth ends watches when the server drains: they would hold it up for the whole drain timeout.
type endingHealth struct {
	*health.Server
	draining <-chan struct{}
}

func (h endingHealth) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-h.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return h.Server.Watch(req, watchStream{stream, ctx})
}

type watchStream struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

func (w watchStream) Context() context.Context { return w.ctx }

// connectHealth answers health checks on the HTTP port from the same state.
type connectHealth struct{ health *health.Server }

func (c connectHealth) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	res, err := c.health.Check(ctx, &healthpb.HealthCheckRequest{Service: req.Service})
	if status.Code(err) == codes.NotFound {
		return nil, connect.NewError(connect.CodeNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	return &grpchealth.CheckResponse{Status: grpchealth.Status(res.GetStatus())}, nil
}
