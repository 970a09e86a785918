package main

import (
	"context"
	"fmt"
	"strconv"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

type channelStatusCmd struct {
	Channel string `arg:"" help:"Name of the channel."`
	brokerFlags
	outputFlags
}

func (channelStatusCmd) Help() string {
	return `Counters run since each agent started. An agent that has not reported for a minute is not listed.

Examples:

  databus channel status orders
  databus channel status orders -o json | jq '.agents[].report.revision'`
}

func (c *channelStatusCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	res, err := client.GetChannelStatus(ctx, &databusv1.GetChannelStatusRequest{Channel: c.Channel})
	if err != nil {
		return err
	}
	if c.Output != render.Table {
		return printAll(term, c.outputFlags, []*databusv1.GetChannelStatusResponse{res}, render.Rows{})
	}
	fmt.Fprintf(term.out, "channel %s, revision %d, %s\n\n", c.Channel, res.GetRevision(),
		render.Plural(int64(len(res.GetAgents())), "agent"))
	numbers := []string{"REVISION", "ACCEPTED", "REJECTED", "PENDING", "SPOOLED"}
	rows := render.Rows{
		Header: []string{"AGENT", "HOST", "LABELS", "REVISION", "ACCEPTED", "REJECTED", "PENDING", "SPOOLED", "CIRCUIT", "REPORTED", "ERROR"},
		Right:  numbers,
		Empty:  "no agent has reported this channel within the last minute",
	}
	for _, a := range res.GetAgents() {
		agent, report := a.GetAgent(), a.GetReport()
		rows.Add(agent.GetAgentId(), render.OrDash(agent.GetHost()), labels(agent.GetLabels()),
			strconv.FormatInt(report.GetRevision(), 10), render.Count(report.GetAccepted()), render.Count(report.GetRejected()),
			render.Bytes(report.GetPendingBytes()), render.Bytes(report.GetSpoolBytes()),
			shortEnum(report.GetCircuit().String(), "CIRCUIT_STATE_", "-"),
			render.Time(report.GetReportTime().AsTime()), render.OrDash(report.GetError()))
	}
	return printAll(term, c.outputFlags, []*databusv1.GetChannelStatusResponse{res}, rows)
}
