package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/internal/config"
)

type telemetry struct {
	OTLPEndpoint string  `yaml:"otlp_endpoint"`
	SampleRatio  float64 `yaml:"sample_ratio"`
}

func (t telemetry) Validate() error {
	if t.SampleRatio < 0 || t.SampleRatio > 1 {
		return config.Invalid("sample_ratio", "is %v: it must be between 0 and 1", t.SampleRatio)
	}
	return nil
}

type listen struct {
	HTTPAddr string
	GRPCAddr string
}

type volume struct {
	Path string
	Max  config.Size
}

func (v volume) Validate() error {
	if v.Path == "" {
		return errors.New("path is missing")
	}
	return nil
}

type settings struct {
	Listen    listen `yaml:",inline"`
	Broker    struct{ GRPCAddr string }
	DataDir   string
	Drain     time.Duration
	Memory    config.Size
	Labels    map[string]string
	Brokers   []string
	Volumes   []volume
	Sync      bool
	Workers   int
	Limit     *int64
	Telemetry telemetry
	TokenFile config.SecretFile
	hidden    string
}

func (s *settings) Validate() error {
	var problems []error
	if s.Workers < 0 {
		problems = append(problems, config.Invalid("workers", "is %d: it must be 0 or more", s.Workers))
	}
	if s.Broker.GRPCAddr == "nowhere" {
		problems = append(problems, config.Invalid("broker.grpc_addr", "must be host:port"))
	}
	return errors.Join(problems...)
}

func defaults() settings {
	return settings{Drain: 15 * time.Second, Memory: 64 << 20, Labels: map[string]string{"a": "b"}, Workers: 2, hidden: "kept"}
}

// load loads text as agent.yaml, and returns the errors with the directory left out.
func load(t *testing.T, text string, overrides ...config.Override) (settings, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := defaults()
	if err := config.Load(path, "DATABUS_AGENT", &s, overrides...); err != nil {
		return s, strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
	}
	return s, ""
}

func TestLoad(t *testing.T) {
	t.Parallel()
	got, problems := load(t, `
# an agent
http_addr: 127.0.0.1:8080
broker:
  grpc_addr: 127.0.0.1:8091
data_dir: 007
drain: 1m30s
memory: 1.5GiB
labels: {zone: eu-1, "team": 42}
brokers: [a, b]
volumes:
  - path: /mnt/a
    max: 10MB
sync: true
workers: 8
limit: 12
telemetry:
  sample_ratio: 0.25
`)
	if problems != "" {
		t.Fatal(problems)
	}
	limit := int64(12)
	want := settings{
		Listen:  listen{HTTPAddr: "127.0.0.1:8080"},
		Broker:  struct{ GRPCAddr string }{"127.0.0.1:8091"},
		DataDir: "007", Drain: 90 * time.Second, Memory: 3 << 29,
		Labels: map[string]string{"zone": "eu-1", "team": "42"}, Brokers: []string{"a", "b"},
		Volumes: []volume{{"/mnt/a", 10e6}}, Sync: true, Workers: 8, Limit: &limit,
		Telemetry: telemetry{SampleRatio: 0.25}, hidden: "kept",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNothingGivenKeepsDefaults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# only a comment\n", "---\n", "null\n"} {
		got, problems := load(t, text)
		if diff := cmp.Diff(defaults(), got, cmp.AllowUnexported(settings{})); diff != "" || problems != "" {
			t.Errorf("%q: %s\n%s", text, problems, diff)
		}
	}
	s := defaults()
	if err := config.Load("", "", &s); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, text, want string }{
		{"typing error", "broker:\n  grpc_adr: x\n", "agent.yaml:2:3: broker.grpc_adr: there is no such key; did you mean grpc_addr?"},
		{"unknown", "telemetry:\n  colour: x\n",
			"agent.yaml:2:3: telemetry.colour: there is no such key; the keys here are otlp_endpoint, sample_ratio"},
		{"unexported", "hidden: x\n", "agent.yaml:1:1: hidden: there is no such key; the keys here are http_addr, grpc_addr, broker, " +
			"data_dir, drain, memory, labels, brokers, volumes, sync, workers, limit, telemetry, token_file"},
		{"twice", "workers: 1\nworkers: 2\n", "agent.yaml:2:1: workers: is given twice; remove one"},
		{"duration", "drain: 5\n", `agent.yaml:1:8: drain: "5" is not a duration: give a number with a unit, such as 5ms, 2s or 1h30m`},
		{"size", "memory: lots\n", `agent.yaml:1:9: memory: "lots" is not a size: give bytes, or a number with KiB, MiB, GiB, TiB (or KB, MB, GB, TB, powers of ten)`},
		{"number", "workers: many\n", `agent.yaml:1:10: workers: "many" is not a whole number of 64 bits`},
		{"bool", "sync: yes\n", `agent.yaml:1:7: sync: "yes" is neither true nor false`},
		{"map for text", "data_dir: {a: b}\n", "agent.yaml:1:11: data_dir: must be a single value, not keys with values"},
		{"text for keys", "broker: here\n", "agent.yaml:1:9: broker: must be keys with values, not a single value"},
		{"text for list", "brokers: a\n", "agent.yaml:1:10: brokers: must be a list, not a single value"},
		{"list at the top", "- a\n", "agent.yaml:1:1: must be keys with values, not a list"},
		{"in a list", "volumes:\n  - path: a\n    maxx: 1\n", "agent.yaml:3:5: volumes[0].maxx: there is no such key; did you mean max?"},
		{"no value", "broker:\n  grpc_addr:\n", "agent.yaml:2:3: broker.grpc_addr: has no value; give one, or remove it"},
		{"alias", "data_dir: &d x\n", "agent.yaml:1:11: data_dir: anchors, aliases, tags and merges are not read; write the value out"},
		{"two documents", "workers: 1\n---\nworkers: 2\n", "agent.yaml:3:8: a second document: only one is read; remove the ---"},
		{"own check", "telemetry:\n  sample_ratio: 7\n", "agent.yaml:2:3: telemetry.sample_ratio: is 7: it must be between 0 and 1"},
		{"own check in a list", "volumes:\n  - max: 1\n", "agent.yaml:1:1: volumes[0]: path is missing"},
		{"two at once", "workers: -1\nbroker: {grpc_addr: nowhere}\n",
			"agent.yaml:1:1: workers: is -1: it must be 0 or more\nagent.yaml:2:10: broker.grpc_addr: must be host:port"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if _, got := load(t, tc.text); got != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
	if _, got := load(t, "a: [1,\n"); !strings.HasPrefix(got, "agent.yaml:1:") || !strings.Contains(got, "this is not YAML") {
		t.Errorf("not YAML: %s", got)
	}
	s := defaults()
	err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), "", &s)
	if err == nil || !strings.Contains(err.Error(), "none.yaml: there is no such file") {
		t.Errorf("no file: %v", err)
	}
}

func TestPrecedence(t *testing.T) {
	t.Setenv("DATABUS_AGENT_WORKERS", "3")
	t.Setenv("DATABUS_AGENT_BROKER_GRPC_ADDR", "env:1")
	t.Setenv("DATABUS_AGENT_LABELS", "zone=eu-1, team=x")
	t.Setenv("DATABUS_AGENT_BROKERS", "a, b")
	t.Setenv("DATABUS_AGENT_LIMIT", "7")
	t.Setenv("DATABUS_AGENT_DRAIN", "")                   // as good as none
	t.Setenv("DATABUS_AGENT_PORT", "tcp://10.0.0.1:8080") // a container platform's
	got, problems := load(t, "workers: 1\nbroker: {grpc_addr: file:1}\ndrain: 2s\n",
		config.Override{Key: "workers", Value: "4", Source: "--workers"})
	if problems != "" {
		t.Fatal(problems)
	}
	if got.Workers != 4 || got.Broker.GRPCAddr != "env:1" || got.Drain != 2*time.Second || *got.Limit != 7 {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"zone": "eu-1", "team": "x"}, got.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got.Brokers); diff != "" {
		t.Error(diff)
	}
}

func TestRefusalsOutsideTheFile(t *testing.T) {
	for _, tc := range []struct {
		name, key, value string
		override         config.Override
		want             string
	}{
		{"variable", "DATABUS_AGENT_DRAIN", "soon", config.Override{},
			`DATABUS_AGENT_DRAIN: drain: "soon" is not a duration: give a number with a unit, such as 5ms, 2s or 1h30m`},
		{"variable of a map", "DATABUS_AGENT_LABELS", "zone", config.Override{},
			`DATABUS_AGENT_LABELS: labels: "zone" is not name=value; several are separated by commas`},
		{"flag", "X", "", config.Override{Key: "workers", Value: "-2", Source: "--workers"},
			"--workers: workers: is -2: it must be 0 or more"},
		{"flag without a key", "X", "", config.Override{Key: "worker", Value: "2", Source: "--set worker"},
			"--set worker: worker: there is no such key; did you mean workers?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(tc.key, tc.value)
			var overrides []config.Override
			if tc.override.Key != "" {
				overrides = append(overrides, tc.override)
			}
			if _, got := load(t, "", overrides...); got != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	s := defaults()
	err := config.Load("", "", &s, config.Override{Key: "workers", Value: "x", Source: "--workers"})
	e, ok := errors.AsType[*config.Error](err)
	if !ok || e.Key != "workers" || e.Where != "--workers" {
		t.Errorf("got %v", err)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Size{
		"0": 0, "4096": 4096, "64KiB": 64 << 10, "64 kib": 64 << 10, "1.5GiB": 3 << 29, "10MB": 10e6, "7B": 7, "1TiB": 1 << 40,
	} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		var again config.Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s: %s reads as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "MiB", "NaNKiB", "InfGiB", "9999999999TiB", "1 furlong", "-2KiB"} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: accepted as %d", text, got)
		}
	}
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) config.SecretFile {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.SecretFile(path)
	}
	if got, err := write("a", "hunter2 \n").Read(); got != "hunter2 " || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := config.SecretFile("").Read(); got != "" || err != nil {
		t.Errorf("no file: %q, %v", got, err)
	}
	for name, f := range map[string]config.SecretFile{
		"missing": config.SecretFile(filepath.Join(dir, "none")),
		"empty":   write("b", "\n"),
		"large":   write("c", strings.Repeat("x", 1<<17)),
	} {
		if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), string(f)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"workers: 1", "broker:\n  grpc_addr: x", "volumes: [{path: a, max: 1KiB}]", "a: &b c\nd: *b",
		"<<: {}", "? a\n: b", "!!str a: b", "- ", "{", "labels: {1: 2, ~: x}", "limit: 0x10", "\x00", "data_dir: |\n  a\n  b\n"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, fmt.Sprintf("%d.yaml", os.Getpid()))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := defaults()
		_ = config.Load(path, "", &s) // it must come back, whatever it says
	})
}
