package privatepg

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/databus-suite/databus/internal/errs"
)

// installed is where distributions put Postgres without putting it on PATH.
var installed = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/pgsql-*/bin",                  // PGDG on Red Hat and its kin
	"/usr/libexec/postgresql*",          // Alpine
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew
	"/usr/local/opt/postgresql*/bin",
}

// programs are the directories of postgres, initdb and pg_ctl, which need not be one.
type programs struct {
	postgres, initdb, pgctl string
	major                   int
}

// find looks on PATH, then where distributions install. Where the cluster is of a certain major version only that one will do;
// 0 takes the newest.
func find(major int) (programs, error) {
	var found []programs
	if p, ok := programsIn(""); ok {
		found = append(found, p)
	}
	for _, pattern := range installed {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue // the patterns are ours and well formed
		}
		for _, dir := range dirs {
			if p, ok := programsIn(dir); ok {
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 {
		return programs{}, errs.New(errs.Precondition, "POSTGRES_NOT_FOUND", "there is no Postgres on this machine").
			WithNext("install it (`apt-get install postgresql` on Debian), or name another server with --postgres URL")
	}
	if major == 0 {
		return slices.MaxFunc(found, func(a, b programs) int { return cmp.Compare(a.major, b.major) }), nil
	}
	for _, p := range found {
		if p.major == major {
			return p, nil
		}
	}
	return programs{}, errs.New(errs.Precondition, "POSTGRES_VERSION", "the data were written by Postgres %d, which is not on this machine", major).
		WithNext("install postgresql-%d, or move the directory away to begin anew", major)
}

// programsIn looks into one directory; an empty name is PATH.
func programsIn(dir string) (programs, bool) {
	var p programs
	for name, into := range map[string]*string{"postgres": &p.postgres, "initdb": &p.initdb, "pg_ctl": &p.pgctl} {
		path := filepath.Join(dir, name)
		if dir == "" {
			path = name
		}
		full, err := exec.LookPath(path)
		if err != nil {
			return programs{}, false
		}
		*into = full
	}
	out, err := exec.Command(p.postgres, "--version").Output()
	if err != nil {
		return programs{}, false
	}
	p.major = parseMajor(string(out))
	return p, p.major > 0
}

// parseMajor takes 17 out of "postgres (PostgreSQL) 17.2 (Debian 17.2-1)" and of "17".
func parseMajor(version string) int {
	_, after, found := strings.Cut(version, ") ")
	if !found {
		after = version
	}
	digits := strings.FieldsFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, err := strconv.Atoi(digits[0])
	if err != nil {
		return 0
	}
	return n
}

// clusterMajor is the version that wrote the cluster; 0 where there is none yet.
func clusterMajor(data string) int {
	raw, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return 0
	}
	return parseMajor(string(raw))
}
