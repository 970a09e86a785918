package topic

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// What a topic has where its config says nothing; topic.proto promises them.
const (
	defaultRetention     = 7 * 24 * time.Hour
	defaultSegmentBytes  = 1 << 30
	defaultSegmentAge    = 7 * 24 * time.Hour
	defaultMaxBatchBytes = 16 << 20
	defaultTombstones    = 24 * time.Hour

	minSegmentBytes = 64 << 10
	minSegmentAge   = time.Second
	maxBatchBytes   = 64 << 20
	maxPartitions   = 10_000
	maxNameBytes    = 249
	nameBytes       = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// NameProblem says what is wrong with a name by Kafka's rules for topics, nothing where it is fine.
func NameProblem(name string) (problem string) {
	switch {
	case name == "":
		problem = "it is empty"
	case len(name) > maxNameBytes:
		problem = "it is longer than 249 characters"
	case name == "." || name == "..":
		problem = "it is a directory's own name"
	default:
		if strings.Trim(name, nameBytes) != "" {
			problem = "it has a character that is not allowed"
		}
	}
	return problem
}

// NameRule is the next step for who gave a name with a problem.
const NameRule = "use 1 to 249 of letters, digits, '.', '_' and '-'"

// CheckName refuses a topic's name that has a problem; the error is Invalid and names field.
func CheckName(name, field string) error {
	if problem := NameProblem(name); problem != "" {
		return errs.New(errs.Invalid, "TOPIC_NAME", "topic name %q is not valid: %s", name, problem).WithField(field).WithNext(NameRule)
	}
	return nil
}

func checkConfig(c *brokerv1.TopicConfig) error {
	refuse := func(field, format string, args ...any) error {
		return errs.New(errs.Invalid, "TOPIC_CONFIG", "topic config: "+format, args...).WithField("config." + field)
	}
	switch {
	case c.GetSegmentBytes() != 0 && c.GetSegmentBytes() < minSegmentBytes:
		return refuse("segmentBytes", "segmentBytes is %d, at least %d are needed", c.GetSegmentBytes(), minSegmentBytes)
	case c.GetSegmentAge() != nil && c.GetSegmentAge().AsDuration() < minSegmentAge:
		return refuse("segmentAge", "segmentAge is %s, at least %s are needed", c.GetSegmentAge().AsDuration(), minSegmentAge)
	case c.GetMaxBatchBytes() < 0 || c.GetMaxBatchBytes() > maxBatchBytes:
		return refuse("maxBatchBytes", "maxBatchBytes is %d, at most %d are allowed", c.GetMaxBatchBytes(), maxBatchBytes)
	case c.GetRetentionBytes() < 0:
		return refuse("retentionBytes", "retentionBytes is %d, it cannot be negative", c.GetRetentionBytes())
	}
	for _, d := range []struct {
		field string
		value *durationpb.Duration
	}{
		{"retention", c.GetRetention()}, {"minCompactionLag", c.GetMinCompactionLag()},
		{"maxCompactionLag", c.GetMaxCompactionLag()}, {"tombstoneRetention", c.GetTombstoneRetention()},
		{"idleExpiry", c.GetIdleExpiry()},
	} {
		if d.value.AsDuration() < 0 {
			return refuse(d.field, "%s is %s, it cannot be negative", d.field, d.value.AsDuration())
		}
	}
	low, high := c.GetMinCompactionLag().AsDuration(), c.GetMaxCompactionLag().AsDuration()
	if high > 0 && low > high {
		return refuse("minCompactionLag", "minCompactionLag %s is more than maxCompactionLag %s", low, high)
	}
	return nil
}

// withDefaults returns a config in which every field shows what is in force.
func withDefaults(c *brokerv1.TopicConfig) *brokerv1.TopicConfig {
	out := proto.CloneOf(c)
	orDuration(&out.Retention, defaultRetention)
	orDuration(&out.SegmentAge, defaultSegmentAge)
	orDuration(&out.TombstoneRetention, defaultTombstones)
	orNumber(&out.SegmentBytes, defaultSegmentBytes)
	orNumber(&out.MaxBatchBytes, defaultMaxBatchBytes)
	orNumber(&out.Cleanup, brokerv1.CleanupPolicy_CLEANUP_POLICY_DELETE)
	orNumber(&out.TimestampType, brokerv1.TimestampType_TIMESTAMP_TYPE_CREATE_TIME)
	orNumber(&out.DefaultAck, brokerv1.AckLevel_ACK_LEVEL_DURABLE)
	return out
}

func orDuration(d **durationpb.Duration, value time.Duration) {
	if *d == nil {
		*d = durationpb.New(value)
	}
}

func orNumber[T ~int32 | ~int64](n *T, value T) {
	if *n == 0 {
		*n = value
	}
}

// settings is a config in the log's words.
func settings(c *brokerv1.TopicConfig) log.PartitionConfig {
	c = withDefaults(c)
	compact := c.Cleanup == brokerv1.CleanupPolicy_CLEANUP_POLICY_COMPACT || c.Cleanup == brokerv1.CleanupPolicy_CLEANUP_POLICY_COMPACT_DELETE
	return log.PartitionConfig{
		SegmentBytes: c.SegmentBytes, SegmentAge: c.SegmentAge.AsDuration(),
		RetentionBytes: c.RetentionBytes, RetentionAge: c.Retention.AsDuration(),
		MaxBatchBytes: c.MaxBatchBytes,
		Compact:       compact, DeleteOnRetention: c.Cleanup == brokerv1.CleanupPolicy_CLEANUP_POLICY_COMPACT_DELETE,
		MinCompactionLag: c.MinCompactionLag.AsDuration(), MaxCompactionLag: c.MaxCompactionLag.AsDuration(),
		TombstoneRetention: c.TombstoneRetention.AsDuration(),
		LogAppendTime:      c.TimestampType == brokerv1.TimestampType_TIMESTAMP_TYPE_LOG_APPEND_TIME,
	}
}

// Level is an ack level in the log's words; unspecified is otherwise.
func Level(ack brokerv1.AckLevel, otherwise log.Level) log.Level {
	switch ack {
	case brokerv1.AckLevel_ACK_LEVEL_NONE:
		return log.None
	case brokerv1.AckLevel_ACK_LEVEL_BUFFERED:
		return log.Buffered
	case brokerv1.AckLevel_ACK_LEVEL_DURABLE:
		return log.Durable
	}
	return otherwise
}
