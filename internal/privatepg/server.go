package privatepg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/databus-suite/databus/internal/errs"
)

// Config says where a server lives.
type Config struct {
	// Dir holds everything: the cluster, the log, the password. It is made where it is missing.
	Dir string
	// Addr to listen on. Port 0 takes a free one.
	Addr string
}

// database and role of every private server.
const (
	database = "databus"
	role     = "databus"
)

// Server is a running Postgres. URL, Done and Err may be called by several goroutines; Stop more than once.
type Server struct {
	dir      string
	address  string
	password string
	cmd      *exec.Cmd
	done     chan struct{}
	stop     sync.Once
}

// Start makes the cluster where there is none, and starts it. It returns once the server takes connections and its database is
// there. The error is an *errs.Error that says what to install or change. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	who, err := findAccount()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	bin, err := find(clusterMajor(data))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(who.own(dir), who.reaches(dir)); err != nil {
		return nil, failed(dir, "prepare the directory", err)
	}
	password, err := cluster(ctx, who, bin, dir, data)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(cfg.Addr)
	if err != nil {
		return nil, failed(dir, "find a port", err)
	}
	s := &Server{dir: dir, address: address, password: password, done: make(chan struct{})}
	if err := s.launch(ctx, who, bin, data); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// cluster runs initdb where there is no cluster yet, and returns the password of the role.
func cluster(ctx context.Context, who account, bin programs, dir, data string) (string, error) {
	secret := filepath.Join(dir, "password")
	if clusterMajor(data) > 0 {
		raw, err := os.ReadFile(secret)
		if err != nil {
			return "", failed(dir, "read the password", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	// What an interrupted initdb left is no cluster.
	if err := os.RemoveAll(data); err != nil {
		return "", failed(dir, "clear away a half-made cluster", err)
	}
	password := rand.Text()
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return "", failed(dir, "write the password", err)
	}
	if who.switches {
		if err := os.Chown(secret, who.uid, who.gid); err != nil {
			return "", failed(dir, "hand over the password", err)
		}
	}
	out, err := who.command(ctx, dir, bin.initdb, "--pgdata", data, "--username", role, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C").CombinedOutput()
	if err != nil {
		return "", failed(dir, "initdb", fmt.Errorf("%w: %s", err, lastLines(out)))
	}
	return password, nil
}

// launch starts the server process. A server that a killed suite left behind on this directory is stopped first.
func (s *Server) launch(ctx context.Context, who account, bin programs, data string) error {
	if _, err := os.Stat(filepath.Join(data, "postmaster.pid")); err == nil {
		// An error means that nobody runs any more, which is as good.
		_ = who.command(ctx, s.dir, bin.pgctl, "stop", "--pgdata", data, "--mode", "fast", "-w").Run()
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return failed(s.dir, "read the address", err)
	}
	logFile, err := os.Create(s.logPath())
	if err != nil {
		return failed(s.dir, "open the log", err)
	}
	defer func() { _ = logFile.Close() }() // the server has its own descriptor
	cmd := who.command(context.WithoutCancel(ctx), s.dir, bin.postgres, "-D", data, "-p", port,
		"-c", "listen_addresses="+host, "-c", "unix_socket_directories="+socketDir(s.dir))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	bindLife(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return failed(s.dir, "start postgres", err)
	}
	s.cmd = cmd
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(s.done)
	}()
	return nil
}

// socketDir is where the Unix socket goes. A path too long for a socket address means none; the loopback port is enough.
func socketDir(dir string) string {
	const longest = 107 - len("/.s.PGSQL.65535.lock")
	if len(dir) > longest {
		return ""
	}
	return dir
}

// awaitReady connects until the server answers, and makes the database.
func (s *Server) awaitReady(ctx context.Context) error {
	poll := time.NewTicker(25 * time.Millisecond)
	defer poll.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return errors.Join(s.createDatabase(ctx, conn), conn.Close(ctx))
		}
		select {
		case <-poll.C:
		case <-s.done:
			out, _ := os.ReadFile(s.logPath()) // without it the error is shorter
			return failed(s.dir, "start", errors.New(lastLines(out)))
		case <-ctx.Done():
			return failed(s.dir, "wait for it to answer", errors.Join(ctx.Err(), err))
		}
	}
}

func (s *Server) createDatabase(ctx context.Context, conn *pgx.Conn) error {
	var there bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, database).Scan(&there)
	if err == nil && !there {
		_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{database}.Sanitize())
	}
	if err != nil {
		return failed(s.dir, "create the database", err)
	}
	return nil
}

// URL is what clients connect with. It carries the password: keep it out of logs.
func (s *Server) URL() string { return s.url(database) }

func (s *Server) url(name string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, s.password), Host: s.address, Path: "/" + name, RawQuery: "sslmode=disable"}
	return u.String()
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.address }

// Done is closed when the server has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends the server: open transactions are rolled back and everything is on disk when it returns. Once ctx ends it kills.
func (s *Server) Stop(ctx context.Context) error {
	var err error
	s.stop.Do(func() {
		// SIGINT is Postgres's fast shutdown; the process is gone where it cannot be signalled.
		_ = s.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-s.done:
		case <-ctx.Done():
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-s.done
			err = failed(s.dir, "stop", ctx.Err())
		}
	})
	<-s.done
	return err
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "postgres.log") }

// freeAddress settles port 0, since Postgres itself cannot.
func freeAddress(addr string) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if port != "0" {
		return addr, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	if _, err := strconv.Atoi(port); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

func failed(dir, operation string, err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e
	}
	return errs.New(errs.Precondition, "POSTGRES", "private Postgres in %s: %s", dir, operation).Wrap(err).
		WithNext("see %s, or name another server with --postgres URL", filepath.Join(dir, "postgres.log"))
}

// lastLines is the end of a program's output on one line.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(bytes.TrimSpace(out))), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
