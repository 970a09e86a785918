package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/configset"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
)

type channelHistoryCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	brokerFlags
	outputFlags
}

func (channelHistoryCmd) Help() string {
	return `Examples:

  databus channel history orders
  databus channel history orders -o json | jq .changes`
}

func (c *channelHistoryCmd) Run(ctx context.Context, term *terminal) error {
	revisions, err := channelRevisions(ctx, c.server(), c.Channel)
	if err != nil {
		return err
	}
	rows := render.Rows{Header: []string{"REVISION", "CREATED", "CHANGES"}, Right: []string{"REVISION"}}
	for _, r := range revisions {
		changes := strings.Join(r.GetChanges(), "\n")
		rows.Add(strconv.FormatInt(r.GetRevision(), 10), render.Time(r.GetCreateTime().AsTime()), render.OrDash(changes))
	}
	return printAll(term, c.outputFlags, revisions, rows)
}

func channelRevisions(ctx context.Context, s server, channel string) ([]*databusv1.ChannelRevision, error) {
	client, err := s.channels()
	if err != nil {
		return nil, err
	}
	res, err := client.ListChannelRevisions(ctx, &databusv1.ListChannelRevisionsRequest{Channel: channel})
	if err != nil {
		return nil, err
	}
	return res.GetRevisions(), nil
}

type channelDiffCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	From    int64  `arg:"" optional:"" help:"Revision to compare from. Left out: the one before --to."`
	To      int64  `arg:"" optional:"" help:"Revision to compare to. Left out: the newest."`
	brokerFlags
	outputFlags
}

func (channelDiffCmd) Help() string {
	return `Examples:

  databus channel diff orders          # what the newest change did
  databus channel diff orders 3        # revision 3 against the newest
  databus channel diff orders 3 5`
}

func (c *channelDiffCmd) Run(ctx context.Context, term *terminal) error {
	revisions, err := channelRevisions(ctx, c.server(), c.Channel)
	if err != nil {
		return err
	}
	from, to, err := c.pick(revisions)
	if err != nil {
		return err
	}
	changes, err := configset.Diff(from.GetConfig(), to.GetConfig())
	if err != nil {
		return err
	}
	if c.Output != render.Table {
		return printAll(term, c.outputFlags, []*databusv1.ChannelRevision{asRevision(to, changes)}, render.Rows{})
	}
	fmt.Fprintf(term.out, "channel %s, revision %d to %d\n", c.Channel, from.GetRevision(), to.GetRevision())
	return printChanges(term, changes)
}

// pick finds the two revisions in a history, newest first. The revision before the first one is the empty config.
func (c *channelDiffCmd) pick(revisions []*databusv1.ChannelRevision) (from, to *databusv1.ChannelRevision, err error) {
	find := func(number int64) (*databusv1.ChannelRevision, error) {
		for _, r := range revisions {
			if r.GetRevision() == number {
				return r, nil
			}
		}
		return nil, errs.New(errs.NotFound, "REVISION_NOT_FOUND", "channel %s has no revision %d", c.Channel, number).
			WithNext("see `databus channel history %s`", c.Channel)
	}
	if len(revisions) == 0 {
		return nil, nil, errs.New(errs.NotFound, "REVISION_NOT_FOUND", "channel %s has no history", c.Channel)
	}
	to = revisions[0]
	if c.To != 0 {
		if to, err = find(c.To); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case c.From != 0:
		from, err = find(c.From)
	case len(revisions) > 1:
		from = revisions[1]
	default:
		from = &databusv1.ChannelRevision{}
	}
	return from, to, err
}

// asRevision is the newer revision with the differences to the older one as its changes.
func asRevision(to *databusv1.ChannelRevision, changes []configset.Change) *databusv1.ChannelRevision {
	r := &databusv1.ChannelRevision{Revision: to.GetRevision(), Config: to.GetConfig(), CreateTime: to.GetCreateTime()}
	for _, c := range changes {
		r.Changes = append(r.Changes, fmt.Sprintf("%s: %s -> %s", c.Path, orDefault(c.Old), orDefault(c.New)))
	}
	return r
}

type channelRollbackCmd struct {
	Channel  string `arg:"" help:"Name of the channel."`
	Revision int64  `arg:"" help:"Revision whose config becomes the newest again."`
	brokerFlags
	outputFlags
}

func (channelRollbackCmd) Help() string {
	return `The config comes back as a new revision; the history keeps everything.

Examples:

  databus channel history orders
  databus channel rollback orders 4`
}

func (c *channelRollbackCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	res, err := client.RollbackChannel(ctx, &databusv1.RollbackChannelRequest{Channel: c.Channel, Revision: c.Revision})
	if err != nil {
		return err
	}
	return printChannels(term, c.outputFlags, res.GetChannel())
}

type channelPromoteCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	brokerFlags
	outputFlags
}

func (channelPromoteCmd) Help() string {
	return `Examples:

  databus channel update orders --codec lz4 --canary zone=a
  databus channel status orders
  databus channel promote orders`
}

func (c *channelPromoteCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	res, err := client.PromoteCanary(ctx, &databusv1.PromoteCanaryRequest{Channel: c.Channel})
	if err != nil {
		return err
	}
	return printChannels(term, c.outputFlags, res.GetChannel())
}
