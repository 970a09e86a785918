package databus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoadConfig(t *testing.T) {
	for _, tc := range []struct {
		name, yaml string
		wrong      []string // parts of the error; none: it loads
	}{
		{"nothing", "", nil},
		{"everything", `
http_addr: 127.0.0.1:1
grpc_addr: 127.0.0.1:2
unix_socket: /run/agent.sock
broker: {grpc_addr: "broker:8091"}
data_dir: /var/lib/databus
labels: {zone: a}
memory_bytes: 64MiB
max_request_bytes: 1MiB
drain_timeout: 3s
log: {level: debug}
`, nil},
		{"unknown key", "htp_addr: x", []string{"agent.yaml:1", "http_addr"}},
		{"no port", "http_addr: localhost", []string{"http_addr", "host:port"}},
		{"little memory", "memory_bytes: 1KiB", []string{"memory_bytes", "1MiB"}},
		{"label", "labels: {'a b': c}", []string{"labels", "a b"}},
		{"drain", "drain_timeout: -1s", []string{"drain_timeout"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.yaml")
			if err := os.WriteFile(path, []byte(tc.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := LoadConfig(path)
			if len(tc.wrong) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if tc.name == "everything" && (c.MemoryBytes != 64<<20 || c.DrainTimeout != 3*time.Second || c.Labels["zone"] != "a") {
					t.Errorf("%+v", c)
				}
				return
			}
			for _, part := range tc.wrong {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
		})
	}
}
