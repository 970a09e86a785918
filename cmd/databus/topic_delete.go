package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

type topicDeleteCmd struct {
	Topics []string `arg:"" name:"topic" help:"Names of the topics."`
	Yes    bool     `short:"y" help:"Do not ask."`
	brokerFlags
}

func (topicDeleteCmd) Help() string {
	return `The messages are gone for good. On a terminal the command asks first.

A channel that routes to a deleted topic creates it again, empty, with the next message.

Examples:

  databus topic delete orders
  databus topic delete --yes test-1 test-2`
}

func (c *topicDeleteCmd) Run(ctx context.Context, term *terminal) error {
	question := fmt.Sprintf("Delete %s and all messages?", strings.Join(c.Topics, ", "))
	if err := term.confirm(c.Yes, question); err != nil {
		return err
	}
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	for _, topic := range c.Topics {
		if _, err := client.DeleteTopic(ctx, &brokerv1.DeleteTopicRequest{Topic: topic}); err != nil {
			return err
		}
		fmt.Fprintf(term.err, "topic %s deleted\n", topic)
	}
	return nil
}

type topicDeleteRecordsCmd struct {
	Topic     string `arg:"" help:"Name of the topic."`
	Partition int32  `short:"p" help:"Partition." required:""`
	Before    int64  `help:"Records below this offset are dropped; -1: all there are now." required:"" placeholder:"OFFSET"`
	Yes       bool   `short:"y" help:"Do not ask."`
	brokerFlags
	outputFlags
}

func (topicDeleteRecordsCmd) Help() string {
	return `Examples:

  databus topic delete-records orders --partition 0 --before 1500
  databus topic delete-records orders --partition 0 --before -1 --yes`
}

func (c *topicDeleteRecordsCmd) Run(ctx context.Context, term *terminal) error {
	what := fmt.Sprintf("records below offset %d", c.Before)
	if c.Before == -1 {
		what = "all records"
	}
	if err := term.confirm(c.Yes, fmt.Sprintf("Delete %s of %s/%d?", what, c.Topic, c.Partition)); err != nil {
		return err
	}
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	res, err := client.DeleteRecords(ctx, &brokerv1.DeleteRecordsRequest{
		Topic: c.Topic, Partition: c.Partition, BeforeOffset: c.Before,
	})
	if err != nil {
		return err
	}
	rows := render.Rows{Header: []string{"TOPIC", "PARTITION", "LOG START"}, Right: []string{"PARTITION", "LOG START"}}
	rows.Add(c.Topic, strconv.Itoa(int(c.Partition)), strconv.FormatInt(res.GetLogStartOffset(), 10))
	return printAll(term, c.outputFlags, []*brokerv1.DeleteRecordsResponse{res}, rows)
}
