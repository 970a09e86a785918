package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/databus-suite/databus"

// domainRooms hold the ideas that this project exists for. They know bytes, files and time; not how a request came in.
var domainRooms = []string{
	"internal/murmur2",
	"internal/recordbatch",
	"services/broker/internal/journal",
	"services/broker/internal/log",
	"services/broker/internal/segment",
	"services/databus/internal/batcher",
	"services/databus/internal/spool",
	"services/index/internal/ddl",
}

// transports are what a domain room may not know.
var transports = []string{
	"connectrpc.com",
	"github.com/grpc-ecosystem",
	"google.golang.org/grpc",
	"net/http",
	"gen",
	"internal/config",
	"internal/rpc",
}

// rule refuses an import of one package by another. Paths of this module come without the module's name.
type rule struct {
	name    string
	refuses func(from, to string) bool
}

var rules = []rule{
	{"only the command wires services", func(from, to string) bool {
		return under(to, "services") && service(from) == "" && !under(from, "cmd")
	}},
	{"no service imports another", func(from, to string) bool {
		return service(from) != "" && service(to) != "" && service(from) != service(to)
	}},
	{"a room does not know the face of its service", func(from, to string) bool {
		return service(from) != "" && strings.Contains(from, "/internal/") && to == "services/"+service(from)
	}},
	{"nothing imports the command", func(from, to string) bool {
		return under(to, "cmd") && !under(from, "cmd")
	}},
	{"nothing imports the tests or the benchmarks", func(from, to string) bool {
		return under(to, "test") && !under(from, "test") || under(to, "bench") && !under(from, "bench")
	}},
	{"generated code stands alone", func(from, to string) bool {
		return under(from, "gen") && ours(to) && !under(to, "gen")
	}},
	{"a domain room knows no transport and no config", func(from, to string) bool {
		return underAny(from, domainRooms) && underAny(to, transports)
	}},
}

// vagueNames say nothing about what a package provides.
var vagueNames = []string{"base", "common", "helper", "helpers", "lib", "manager", "misc", "shared", "util", "utils"}

func TestImportDirections(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages of this module: the check would prove nothing", len(packages))
	}
	for from, imports := range packages {
		for _, to := range imports {
			for _, broken := range broken(from, to) {
				t.Errorf("%s imports %s: %s", from, to, broken)
			}
		}
		if base := path.Base(from); slices.Contains(vagueNames, base) {
			t.Errorf("package %s: name it for what it provides, not %q", from, base)
		}
	}
}

// TestImportRules shows that each rule can fail, and what it lets through.
func TestImportRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		from, to string
		want     []string
	}{
		{"cmd/databus", "services/broker", nil},
		{"services/broker", "services/broker/internal/log", nil},
		{"services/broker/internal/api", "internal/errs", nil},
		{"services/broker/internal/api", "gen/go/databus/v1", nil},
		{"services/broker/internal/log", "internal/recordbatch", nil},
		{"services/broker/internal/logs", "google.golang.org/grpc", nil},
		{"internal/rpc", "google.golang.org/grpc", nil},
		{"test/clients", "test/harness", nil},
		{"gen/go/databus/broker/v1", "gen/go/databus/v1", nil},
		{"internal/rpc", "services/broker", []string{"only the command wires services"}},
		{"test", "services/broker", []string{"only the command wires services"}},
		{"services/index", "services/broker", []string{"no service imports another"}},
		{"services/databus/internal/sender", "services/broker", []string{"no service imports another"}},
		{"services/broker/internal/api", "services/broker", []string{"a room does not know the face of its service"}},
		{"services/broker", "cmd/databus/internal/render", []string{"nothing imports the command"}},
		{"internal/errs", "test/harness", []string{"nothing imports the tests or the benchmarks"}},
		{"cmd/databus", "bench/load", []string{"nothing imports the tests or the benchmarks"}},
		{"gen/go/databus/v1", "internal/errs", []string{"generated code stands alone"}},
		{"services/broker/internal/log", "gen/go/databus/v1", []string{"a domain room knows no transport and no config"}},
		{"services/broker/internal/log/vfs", "google.golang.org/grpc/codes", []string{"a domain room knows no transport and no config"}},
		{"services/databus/internal/batcher", "internal/config", []string{"a domain room knows no transport and no config"}},
		{"internal/recordbatch", "net/http", []string{"a domain room knows no transport and no config"}},
	} {
		if diff := cmp.Diff(tc.want, broken(tc.from, tc.to)); diff != "" {
			t.Errorf("%s imports %s (-want +got):\n%s", tc.from, tc.to, diff)
		}
	}
}

func broken(from, to string) (names []string) {
	for _, r := range rules {
		if r.refuses(from, to) {
			names = append(names, r.name)
		}
	}
	return names
}

// under tells whether a package is one of the trees' roots or below it.
func under(pkg string, trees ...string) bool {
	return underAny(pkg, trees)
}

func underAny(pkg string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return pkg == tree || strings.HasPrefix(pkg, tree+"/")
	})
}

// service names the service that a package belongs to, "" where it belongs to none.
func service(pkg string) string {
	rest, ok := strings.CutPrefix(pkg, "services/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func ours(pkg string) bool {
	return under(pkg, "bench", "cmd", "gen", "internal", "services", "test")
}

// listPackages maps every package of the module to what it imports, its tests' imports among them.
func listPackages(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	packages := make(map[string][]string)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(fmt.Errorf("decode go list: %w", err))
		}
		from := local(p.ImportPath)
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			packages[from] = append(packages[from], local(to))
		}
	}
}

// local takes the module's name off a package's path.
func local(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
}
