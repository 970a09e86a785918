package log

import (
	"log/slog"
	"time"

	"github.com/databus-suite/databus/internal/vfs"
)

// TopicID tells a topic from another of the same name.
type TopicID = [16]byte

// Level is the point at which an append is acknowledged.
type Level int8

const (
	// Durable acknowledges what survives the loss of power. It is the zero value.
	Durable Level = iota
	// Buffered acknowledges what the process holds: it is lost with the process.
	Buffered
	// None is Buffered for those who do not wait for the answer.
	None
)

func (l Level) String() string {
	switch l {
	case Durable:
		return "DURABLE"
	case Buffered:
		return "BUFFERED"
	}
	return "NONE"
}

// Config of a Log. Only Dirs is required.
type Config struct {
	Dirs     []string
	Logger   *slog.Logger
	Observer Observer
	Now      func() time.Time
	FS       vfs.FS // the file system; vfs.OS when nil

	MemoryBytes  int64 // half bounds what is accepted and not yet written, half the recent batches kept for readers; 0: 256 MiB
	JournalBytes int64 // segments are synced, and the journal trimmed, when it reaches half of this; 0: 512 MiB, negative: no journal
	MaxOpenFiles int   // 0: 2048

	// A recovery reads at most CheckpointBytes of each partition, and less of one that was left alone for CheckpointInterval.
	CheckpointBytes    int64         // 0: 64 MiB
	CheckpointInterval time.Duration // 0: 1 minute
	RetentionInterval  time.Duration // 0: 30 seconds
	PreallocBytes      int64         // reserved ahead of a growing segment; 0: 16 MiB, negative: nothing
	ProducerExpiry     time.Duration // a producer that is silent for longer is forgotten; 0: 24 hours
	SlowSync           time.Duration // a sync that takes longer is warned of; 0: 1 second

	repair       func(Finding) // set: recover what can be recovered and say what could not
	journalGroup int64         // a group with at most so many bytes for each of its partitions goes to the journal; 0: journalGroup
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.FS == nil {
		c.FS = vfs.OS{}
	}
	def(&c.MemoryBytes, 256<<20)
	def(&c.JournalBytes, 512<<20)
	def(&c.MaxOpenFiles, 2048)
	def(&c.CheckpointBytes, 64<<20)
	def(&c.CheckpointInterval, time.Minute)
	def(&c.RetentionInterval, 30*time.Second)
	def(&c.PreallocBytes, 16<<20)
	def(&c.ProducerExpiry, 24*time.Hour)
	def(&c.SlowSync, time.Second)
	def(&c.journalGroup, journalGroup)
	return c
}

func def[T ~int | ~int32 | ~int64](v *T, to T) {
	if *v == 0 {
		*v = to
	}
}

// PartitionConfig is a topic's configuration as far as the log is concerned. The zero value keeps everything.
type PartitionConfig struct {
	SegmentBytes       int64         // 0: 1 GiB
	SegmentAge         time.Duration // 0: 7 days
	RetentionBytes     int64         // 0: no limit
	RetentionAge       time.Duration // 0: no limit
	MaxBatchBytes      int32         // 0: 1 MiB + 64 KiB
	IndexIntervalBytes int32         // 0: 4096
	Compact            bool          // keep the last record of each key
	DeleteOnRetention  bool          // with Compact: the retention limits hold too
	MinCompactionLag   time.Duration // records younger than this are not compacted
	MaxCompactionLag   time.Duration // records older than this are, however little there is to win; 0: no limit
	TombstoneRetention time.Duration // how long a tombstone stays after its compaction; 0: 24 hours
	LogAppendTime      bool          // records get the broker's time
}

func (c PartitionConfig) withDefaults() PartitionConfig {
	def(&c.SegmentBytes, 1<<30)
	c.SegmentBytes = min(c.SegmentBytes, 1<<31-1)
	def(&c.SegmentAge, 7*24*time.Hour)
	def(&c.MaxBatchBytes, 1<<20+64<<10)
	def(&c.TombstoneRetention, 24*time.Hour)
	return c
}

// Observer is told what happens. Any hook may be nil; none may block. They run concurrently.
type Observer struct {
	Appended func(topic string, partition int32, records, bytes int, level Level, took time.Duration)
	Written  func(topic string, partition int32, bytes int)                     // by one write
	Synced   func(dir string, kind SyncKind, files, bytes int, d time.Duration) // by one flush
	Fetched  func(topic string, partition int32, bytes int, cached bool, took time.Duration)
	SlowSync func(dir string, took time.Duration)
	DirError func(dir string, err error)
}

// SyncKind says how a flush was made durable.
type SyncKind string

// The ways in which a flush is made durable.
const (
	SyncSegments SyncKind = "segments" // each segment by itself
	SyncJournal  SyncKind = "journal"  // all by one write to the journal
	SyncTrim     SyncKind = "trim"     // segments, so that the journal can be trimmed
)
