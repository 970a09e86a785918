package channel

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/broker/internal/mask"
)

// pastVersion is a version in a channel's history.
type pastVersion struct {
	version
	labels map[string]string // of a canary
}

// history reads the versions that a channel has had since it was made, oldest first.
func (r *Registry) history(ctx context.Context, name string) ([]pastVersion, error) {
	if _, err := r.get(name); err != nil {
		return nil, err
	}
	entries, err := r.bucket.History(ctx, name)
	if err != nil {
		return nil, err
	}
	var list []pastVersion
	for _, e := range slices.Backward(entries) {
		s, err := load(e.Value, e.Revision)
		if err != nil {
			return nil, err
		}
		if s.deleted {
			list = nil // what came before belonged to another channel of that name
			continue
		}
		v := pastVersion{version: *s.introduced()}
		if s.canary != nil && s.canary.revision == v.revision {
			v.labels = s.canary.labels
		}
		if n := len(list); n > 0 && list[n-1].revision >= v.revision {
			continue // a promotion makes no new version
		}
		list = append(list, v)
	}
	return list, nil
}

// History returns a channel's revisions, newest first, each with what it changed against the one before.
func (r *Registry) History(ctx context.Context, name string) ([]*databusv1.ChannelRevision, error) {
	list, err := r.history(ctx, name)
	if err != nil {
		return nil, err
	}
	out := make([]*databusv1.ChannelRevision, 0, len(list))
	for i, v := range list {
		rev := &databusv1.ChannelRevision{Revision: v.revision, Config: v.config, CreateTime: timestamppb.New(v.time)}
		if len(v.labels) > 0 {
			rev.Changes = append(rev.Changes, "canary: none -> "+labelText(v.labels))
		}
		if i > 0 {
			rev.Changes = append(rev.Changes, mask.Diff(list[i-1].config, v.config)...)
		}
		out = append(out, rev)
	}
	slices.Reverse(out)
	return out, nil
}

func labelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for name, value := range labels {
		list = append(list, fmt.Sprintf("%s=%s", name, value))
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
