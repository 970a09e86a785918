package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/configset"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// channelCmd is `databus channel`.
type channelCmd struct {
	Create   channelCreateCmd   `cmd:"" help:"Create a channel."`
	List     channelListCmd     `cmd:"" aliases:"ls" help:"List channels."`
	Get      channelGetCmd      `cmd:"" help:"Show a channel and its config."`
	Update   channelUpdateCmd   `cmd:"" help:"Change a channel's config while it is in use."`
	Delete   channelDeleteCmd   `cmd:"" aliases:"rm" help:"Delete channels; their topics stay."`
	History  channelHistoryCmd  `cmd:"" help:"List the configs that a channel has had."`
	Diff     channelDiffCmd     `cmd:"" help:"Compare two revisions of a channel's config."`
	Rollback channelRollbackCmd `cmd:"" help:"Take an earlier config back into use."`
	Promote  channelPromoteCmd  `cmd:"" help:"Make a channel's canary the config of every agent."`
	Status   channelStatusCmd   `cmd:"" help:"Show which agents run which revision, and how they fare."`
	Top      channelTopCmd      `cmd:"" help:"Watch what the agents do with each channel, live."`
}

// channelConfigFlags are the config fields of a channel.
type channelConfigFlags struct {
	Route      []string `help:"Topic that the channel routes to, or TOPIC=RULE with a CEL rule over headers, key, lane and json (repeatable; the first that matches counts)." sep:"none" placeholder:"TOPIC[=RULE]"`
	KeyPath    string   `help:"RFC 9535 singular query that takes the key from a JSON payload." placeholder:"$.user.id"`
	Codec      string   `help:"Compression: none, gzip, snappy, lz4 or zstd." placeholder:"CODEC"`
	Linger     string   `help:"Longest that a message waits for others of its batch, such as 5ms." placeholder:"DURATION"`
	Durability string   `help:"What a 2xx promises: buffered, spooled or durable." placeholder:"LEVEL"`
	Set        []string `help:"Any other config field, such as --set batch.maxBytes=256KiB (repeatable)." sep:"none" placeholder:"FIELD=VALUE"`
	File       string   `short:"f" help:"Config as YAML or JSON; - is standard input. --set and the other flags override it." type:"path"`
}

// edit collects the flags into one edit of a ChannelConfig.
func (f channelConfigFlags) edit(term *terminal) (*configset.Edit, error) {
	edit := configset.New((&databusv1.ChannelConfig{}).ProtoReflect().Descriptor())
	if err := readConfigFile(edit, f.File, term); err != nil {
		return nil, err
	}
	routes, err := routesJSON(f.Route)
	if err != nil {
		return nil, err
	}
	return edit, applySets(edit, f.Set, assignment{"routes", routes}, assignment{"keyPath", f.KeyPath},
		assignment{"compression.codec", f.Codec}, assignment{"batch.linger", f.Linger}, assignment{"durability", f.Durability})
}

type channelCreateCmd struct {
	Name string `arg:"" help:"Name of the channel."`
	channelConfigFlags
	DryRun bool `help:"Check only; create nothing."`
	brokerFlags
	outputFlags
}

func (channelCreateCmd) Help() string {
	return `Every part of the config may be left out: messages then go to a topic of the channel's name.

Examples:

  databus channel create orders
  databus channel create orders --key-path '$.user.id' --codec lz4 --linger 10ms
  databus channel create orders --route 'vip=headers["tier"] == "gold"' --route orders
  databus channel create orders --file orders.yaml`
}

func (c *channelCreateCmd) Run(ctx context.Context, term *terminal) error {
	edit, err := c.edit(term)
	if err != nil {
		return err
	}
	req := &databusv1.CreateChannelRequest{Name: c.Name, ValidateOnly: c.DryRun, Config: &databusv1.ChannelConfig{}}
	if err := edit.Into(req.Config); err != nil {
		return err
	}
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	res, err := client.CreateChannel(ctx, req)
	if err != nil {
		return err
	}
	return printChannels(term, c.outputFlags, res.GetChannel())
}

type channelListCmd struct {
	brokerFlags
	outputFlags
}

func (channelListCmd) Help() string {
	return `Examples:

  databus channel list
  databus channel list -o json | jq -r 'select(.config.paused) | .name'`
}

func (c *channelListCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	var channels []*databusv1.Channel
	req := &databusv1.ListChannelsRequest{}
	for {
		res, err := client.ListChannels(ctx, req)
		if err != nil {
			return err
		}
		channels = append(channels, res.GetChannels()...)
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			return printChannels(term, c.outputFlags, channels...)
		}
	}
}

type channelGetCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	brokerFlags
	outputFlags
}

func (channelGetCmd) Help() string {
	return `Examples:

  databus channel get orders
  databus channel get orders -o yaml > orders.yaml && databus channel update orders --file orders.yaml`
}

func (c *channelGetCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	res, err := client.GetChannel(ctx, &databusv1.GetChannelRequest{Channel: c.Channel})
	if err != nil {
		return err
	}
	channel := res.GetChannel()
	if err := printChannels(term, c.outputFlags, channel); err != nil || c.Output != render.Table {
		return err
	}
	if err := printSettings(term, channel.GetConfig()); err != nil || channel.GetCanary() == nil {
		return err
	}
	canary := channel.GetCanary()
	fmt.Fprintf(term.out, "\ncanary: revision %d for agents with %s; `databus channel promote %s` makes it everybody's\n",
		canary.GetRevision(), labels(canary.GetLabels()), channel.GetName())
	changes, err := configset.Diff(channel.GetConfig(), canary.GetConfig())
	if err != nil {
		return err
	}
	return printChanges(term, changes)
}

type channelDeleteCmd struct {
	Channels []string `arg:"" name:"channel" help:"Names of the channels."`
	brokerFlags
}

func (channelDeleteCmd) Help() string {
	return `The topics that the channel routed to stay, with their messages.

Examples:

  databus channel delete orders`
}

func (c *channelDeleteCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	for _, channel := range c.Channels {
		if _, err := client.DeleteChannel(ctx, &databusv1.DeleteChannelRequest{Channel: channel}); err != nil {
			return err
		}
		fmt.Fprintf(term.err, "channel %s deleted\n", channel)
	}
	return nil
}

// printChannels prints channels as a list.
func printChannels(term *terminal, flags outputFlags, channels ...*databusv1.Channel) error {
	rows := render.Rows{
		Header: []string{"CHANNEL", "REVISION", "TOPICS", "KEY", "CODEC", "DURABILITY", "UPDATED", "STATE"},
		Right:  []string{"REVISION"},
		Empty:  "there are no channels; create one with `databus channel create NAME`",
	}
	for _, c := range channels {
		config := c.GetConfig()
		rows.Add(c.GetName(), strconv.FormatInt(c.GetRevision(), 10), routeTopics(c), render.OrDash(config.GetKeyPath()),
			shortEnum(config.GetCompression().GetCodec().String(), "CODEC_", "ZSTD"),
			shortEnum(config.GetDurability().String(), "DURABILITY_", "DURABLE"),
			render.Time(c.GetUpdateTime().AsTime()), channelState(c))
	}
	return printAll(term, flags, channels, rows)
}

func channelState(c *databusv1.Channel) string {
	switch {
	case c.GetConfig().GetPaused():
		return "paused"
	case c.GetCanary() != nil:
		return "canary"
	default:
		return "active"
	}
}

// routeTopics lists where a channel's messages go.
func routeTopics(c *databusv1.Channel) string {
	var topics []string
	for _, r := range c.GetConfig().GetRoutes() {
		topics = append(topics, r.GetTopic())
	}
	if len(topics) == 0 {
		return c.GetName()
	}
	return strings.Join(topics, ",")
}
