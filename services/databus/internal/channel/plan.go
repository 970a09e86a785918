package channel

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/keypath"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/routing"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// The defaults of everything that a config leaves out.
const (
	DefaultLinger          = 5 * time.Millisecond
	DefaultBatchBytes      = 1 << 20
	DefaultBatchMessages   = 10_000
	DefaultInitialBackoff  = 50 * time.Millisecond
	DefaultMaxBackoff      = 2 * time.Second
	DefaultDeliveryTimeout = 10 * time.Second
	DefaultMaxMessageBytes = 1 << 20
	DefaultIdempotency     = 10 * time.Minute
	DefaultSpoolBytes      = 1 << 30
	DefaultBlockTimeout    = 5 * time.Second
	DefaultMaxLanes        = 100
	DefaultLaneExpiry      = 24 * time.Hour
)

// minBackoff keeps a config that says zero from repeating without a pause.
const minBackoff = time.Millisecond

// Plan is a channel's config, compiled and with every default filled in. It is immutable and may be used concurrently.
type Plan struct {
	Name     string
	Revision int64
	Config   *databusv1.ChannelConfig // as it was given

	Routes          *routing.Table
	KeyPath         *keypath.Path // nil: none
	Strategy        databusv1.PartitionStrategy
	Batch           batcher.Options
	Durability      databusv1.Durability
	Paused          bool
	MaxMessageBytes int
	MaxPendingBytes int64         // 0: the agent's default
	MessagesPerSec  int64         // 0: no limit
	BytesPerSec     int64         // 0: no limit
	Idempotency     time.Duration // 0: ids are not looked at
	Spool           spool.Limit
	LaneTopics      bool // lanes have topics of their own
	MaxLanes        int
	LaneExpiry      time.Duration // of a lane's topic
}

// Spooled says whether a 2xx promises the agent's disk.
func (p *Plan) Spooled() bool { return p.Durability == databusv1.Durability_DURABILITY_SPOOLED }

// Compiler makes plans. It may be used concurrently.
type Compiler struct{ routes *routing.Compiler }

// NewCompiler prepares the environment of routing rules.
func NewCompiler() (*Compiler, error) {
	routes, err := routing.NewCompiler()
	if err != nil {
		return nil, fmt.Errorf("prepare routing rules: %w", err)
	}
	return &Compiler{routes: routes}, nil
}

// Compile makes a plan of a channel, or says why its config cannot run. The control plane refuses such a config when it is
// written, so an error here means that the two disagree.
func (c *Compiler) Compile(ch *databusv1.Channel) (*Plan, error) {
	cfg := ch.GetConfig()
	if cfg == nil {
		cfg = &databusv1.ChannelConfig{}
	}
	p := &Plan{Name: ch.GetName(), Revision: ch.GetRevision(), Config: cfg, Paused: cfg.GetPaused()}
	fail := func(err error) (*Plan, error) {
		return nil, fmt.Errorf("compile channel %s, revision %d: %w", p.Name, p.Revision, err)
	}
	var err error
	if p.Routes, err = c.table(p.Name, cfg.GetRoutes()); err != nil {
		return fail(err)
	}
	if q := cfg.GetKeyPath(); q != "" {
		if p.KeyPath, err = keypath.Compile(q); err != nil {
			return fail(err)
		}
	}
	if p.Batch, err = batchOptions(cfg); err != nil {
		return fail(err)
	}
	p.Strategy = orDefault(cfg.GetPartitioner().GetStrategy(), databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH)
	p.Durability = orDefault(cfg.GetDurability(), databusv1.Durability_DURABILITY_DURABLE)
	if p.Durability != databusv1.Durability_DURABILITY_DURABLE {
		p.Batch.Deadline = 0 // its producer was answered long ago
	}
	p.MaxMessageBytes = int(orDefault(cfg.GetLimits().GetMaxMessageBytes(), DefaultMaxMessageBytes))
	p.MaxPendingBytes = cfg.GetLimits().GetMaxPendingBytes()
	p.MessagesPerSec = cfg.GetRateLimit().GetMessagesPerSecond()
	p.BytesPerSec = cfg.GetRateLimit().GetBytesPerSecond()
	lanes := cfg.GetLanes()
	p.LaneTopics = lanes.GetMode() == databusv1.LaneMode_LANE_MODE_TOPIC
	p.MaxLanes = int(orDefault(lanes.GetMaxTopics(), DefaultMaxLanes))
	p.LaneExpiry = duration(lanes.GetExpiry(), DefaultLaneExpiry)
	p.Spool = spoolLimit(cfg.GetSpool())
	p.Batch.Spooled = p.Spooled()
	p.Idempotency = duration(cfg.GetIdempotency().GetWindow(), DefaultIdempotency)
	return p, nil
}

func (c *Compiler) table(name string, routes []*databusv1.Route) (*routing.Table, error) {
	list := []routing.Route{{Topic: name}}
	if len(routes) > 0 {
		list = list[:0]
		for _, r := range routes {
			list = append(list, routing.Route{Topic: r.GetTopic(), When: r.GetWhen()})
		}
	}
	return c.routes.Table(list)
}

var policies = map[databusv1.SpoolFullPolicy]spool.Policy{
	databusv1.SpoolFullPolicy_SPOOL_FULL_POLICY_REJECT:      spool.Reject,
	databusv1.SpoolFullPolicy_SPOOL_FULL_POLICY_BLOCK:       spool.Block,
	databusv1.SpoolFullPolicy_SPOOL_FULL_POLICY_SHED_OLDEST: spool.ShedOldest,
}

func spoolLimit(c *databusv1.Spool) spool.Limit {
	return spool.Limit{
		Bytes: orDefault(c.GetMaxBytes(), DefaultSpoolBytes), Policy: policies[c.GetWhenFull()],
		Timeout: duration(c.GetBlockTimeout(), DefaultBlockTimeout),
	}
}

func batchOptions(cfg *databusv1.ChannelConfig) (batcher.Options, error) {
	b, z, r := cfg.GetBatch(), cfg.GetCompression(), cfg.GetRetry()
	codec, err := codecOf(z.GetCodec())
	if err != nil {
		return batcher.Options{}, err
	}
	if err := codec.CheckLevel(int(z.GetLevel())); err != nil {
		return batcher.Options{}, err
	}
	initial := max(duration(r.GetInitialBackoff(), DefaultInitialBackoff), minBackoff)
	return batcher.Options{
		Codec:       codec,
		Level:       int(z.GetLevel()),
		Linger:      duration(b.GetLinger(), DefaultLinger),
		MaxBytes:    int(orDefault(b.GetMaxBytes(), DefaultBatchBytes)),
		MaxMessages: int(orDefault(b.GetMaxMessages(), DefaultBatchMessages)),
		Adaptive:    b.GetAdaptive(),
		Deadline:    max(duration(r.GetDeliveryTimeout(), DefaultDeliveryTimeout), minBackoff),
		MinBackoff:  initial,
		MaxBackoff:  max(duration(r.GetMaxBackoff(), DefaultMaxBackoff), initial),
	}, nil
}

var codecs = map[databusv1.Codec]recordbatch.Codec{
	databusv1.Codec_CODEC_UNSPECIFIED: recordbatch.Zstd,
	databusv1.Codec_CODEC_NONE:        recordbatch.None,
	databusv1.Codec_CODEC_GZIP:        recordbatch.Gzip,
	databusv1.Codec_CODEC_SNAPPY:      recordbatch.Snappy,
	databusv1.Codec_CODEC_LZ4:         recordbatch.LZ4,
	databusv1.Codec_CODEC_ZSTD:        recordbatch.Zstd,
}

func codecOf(c databusv1.Codec) (recordbatch.Codec, error) {
	codec, ok := codecs[c]
	if !ok {
		return 0, fmt.Errorf("codec %v is not known to this agent; update it", c)
	}
	return codec, nil
}

// SameRouting tells whether a key goes the same way under both plans, to the same partition and through the spool or not, as far
// as the config decides it.
func SameRouting(a, b *Plan) bool {
	if a.Spooled() != b.Spooled() {
		return false
	}
	routing := func(p *Plan) *databusv1.ChannelConfig {
		return &databusv1.ChannelConfig{Routes: p.Config.GetRoutes(), KeyPath: p.Config.GetKeyPath(),
			Partitioner: &databusv1.Partitioner{Strategy: p.Strategy}, Lanes: p.Config.GetLanes()}
	}
	return proto.Equal(routing(a), routing(b))
}

func duration(d *durationpb.Duration, def time.Duration) time.Duration {
	if d == nil {
		return def
	}
	return d.AsDuration()
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
