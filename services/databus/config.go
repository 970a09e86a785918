package databus

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/databus-suite/databus/internal/telemetry"
)

// The defaults of a Config.
const (
	DefaultHTTPAddr     = "127.0.0.1:8080"
	DefaultGRPCAddr     = "127.0.0.1:8081"
	DefaultBrokerAddr   = "127.0.0.1:8091"
	DefaultMemoryBytes  = 256 << 20
	DefaultMaxRequest   = 32 << 20
	DefaultDrainTimeout = 15 * time.Second
)

// Config of an agent. Zero values stand for the defaults above.
type Config struct {
	// HTTPAddr serves REST, Connect, gRPC-Web and gRPC; GRPCAddr high-volume gRPC.
	HTTPAddr string `yaml:"http_addr"`
	GRPCAddr string `yaml:"grpc_addr"`
	// UnixSocket is a path on which HTTP is served as well. Empty: none.
	UnixSocket string `yaml:"unix_socket"`
	// Broker that takes the batches and holds the channels.
	Broker BrokerConfig `yaml:"broker"`
	// DataDir keeps the agent's id and the last good config, so that it starts while the broker is away. Empty: nothing is kept.
	DataDir string `yaml:"data_dir"`
	// Labels decide which canaries the agent runs.
	Labels map[string]string `yaml:"labels"`
	// MemoryBytes bounds what the agent holds of messages that are on their way.
	MemoryBytes int64 `yaml:"memory_bytes"`
	// MaxRequestBytes bounds one request's body, packed and unpacked.
	MaxRequestBytes int64 `yaml:"max_request_bytes"`
	// DrainTimeout bounds how long a stop takes.
	DrainTimeout time.Duration       `yaml:"drain_timeout"`
	Telemetry    telemetry.Config    `yaml:"telemetry"`
	Log          telemetry.LogConfig `yaml:"log"`
}

// BrokerConfig says where the broker is.
type BrokerConfig struct {
	GRPCAddr string `yaml:"grpc_addr"`
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	setDefault(&c.HTTPAddr, DefaultHTTPAddr)
	setDefault(&c.GRPCAddr, DefaultGRPCAddr)
	setDefault(&c.Broker.GRPCAddr, DefaultBrokerAddr)
	setDefault(&c.MemoryBytes, DefaultMemoryBytes)
	setDefault(&c.MaxRequestBytes, DefaultMaxRequest)
	setDefault(&c.DrainTimeout, DefaultDrainTimeout)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate says what is wrong with the config, key first.
func (c Config) Validate() error {
	for _, a := range []struct{ key, addr string }{{"http_addr", c.HTTPAddr}, {"grpc_addr", c.GRPCAddr}, {"broker.grpc_addr", c.Broker.GRPCAddr}} {
		if a.addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			return fmt.Errorf("%s: %q is not host:port, such as 127.0.0.1:8080", a.key, a.addr)
		}
	}
	if c.MemoryBytes < 0 || c.MemoryBytes > 0 && c.MemoryBytes < 1<<20 {
		return fmt.Errorf("memory_bytes: %d is too little; give at least 1MiB", c.MemoryBytes)
	}
	if c.MaxRequestBytes < 0 {
		return fmt.Errorf("max_request_bytes: %d is negative", c.MaxRequestBytes)
	}
	if c.DrainTimeout < 0 {
		return fmt.Errorf("drain_timeout: %v is negative", c.DrainTimeout)
	}
	for k := range c.Labels {
		if k == "" || strings.ContainsAny(k, " \t\n=") {
			return fmt.Errorf("labels: %q is no label name; leave out spaces and '='", k)
		}
	}
	if err := c.Telemetry.Validate(); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}
