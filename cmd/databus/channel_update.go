package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/configset"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

type channelUpdateCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	channelConfigFlags
	Unset    []string          `help:"Config field that goes back to its default (repeatable)." placeholder:"FIELD"`
	Pause    bool              `help:"Refuse messages with Retry-After until --resume." xor:"pause"`
	Resume   bool              `help:"Take messages again." xor:"pause"`
	Canary   map[string]string `help:"Only agents with all of these labels run the change, until it is promoted or replaced." placeholder:"LABEL=VALUE" mapsep:","`
	Revision int64             `help:"Refuse the change where the channel's newest revision is another one."`
	DryRun   bool              `help:"Check, print what would change, and change nothing."`
	brokerFlags
	outputFlags
}

func (channelUpdateCmd) Help() string {
	return `Agents run the change within a second; what is in flight drains under the old config.

Examples:

  databus channel update orders --linger 20ms --set batch.maxBytes=256KiB
  databus channel update orders --codec lz4 --canary zone=a
  databus channel update orders --unset rateLimit --dry-run
  databus channel update orders --pause`
}

func (c *channelUpdateCmd) Run(ctx context.Context, term *terminal) error {
	req, err := c.request(term)
	if err != nil {
		return err
	}
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	var before *databusv1.Channel
	if c.DryRun {
		res, err := client.GetChannel(ctx, &databusv1.GetChannelRequest{Channel: c.Channel})
		if err != nil {
			return err
		}
		before = res.GetChannel()
	}
	res, err := client.UpdateChannel(ctx, req)
	if err != nil {
		return err
	}
	after := res.GetChannel()
	if !c.DryRun || c.Output != render.Table {
		return printChannels(term, c.outputFlags, after)
	}
	config := after.GetConfig()
	if len(c.Canary) > 0 {
		config = after.GetCanary().GetConfig()
	}
	changes, err := configset.Diff(before.GetConfig(), config)
	if err != nil {
		return err
	}
	return printChanges(term, changes)
}

func (c *channelUpdateCmd) request(term *terminal) (*databusv1.UpdateChannelRequest, error) {
	edit, err := c.edit(term)
	if err != nil {
		return nil, err
	}
	if err := unset(edit, c.Unset); err != nil {
		return nil, err
	}
	if c.Pause || c.Resume {
		if err := edit.Set("paused", strconv.FormatBool(c.Pause)); err != nil {
			return nil, err
		}
	}
	if edit.Empty() {
		return nil, &usage{message: "there is nothing to change", next: "give --set, --unset, --file or one of the other config flags"}
	}
	req := &databusv1.UpdateChannelRequest{
		Channel: c.Channel, Config: &databusv1.ChannelConfig{}, UpdateMask: edit.Mask(),
		Revision: c.Revision, ValidateOnly: c.DryRun, CanaryLabels: c.Canary,
	}
	return req, edit.Into(req.Config)
}

// routesJSON turns TOPIC and TOPIC=RULE into the list that the config has. No topic has a = in its name.
func routesJSON(routes []string) (string, error) {
	if len(routes) == 0 {
		return "", nil
	}
	type route struct {
		Topic string `json:"topic"`
		When  string `json:"when,omitempty"`
	}
	var list []route
	for _, r := range routes {
		topic, when, hasRule := strings.Cut(r, "=")
		topic, when = strings.TrimSpace(topic), strings.TrimSpace(when)
		if topic == "" || hasRule && when == "" {
			return "", &usage{message: fmt.Sprintf("--route %s is neither TOPIC nor TOPIC=RULE", r),
				next: `write it as --route orders or --route 'vip=headers["tier"] == "gold"'`}
		}
		list = append(list, route{topic, when})
	}
	document, err := json.Marshal(list)
	return string(document), err
}
