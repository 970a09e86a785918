package natskv

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/internal/errs"
)

// DialConfig describes a connection to servers that run elsewhere.
type DialConfig struct {
	URL             string // nats://host:port, several separated by commas
	Name            string // of this client, in NATS's own tools
	CredentialsFile string // a .creds file; empty: none
	CAFile          string // PEM certificates that the servers' must chain to; empty: the system's
	Logger          *slog.Logger
}

// Conn is a connection that comes back by itself for as long as it is open. Its methods may run concurrently; who made it
// closes it.
type Conn struct {
	nats *nats.Conn
	js   jetstream.JetStream
	dir  string // where the server keeps its files, where that is this process

	mu   sync.Mutex
	back chan struct{} // closed at the next reconnect
}

// nextReconnect returns a channel that is closed when the connection comes back the next time. A server that restarted has
// forgotten its watches, and the client library notices that only after missed heartbeats.
func (c *Conn) nextReconnect() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

func (c *Conn) reconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.back)
	c.back = make(chan struct{})
}

// Dial connects and returns when the first connection stands, or with an error when ctx ends before.
func Dial(ctx context.Context, c DialConfig) (*Conn, error) {
	var opts []nats.Option
	if c.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	}
	if c.CAFile != "" {
		opts = append(opts, nats.RootCAs(c.CAFile))
	}
	return connect(ctx, c.URL, c.Name, c.Logger, opts)
}

// Connect connects to an embedded server in this process, without a socket.
func (s *Server) Connect(ctx context.Context, name string, logger *slog.Logger) (*Conn, error) {
	c, err := connect(ctx, "", name, logger, []nats.Option{nats.InProcessServer(s.nats)})
	if err != nil {
		return nil, err
	}
	c.dir = s.dir
	return c, nil
}

// spaceNeeded is what a disk must have left beside the value for a write to an embedded server: JetStream refuses every write
// after one that found the disk full, until it is started again.
const spaceNeeded = 1 << 20

// room refuses a write to an embedded server whose disk is full.
func (c *Conn) room(op, bucket, key string, size int) error {
	if c.dir == "" {
		return nil
	}
	need := uint64(spaceNeeded + size) //nolint:gosec // sizes are positive
	var st unix.Statfs_t
	if err := unix.Statfs(c.dir, &st); err != nil {
		return nil //nolint:nilerr // the write itself will say what is wrong
	}
	if st.Bavail*uint64(st.Bsize) >= need { //nolint:gosec // sizes are positive
		return nil
	}
	return errs.New(errs.Unavailable, reasonNoSpace, "metadata: %s %s/%s: less than %d KiB are left where %s is", op, bucket, key, need>>10, c.dir).
		WithNext("free space, such as by databus topic delete-records, then try again").WithRetryAfter(noSpaceRetry)
}

func connect(ctx context.Context, url, name string, logger *slog.Logger, opts []nats.Option) (*Conn, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	out := &Conn{back: make(chan struct{})}
	up := make(chan struct{}, 1)
	opts = append(opts, nats.Name(name),
		// The servers may start after us: keep trying, first and later.
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond),
		nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { up <- struct{}{} }),
		nats.ReconnectHandler(func(c *nats.Conn) {
			logger.Info("metadata store is back", slog.String("url", c.ConnectedUrlRedacted()))
			out.reconnected()
		}),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if !c.IsClosed() {
				logger.Warn("metadata store is away", slog.Any("error", err))
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("metadata store", slog.Any("error", err))
		}),
	)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
	}
	select {
	case <-up:
	case <-ctx.Done():
		nc.Close()
		return nil, errs.New(errs.Unavailable, reasonUnavailable, "connect to NATS at %s: no server answered in time", url).
			WithNext("check that nats-server runs there with JetStream enabled and that nats.url names it").Wrap(ctx.Err())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
	}
	out.nats, out.js = nc, js
	return out, nil
}

// Connected tells whether the connection stands right now.
func (c *Conn) Connected() bool { return c.nats.IsConnected() }

// Close closes the connection and ends every watch on it. It may be called more than once.
func (c *Conn) Close() { c.nats.Close() }
