package privatepg

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/databus-suite/databus/internal/errs"
)

func TestParseMajor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"postgres (PostgreSQL) 17.2 (Debian 17.2-1.pgdg120+1)\n": 17,
		"postgres (PostgreSQL) 18beta1":                          18,
		"15\n":                                                   15,
		"":                                                       0,
		"postgres":                                               0,
	} {
		if got := parseMajor(text); got != want {
			t.Errorf("parseMajor(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestVersionThatIsNotThere(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	_, err := find(9)
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Reason != "POSTGRES_VERSION" || e.Next == "" {
		t.Fatalf("got %v, want POSTGRES_VERSION with a next step", err)
	}
}

func requirePostgres(t *testing.T) {
	t.Helper()
	if _, err := find(0); err != nil {
		t.Fatalf("no Postgres on this machine (scripts/install.sh postgres): %v", err)
	}
}

// openDir is a directory that the account which root's server runs as can reach; t.TempDir is closed to it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "privatepg") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLife starts, writes, stops, and finds everything again; then it is killed, and finds everything once more.
func TestLife(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := filepath.Join(openDir(t), "pg")

	s, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	query(t, s, `CREATE TABLE kept (n int)`)
	query(t, s, `INSERT INTO kept VALUES (1)`)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatalf("a second Stop: %v", err)
	}

	s, err = Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	query(t, s, `INSERT INTO kept VALUES (2)`)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()

	s, err = Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM kept`).Scan(&n); err != nil || n != 2 {
		t.Errorf("found %d rows (%v), want 2", n, err)
	}
	if err := errors.Join(conn.Close(t.Context()), s.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestBadSettingNamesTheLog makes the server refuse to start.
func TestBadSettingNamesTheLog(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := filepath.Join(openDir(t), "pg")
	s, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "data", "postgresql.conf")
	if err := os.WriteFile(conf, []byte("max_connections = none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Config{Dir: dir})
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Code != errs.Precondition || e.Next == "" {
		t.Fatalf("got %v, want a precondition with a next step", err)
	}
}
