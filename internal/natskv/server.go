package natskv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// MaxValueBytes is the largest value that an embedded server takes. External servers have their own max_payload.
// The message around it has 64 KiB of room; past 8 MiB in all the server warns at every start.
const MaxValueBytes = 8<<20 - 64<<10

// ServerConfig describes an embedded server.
type ServerConfig struct {
	Name     string // shown in NATS's own tools; empty: databus
	StoreDir string // required; made where it is missing
	Host     string // empty: 127.0.0.1
	Port     int    // 0: any free port
	Logger   *slog.Logger
}

// Server is an embedded NATS server with JetStream. Its methods may run concurrently; who starts it closes it, after every
// connection to it.
type Server struct {
	nats *server.Server
	dir  string
	lock *os.File
	stop sync.Once
}

// startTimeout bounds how long a server may take to recover its streams and listen.
const startTimeout = 30 * time.Second

// StartServer starts a server and returns when it takes connections. A store directory that another process uses is refused.
func StartServer(ctx context.Context, c ServerConfig) (*Server, error) {
	if c.StoreDir == "" {
		return nil, errors.New("start embedded NATS: no store directory given")
	}
	lock, err := lockDir(c.StoreDir)
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: c.Name, Host: c.Host, Port: c.Port, StoreDir: c.StoreDir,
		// Else the limit is three quarters of what is free at this moment, which may be nothing, until the next start.
		JetStreamMaxStore: 1 << 40,
		JetStream:         true, SyncAlways: true, MaxPayload: MaxValueBytes + 64<<10, MaxPending: 64 << 20,
		NoSigs: true, DisableJetStreamBanner: true, LameDuckDuration: time.Second, LameDuckGracePeriod: time.Millisecond,
	}
	if opts.ServerName == "" {
		opts.ServerName = "databus"
	}
	if opts.Host == "" {
		opts.Host = "127.0.0.1"
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(opts)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("start embedded NATS on %s:%d: %w", opts.Host, c.Port, err)
	}
	log := &serverLog{logger: c.Logger}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	out := &Server{nats: s, dir: c.StoreDir, lock: lock}
	if err := out.waitReady(ctx, log); err != nil {
		out.Close()
		return nil, fmt.Errorf("start embedded NATS on %s:%d in %s: %w", opts.Host, c.Port, c.StoreDir, err)
	}
	return out, nil
}

// waitReady asks in short slices, since the server knows no context and only its log tells that it gave up.
func (s *Server) waitReady(ctx context.Context, log *serverLog) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.nats.ReadyForConnections(50 * time.Millisecond) {
		if fatal := log.fatalError(); fatal != "" {
			return errors.New(fatal)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it does not take connections: %w", ctx.Err())
		}
	}
	if !s.nats.JetStreamEnabled() {
		return fmt.Errorf("JetStream did not start: %s", log.fatalError())
	}
	return nil
}

// URL is where clients on this machine connect.
func (s *Server) URL() string { return s.nats.ClientURL() }

// Close stops the server and returns when its files are closed. It may be called more than once.
func (s *Server) Close() {
	s.stop.Do(func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		_ = unix.Flock(int(s.lock.Fd()), unix.LOCK_UN) // a process that is being started may have the descriptor too
		_ = s.lock.Close()
	})
}

// lockDir keeps two servers from one store, which JetStream itself does not notice.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("start embedded NATS: the store %s is in use by another process; stop it, or name another directory: %w", dir, err)
	}
	return f, nil
}

// serverLog bridges NATS's log to slog, one level down: what NATS notices, only its debugger needs.
type serverLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	fatal  string
}

func (l *serverLog) log(level slog.Level, format string, args []any) {
	if l.logger != nil {
		l.logger.LogAttrs(context.Background(), level, "embedded NATS", slog.String("says", fmt.Sprintf(format, args...)))
	}
}

func (l *serverLog) fatalError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l *serverLog) Warnf(format string, args ...any)   { l.log(slog.LevelWarn, format, args) }
func (l *serverLog) Debugf(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
func (l *serverLog) Tracef(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }

func (l *serverLog) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

// Fatalf is kept for StartServer, which returns it: only main ends the process.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == "" {
		l.fatal = fmt.Sprintf(format, args...)
	}
}
