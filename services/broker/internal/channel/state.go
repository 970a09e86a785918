// Package channel is the broker's registry of channels. It owns their configs: validation when written, revisions, history,
// rollback, canaries, the watch that carries them to agents, and what agents report of them. Channels are kept in the
// metadata bucket `channels`. It serves no protocol: package api does.
package channel

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

// version is one config that a channel has had. It is immutable.
type version struct {
	revision int64
	config   *databusv1.ChannelConfig // sparse, as written; not to be changed
	time     time.Time
}

// state is a channel as one write left it. It is immutable.
//
// The newest revision number is last: it goes on over deletes, so that no number is ever used twice. A deleted channel keeps
// its key for that, without a config.
type state struct {
	name    string
	deleted bool
	last    int64
	created time.Time
	base    version
	canary  *canary
	written uint64 // the bucket's revision
}

// canary is a version that only the agents with all of the labels run.
type canary struct {
	version
	labels map[string]string
}

// introduced is the version that the write of this state made, nil where it made none (a delete, a promotion).
func (s *state) introduced() *version {
	switch {
	case s.deleted:
		return nil
	case s.canary != nil && s.canary.revision == s.last:
		return &s.canary.version
	}
	return &s.base
}

// proto is the channel as operators see it.
func (s *state) proto() *databusv1.Channel {
	c := s.channel(s.base)
	if s.canary != nil {
		c.Canary = &databusv1.Canary{Labels: s.canary.labels, Config: s.canary.config, Revision: s.canary.revision}
	}
	return c
}

// protoFor is the channel as an agent with these labels runs it.
func (s *state) protoFor(labels map[string]string) *databusv1.Channel {
	if s.canary != nil && carries(labels, s.canary.labels) {
		return s.channel(s.canary.version)
	}
	return s.channel(s.base)
}

func (s *state) channel(v version) *databusv1.Channel {
	return &databusv1.Channel{
		Name: s.name, Config: v.config, Revision: v.revision,
		CreateTime: timestamppb.New(s.created), UpdateTime: timestamppb.New(v.time),
	}
}

// carries tells whether an agent has every label that is asked for.
func carries(labels, want map[string]string) bool {
	for name, value := range want {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// storedState and storedVersion are a state in the metadata bucket.
type storedState struct {
	Name    string            `json:"name"`
	Deleted bool              `json:"deleted,omitempty"`
	Last    int64             `json:"last"`
	Created time.Time         `json:"created,omitzero"`
	Base    *storedVersion    `json:"base,omitempty"`
	Canary  *storedVersion    `json:"canary,omitempty"`
	Labels  map[string]string `json:"canaryLabels,omitempty"`
}

type storedVersion struct {
	Revision int64           `json:"revision"`
	Config   json.RawMessage `json:"config"`
	Time     time.Time       `json:"time"`
}

func (s *state) store() (storedState, error) {
	out := storedState{Name: s.name, Deleted: s.deleted, Last: s.last, Created: s.created}
	if s.deleted {
		return out, nil
	}
	var err error
	if out.Base, err = s.base.store(); err != nil {
		return out, fmt.Errorf("channel %s: encode its config: %w", s.name, err)
	}
	if s.canary != nil {
		out.Labels = maps.Clone(s.canary.labels)
		if out.Canary, err = s.canary.store(); err != nil {
			return out, fmt.Errorf("channel %s: encode its canary's config: %w", s.name, err)
		}
	}
	return out, nil
}

func (v version) store() (*storedVersion, error) {
	config, err := protojson.Marshal(v.config)
	return &storedVersion{Revision: v.revision, Config: config, Time: v.time}, err
}

func load(in storedState, written uint64) (*state, error) {
	s := &state{name: in.Name, deleted: in.Deleted, last: in.Last, created: in.Created, written: written}
	if in.Deleted {
		return s, nil
	}
	if in.Base == nil {
		return nil, corrupt(in.Name, nil)
	}
	var err error
	if s.base, err = in.Base.load(); err != nil {
		return nil, corrupt(in.Name, err)
	}
	if in.Canary != nil {
		s.canary = &canary{labels: in.Labels}
		if s.canary.version, err = in.Canary.load(); err != nil {
			return nil, corrupt(in.Name, err)
		}
	}
	return s, nil
}

func (v *storedVersion) load() (version, error) {
	out := version{revision: v.Revision, config: &databusv1.ChannelConfig{}, time: v.Time}
	// What a newer version of the product wrote and this one does not know is left out.
	err := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(v.Config, out.config)
	return out, err
}

func corrupt(name string, err error) error {
	e := errs.New(errs.DataLoss, "METADATA_CORRUPT", "channel %q: its stored config cannot be read", name).
		WithNext("look at it with the nats tool, bucket %s", bucketName)
	if err != nil {
		e = e.Wrap(err)
	}
	return e
}
