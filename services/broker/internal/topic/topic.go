// Package topic is the broker's registry of topics. It owns topics' names, ids, partition counts, configs and their life
// from creation to deletion, kept in the metadata bucket `topics`, and it opens their partitions in the log. It serves no
// protocol: package api does.
package topic

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// Topic is one topic as it was at one revision. It is immutable, but for the partitions that it caches.
type Topic struct {
	Name       string
	ID         log.TopicID
	Partitions int32
	Config     *brokerv1.TopicConfig // as written: what is absent has its default; not to be changed
	CreateTime time.Time

	revision uint64
	deleting bool
	settings log.PartitionConfig
	ack      log.Level
	open     []atomic.Pointer[log.Partition] // those that were asked for
	opening  *sync.Mutex                     // one opens at a time; shared by the topic's revisions
}

// Proto is the topic as the API shows it, with the defaults that are in force.
func (t *Topic) Proto() *brokerv1.Topic {
	return &brokerv1.Topic{
		Name: t.Name, Id: t.UUID(), Partitions: t.Partitions, Config: withDefaults(t.Config), CreateTime: timestamppb.New(t.CreateTime),
	}
}

// UUID is the topic's id in its usual form.
func (t *Topic) UUID() string { return uuid.UUID(t.ID).String() }

// DefaultAck is the level of an append that names none.
func (t *Topic) DefaultAck() log.Level { return t.ack }

// stored is a topic in the metadata bucket.
type stored struct {
	Name       string          `json:"name"`
	ID         string          `json:"id"`
	Partitions int32           `json:"partitions"`
	State      string          `json:"state"`
	Config     json.RawMessage `json:"config"`
	CreateTime time.Time       `json:"createTime"`
}

// A topic is DELETING from the moment its deletion is decided until its last file is gone, so that a crash in between is
// finished at the next start.
const (
	stateActive   = "ACTIVE"
	stateDeleting = "DELETING"
)

func (t *Topic) store() (stored, error) {
	config, err := protojson.Marshal(t.Config)
	if err != nil {
		return stored{}, fmt.Errorf("topic %s: encode its config: %w", t.Name, err)
	}
	s := stored{Name: t.Name, ID: hex.EncodeToString(t.ID[:]), Partitions: t.Partitions, State: stateActive, Config: config, CreateTime: t.CreateTime}
	if t.deleting {
		s.State = stateDeleting
	}
	return s, nil
}

func load(s stored, revision uint64) (*Topic, error) {
	t := &Topic{
		Name: s.Name, Partitions: s.Partitions, CreateTime: s.CreateTime, Config: &brokerv1.TopicConfig{},
		revision: revision, deleting: s.State == stateDeleting,
	}
	if n, err := hex.Decode(t.ID[:], []byte(s.ID)); err != nil || n != len(t.ID) {
		return nil, errs.New(errs.DataLoss, "METADATA_CORRUPT", "topic %s: its stored id %q is none", s.Name, s.ID)
	}
	// What a newer version wrote and this one does not know is left out.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(s.Config, t.Config); err != nil {
		return nil, errs.New(errs.DataLoss, "METADATA_CORRUPT", "topic %s: its stored config cannot be read", s.Name).Wrap(err)
	}
	t.derive(nil)
	return t, nil
}

// derive computes what follows from the config, and takes over the partitions that the topic's previous revision opened.
func (t *Topic) derive(before *Topic) {
	t.settings, t.ack = settings(t.Config), Level(t.Config.GetDefaultAck(), log.Durable)
	t.open = make([]atomic.Pointer[log.Partition], t.Partitions)
	t.opening = &sync.Mutex{}
	if before != nil && before.ID == t.ID {
		t.opening = before.opening
		for i := range min(len(t.open), len(before.open)) {
			t.open[i].Store(before.open[i].Load())
		}
	}
}

func errNotFound(name string) *errs.Error {
	return errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q does not exist", name).
		WithNext("create it: databus topic create %s, or POST /v1/topics", name)
}

func errDeleting(name string) *errs.Error {
	return errs.New(errs.Unavailable, "TOPIC_DELETING", "topic %q is being deleted", name).
		WithNext("try again when its files are gone").WithRetryAfter(time.Second)
}
