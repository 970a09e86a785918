package databus

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/databus-suite/databus/internal/config"
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
	MemoryBytes config.Size `yaml:"memory_bytes"`
	// MaxRequestBytes bounds one request's body, packed and unpacked.
	MaxRequestBytes config.Size `yaml:"max_request_bytes"`
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

// LoadConfig reads the config from a YAML file (empty: none), the environment (DATABUS_AGENT_…) and the command line; what
// they leave out has its default.
func LoadConfig(path string, overrides ...config.Override) (Config, error) {
	c := Config{}.withDefaults()
	if err := config.Load(path, "DATABUS_AGENT", &c, overrides...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Validate says everything that is wrong with the config.
func (c Config) Validate() error {
	var all []error
	bad := func(key, format string, args ...any) { all = append(all, config.Invalid(key, format, args...)) }
	for _, a := range []struct{ key, addr string }{{"http_addr", c.HTTPAddr}, {"grpc_addr", c.GRPCAddr}, {"broker.grpc_addr", c.Broker.GRPCAddr}} {
		if _, _, err := net.SplitHostPort(a.addr); a.addr != "" && err != nil {
			bad(a.key, "%q is not host:port, such as 127.0.0.1:8080", a.addr)
		}
	}
	if c.MemoryBytes != 0 && c.MemoryBytes < 1<<20 {
		bad("memory_bytes", "%v is too little; give at least 1MiB", c.MemoryBytes)
	}
	if c.MaxRequestBytes < 0 {
		bad("max_request_bytes", "%v is negative", c.MaxRequestBytes)
	}
	if c.DrainTimeout < 0 {
		bad("drain_timeout", "%v is negative", c.DrainTimeout)
	}
	for k := range c.Labels {
		if k == "" || strings.ContainsAny(k, " \t\n=") {
			bad("labels", "%q is no label name; leave out spaces and '='", k)
		}
	}
	return errors.Join(all...)
}
