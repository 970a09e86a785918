package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pair is a broker and an agent, each a process of its own, on one block of ports.
type Pair struct{ Broker, Agent *Suite }

// RunPair starts both for one test on a directory of its own, and kills them when the test ends. A test that failed shows what
// they printed last. config is YAML that is added to the agent's.
func RunPair(t testing.TB, binary, config string) *Pair {
	t.Helper()
	offset, err := FreeOffset()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &Pair{}
	p.Broker = alone(t, binary, "broker", offset, filepath.Join(dir, "broker"), func(s *Suite) string {
		return fmt.Sprintf("http_addr: %s\ngrpc_addr: %s\ndata_dirs: [%s]\n", s.Addr(BrokerHTTP), s.Addr(BrokerGRPC), s.dir)
	})
	p.Agent = alone(t, binary, "agent", offset, filepath.Join(dir, "agent"), func(s *Suite) string {
		return fmt.Sprintf("http_addr: %s\ngrpc_addr: %s\ndata_dir: %s\nbroker: {grpc_addr: '%s'}\n%s", s.Addr(AgentHTTP), s.Addr(AgentGRPC), s.dir,
			s.Addr(BrokerGRPC), config)
	})
	return p
}

func alone(t testing.TB, binary, service string, offset int, dir string, config func(*Suite) string) *Suite {
	t.Helper()
	file := dir + ".yaml"
	s := &Suite{binary: binary, dir: dir, offset: offset, alone: service, args: []string{"--config", file}}
	if err := os.WriteFile(file, []byte(config(s)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("databus %s printed last:\n%s", service, s.Output())
		}
	})
	return s
}

// saysServing tells the line by which a service alone says that it serves.
func saysServing(_ bool, line string) bool {
	return strings.Contains(line, "serving") && strings.Contains(line, "service")
}
