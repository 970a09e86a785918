package broker

import (
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/databus-suite/databus/internal/config"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// The defaults of a Config.
const (
	DefaultHTTPAddr     = "127.0.0.1:8090"
	DefaultGRPCAddr     = "127.0.0.1:8091"
	DefaultDataDir      = "data/broker"
	DefaultMemoryBytes  = 256 << 20
	DefaultJournal      = 512 << 20
	DefaultCheckpoint   = 64 << 20
	DefaultMaxRequest   = 32 << 20
	DefaultDrainTimeout = 15 * time.Second
	DefaultPartitions   = topic.DefaultPartitions
)

// Config of a broker. Zero values stand for the defaults above.
type Config struct {
	// HTTPAddr serves REST, Connect, gRPC-Web and gRPC; GRPCAddr high-volume gRPC.
	HTTPAddr string `yaml:"http_addr"`
	GRPCAddr string `yaml:"grpc_addr"`
	// DataDirs hold the segments. With several a new segment goes to a random healthy one; the first holds the journal too.
	DataDirs []string `yaml:"data_dirs"`
	// NATS is the metadata store.
	NATS NATSConfig `yaml:"nats"`
	// Defaults of what is made without saying.
	Defaults TopicDefaults `yaml:"defaults"`
	// MemoryBytes bounds the log's buffers: half holds what is accepted and not yet written, half recent batches for readers.
	MemoryBytes config.Size `yaml:"memory_bytes"`
	// JournalBytes bounds the journal: at half of it the segments that rely on it are synced and it is trimmed.
	JournalBytes config.Size `yaml:"journal_bytes"`
	// CheckpointBytes is how much of a partition a start after a crash reads at most.
	CheckpointBytes config.Size `yaml:"checkpoint_bytes"`
	// MaxRequestBytes bounds a REST body and one Connect message.
	MaxRequestBytes config.Size `yaml:"max_request_bytes"`
	// DrainTimeout bounds how long a stop takes.
	DrainTimeout time.Duration       `yaml:"drain_timeout"`
	Telemetry    telemetry.Config    `yaml:"telemetry"`
	Log          telemetry.LogConfig `yaml:"log"`
}

// NATSConfig says where metadata is kept: in NATS servers that run elsewhere, or in one that the broker runs itself.
type NATSConfig struct {
	// URL of NATS servers with JetStream, separated by commas. Empty: the broker runs one.
	URL string `yaml:"url"`
	// StoreDir of the broker's own server. Empty: nats in the first data directory.
	StoreDir string `yaml:"store_dir"`
	// Port of the broker's own server, on 127.0.0.1. 0: any free one.
	Port int `yaml:"port"`
	// Replicas of each bucket, where it does not exist yet.
	Replicas int `yaml:"replicas"`
	// CredentialsFile is a .creds file; CAFile holds the certificates that the servers' must chain to. For URL only.
	CredentialsFile string `yaml:"credentials_file"`
	CAFile          string `yaml:"ca_file"`
}

// TopicDefaults are what a topic gets that is made without saying.
type TopicDefaults struct {
	Partitions int32 `yaml:"partitions"`
}

// LoadConfig reads a config file, the environment (DATABUS_BROKER_…) over it, and overrides over both. An empty path stands
// for no file.
func LoadConfig(path string, overrides ...config.Override) (Config, error) {
	var c Config
	if err := config.Load(path, "DATABUS_BROKER", &c, overrides...); err != nil {
		return Config{}, err
	}
	return c.withDefaults(), nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.HTTPAddr, DefaultHTTPAddr)
	setDefault(&c.GRPCAddr, DefaultGRPCAddr)
	setDefault(&c.MemoryBytes, DefaultMemoryBytes)
	setDefault(&c.JournalBytes, DefaultJournal)
	setDefault(&c.CheckpointBytes, DefaultCheckpoint)
	setDefault(&c.MaxRequestBytes, DefaultMaxRequest)
	setDefault(&c.DrainTimeout, DefaultDrainTimeout)
	setDefault(&c.Defaults.Partitions, DefaultPartitions)
	setDefault(&c.NATS.Replicas, 1)
	if len(c.DataDirs) == 0 {
		c.DataDirs = []string{DefaultDataDir}
	}
	setDefault(&c.NATS.StoreDir, filepath.Join(c.DataDirs[0], "nats"))
	return c
}

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Validate says what is wrong with the config.
func (c Config) Validate() error {
	for _, a := range []struct{ key, addr string }{{"http_addr", c.HTTPAddr}, {"grpc_addr", c.GRPCAddr}} {
		if a.addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			return config.Invalid(a.key, "%q is not host:port, such as 127.0.0.1:8090", a.addr)
		}
	}
	seen := map[string]bool{}
	for _, dir := range c.DataDirs {
		if strings.TrimSpace(dir) == "" {
			return config.Invalid("data_dirs", "a directory's name is empty")
		}
		if seen[filepath.Clean(dir)] {
			return config.Invalid("data_dirs", "%s is named twice", dir)
		}
		seen[filepath.Clean(dir)] = true
	}
	switch {
	case c.NATS.Port < 0 || c.NATS.Port > 65535:
		return config.Invalid("nats.port", "%d is no port; use 0 to 65535", c.NATS.Port)
	case c.NATS.Replicas < 0 || c.NATS.Replicas > 5:
		return config.Invalid("nats.replicas", "%d is not possible; use 1 to 5", c.NATS.Replicas)
	case c.NATS.URL == "" && (c.NATS.CredentialsFile != "" || c.NATS.CAFile != ""):
		return config.Invalid("nats.url", "is missing; credentials_file and ca_file are for servers that run elsewhere")
	case c.Defaults.Partitions < 0 || c.Defaults.Partitions > 10_000:
		return config.Invalid("defaults.partitions", "%d is not possible; use 1 to 10000", c.Defaults.Partitions)
	case c.MemoryBytes < 0 || c.MemoryBytes > 0 && c.MemoryBytes < 64<<20:
		return config.Invalid("memory_bytes", "%s is too little; give at least 64MiB", c.MemoryBytes)
	case c.JournalBytes < 0 || c.JournalBytes > 0 && c.JournalBytes < 1<<20:
		return config.Invalid("journal_bytes", "%s is too little; give at least 1MiB", c.JournalBytes)
	case c.CheckpointBytes < 0 || c.CheckpointBytes > 0 && c.CheckpointBytes < 64<<10:
		return config.Invalid("checkpoint_bytes", "%s is too little; give at least 64KiB", c.CheckpointBytes)
	case c.MaxRequestBytes < 0:
		return config.Invalid("max_request_bytes", "%s is negative", c.MaxRequestBytes)
	case c.DrainTimeout < 0:
		return config.Invalid("drain_timeout", "%s is negative", c.DrainTimeout)
	}
	return nil
}
