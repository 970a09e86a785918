package topic

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
	"github.com/databus-suite/databus/services/broker/internal/mask"
)

// Spec describes a topic to make.
type Spec struct {
	Name         string
	Partitions   int32 // 0: the broker's default
	Config       *brokerv1.TopicConfig
	ValidateOnly bool
}

// Create makes a topic. Of many that make it at once one does, the others get AlreadyExists.
func (r *Registry) Create(ctx context.Context, spec Spec) (*Topic, error) {
	t, err := r.draft(spec)
	if err != nil {
		return nil, err
	}
	if now, ok := r.lookup(t.Name); ok {
		return nil, errExists(now)
	}
	if spec.ValidateOnly {
		return t, nil
	}
	value, err := t.store()
	if err != nil {
		return nil, err
	}
	t.revision, err = r.bucket.Create(ctx, t.Name, value)
	if errs.CodeOf(err) == errs.AlreadyExists {
		if now, ok := r.refresh(ctx, t.Name); ok {
			return nil, errExists(now)
		}
		return nil, errContended("create", t.Name)
	}
	if err != nil {
		return nil, err
	}
	t = r.apply(t)
	// The topic exists from here on, whatever the disks say: its partitions are tried again at each use.
	r.openAll(ctx, t)
	return t, nil
}

func (r *Registry) draft(spec Spec) (*Topic, error) {
	if err := CheckName(spec.Name, "name"); err != nil {
		return nil, err
	}
	if spec.Partitions < 0 || spec.Partitions > maxPartitions {
		return nil, errPartitions(spec.Name, spec.Partitions)
	}
	config := &brokerv1.TopicConfig{}
	if spec.Config != nil {
		config = proto.CloneOf(spec.Config)
	}
	if err := checkConfig(config); err != nil {
		return nil, err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, errs.New(errs.Internal, "INTERNAL", "create topic %q: make its id", spec.Name).Wrap(err)
	}
	t := &Topic{Name: spec.Name, ID: [16]byte(id), Partitions: spec.Partitions, Config: config, CreateTime: time.Now().UTC().Truncate(time.Millisecond)}
	if t.Partitions == 0 {
		t.Partitions = r.cfg.DefaultPartitions
	}
	t.derive(nil)
	return t, nil
}

func errExists(now *Topic) error {
	if now.deleting {
		return errDeleting(now.Name)
	}
	return errs.New(errs.AlreadyExists, "TOPIC_EXISTS", "topic %q exists, with %d partitions", now.Name, now.Partitions).
		WithField("name").WithNext("use it, change it with PATCH /v1/topics/%s, or choose another name", now.Name)
}

func errPartitions(name string, n int32) error {
	return errs.New(errs.Invalid, "PARTITION_COUNT", "topic %q: %d partitions are not possible", name, n).
		WithField("partitions").WithNext("use 1 to %d", maxPartitions)
}

// refresh reads a topic that another process wrote.
func (r *Registry) refresh(ctx context.Context, name string) (*Topic, bool) {
	e, err := r.bucket.Get(ctx, name)
	if err != nil {
		return nil, false
	}
	t, err := load(e.Value, e.Revision)
	if err != nil {
		return nil, false
	}
	return r.apply(t), true
}

// Update changes the config fields that the mask names and raises the number of partitions where it is not 0.
func (r *Registry) Update(ctx context.Context, name string, config *brokerv1.TopicConfig, fields *fieldmaskpb.FieldMask, partitions int32) (*Topic, error) {
	t, err := r.edit(ctx, "update", name, func(t *Topic) error {
		if partitions != 0 && partitions < t.Partitions {
			return errs.New(errs.Invalid, "PARTITION_COUNT", "topic %q has %d partitions, there cannot be fewer", name, t.Partitions).
				WithField("partitions").WithNext("a topic only grows; make another one for fewer")
		}
		if partitions > maxPartitions {
			return errPartitions(name, partitions)
		}
		if partitions != 0 {
			t.Partitions = partitions
		}
		if config == nil {
			config = &brokerv1.TopicConfig{}
		}
		if err := mask.Apply(t.Config, proto.CloneOf(config), fields); err != nil {
			return err
		}
		return checkConfig(t.Config)
	})
	if err != nil {
		return nil, err
	}
	r.openAll(ctx, t)
	return t, nil
}

// edit writes what change makes of a topic, by compare-and-set.
func (r *Registry) edit(ctx context.Context, op, name string, change func(*Topic) error) (*Topic, error) {
	for range retries {
		now, err := r.Get(name)
		if err != nil {
			return nil, err
		}
		next := &Topic{Name: now.Name, ID: now.ID, Partitions: now.Partitions, Config: proto.CloneOf(now.Config), CreateTime: now.CreateTime}
		if err := change(next); err != nil {
			return nil, err
		}
		value, err := next.store()
		if err != nil {
			return nil, err
		}
		next.revision, err = r.bucket.Update(ctx, name, value, now.revision)
		if err == nil {
			return r.apply(next), nil
		}
		if e := errs.From(err); e.Reason != natskv.ReasonConflict {
			return nil, err
		}
		if _, ok := r.refresh(ctx, name); !ok {
			return nil, errNotFound(name)
		}
	}
	return nil, errContended(op, name)
}

// Delete removes a topic and its messages. From its return on the name is free; a crash in the middle is finished by Open,
// an error in the middle by deleting again.
func (r *Registry) Delete(ctx context.Context, name string) error {
	t, ok := r.lookup(name)
	if !ok || !t.deleting {
		var err error
		t, err = r.edit(ctx, "delete", name, func(t *Topic) error {
			t.deleting = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.finishDelete(ctx, t)
}

func (r *Registry) finishDelete(ctx context.Context, t *Topic) error {
	t.opening.Lock()
	defer t.opening.Unlock()
	if now, ok := r.lookup(t.Name); !ok || now.ID != t.ID {
		return nil // another call was first
	}
	if err := r.cfg.Log.Delete(ctx, t.Name, t.ID); err != nil {
		return errs.New(errs.Unavailable, "TOPIC_DELETING", "delete topic %q: some of its files are still there", t.Name).
			WithNext("delete it again; the broker's log names the file").WithRetryAfter(time.Second).Wrap(err)
	}
	if err := r.bucket.Delete(ctx, t.Name, t.revision); err != nil {
		return err
	}
	r.forget(t.Name, t.revision+1, true)
	return nil
}
