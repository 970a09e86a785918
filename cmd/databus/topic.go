package main

import (
	"context"
	"strconv"
	"time"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/configset"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// topicCmd is `databus topic`.
type topicCmd struct {
	Create        topicCreateCmd        `cmd:"" help:"Create a topic."`
	List          topicListCmd          `cmd:"" aliases:"ls" help:"List topics."`
	Get           topicGetCmd           `cmd:"" help:"Show a topic, its config and what its partitions hold."`
	Update        topicUpdateCmd        `cmd:"" help:"Change a topic's config, or add partitions."`
	Delete        topicDeleteCmd        `cmd:"" aliases:"rm" help:"Delete topics and their messages."`
	DeleteRecords topicDeleteRecordsCmd `cmd:"" help:"Drop a partition's records below an offset."`
}

// topicConfigFlags are the config fields of a topic.
type topicConfigFlags struct {
	Retention      string   `help:"How long records are kept, such as 168h; 0s: for ever." placeholder:"DURATION"`
	RetentionBytes string   `help:"Bytes kept a partition, such as 10GiB." placeholder:"SIZE"`
	Cleanup        string   `help:"What happens to old records: delete, compact or compact-delete." placeholder:"POLICY"`
	Set            []string `help:"Any other config field, such as --set segmentBytes=64MiB (repeatable)." sep:"none" placeholder:"FIELD=VALUE"`
	File           string   `short:"f" help:"Config as YAML or JSON; - is standard input. --set and the other flags override it." type:"path"`
}

// edit collects the flags into one edit of a TopicConfig.
func (f topicConfigFlags) edit(term *terminal) (*configset.Edit, error) {
	edit := configset.New((&brokerv1.TopicConfig{}).ProtoReflect().Descriptor())
	if err := readConfigFile(edit, f.File, term); err != nil {
		return nil, err
	}
	return edit, applySets(edit, f.Set,
		assignment{"retention", f.Retention}, assignment{"retentionBytes", f.RetentionBytes}, assignment{"cleanup", f.Cleanup})
}

type topicCreateCmd struct {
	Name       string `arg:"" help:"Name of the topic."`
	Partitions int32  `short:"p" help:"Number of partitions. 0: the broker's default."`
	topicConfigFlags
	DryRun bool `help:"Check only; create nothing."`
	brokerFlags
	outputFlags
}

func (topicCreateCmd) Help() string {
	return `Examples:

  databus topic create orders
  databus topic create orders --partitions 12 --retention 720h
  databus topic create users --cleanup compact --set tombstoneRetention=48h`
}

func (c *topicCreateCmd) Run(ctx context.Context, term *terminal) error {
	edit, err := c.edit(term)
	if err != nil {
		return err
	}
	req := &brokerv1.CreateTopicRequest{Name: c.Name, Partitions: c.Partitions, ValidateOnly: c.DryRun}
	if !edit.Empty() {
		req.Config = &brokerv1.TopicConfig{}
		if err := edit.Into(req.Config); err != nil {
			return err
		}
	}
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	res, err := client.CreateTopic(ctx, req)
	if err != nil {
		return err
	}
	return printTopics(term, c.outputFlags, res.GetTopic())
}

type topicListCmd struct {
	brokerFlags
	outputFlags
}

func (topicListCmd) Help() string {
	return `Examples:

  databus topic list
  databus topic list -o json | jq -r .name`
}

func (c *topicListCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	var topics []*brokerv1.Topic
	req := &brokerv1.ListTopicsRequest{}
	for {
		res, err := client.ListTopics(ctx, req)
		if err != nil {
			return err
		}
		topics = append(topics, res.GetTopics()...)
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			return printTopics(term, c.outputFlags, topics...)
		}
	}
}

type topicGetCmd struct {
	Topic string `arg:"" help:"Name of the topic."`
	brokerFlags
	outputFlags
}

func (topicGetCmd) Help() string {
	return `Examples:

  databus topic get orders
  databus topic get orders -o yaml
  databus topic get orders -o json | jq '.partitionOffsets[].highWatermark'`
}

func (c *topicGetCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	res, err := client.GetTopic(ctx, &brokerv1.GetTopicRequest{Topic: c.Topic})
	if err != nil {
		return err
	}
	topic := res.GetTopic()
	if c.Output != render.Table {
		return printAll(term, c.outputFlags, []*brokerv1.Topic{topic}, render.Rows{})
	}
	if err := printTopics(term, c.outputFlags, topic); err != nil {
		return err
	}
	if err := printSettings(term, topic.GetConfig()); err != nil {
		return err
	}
	rows := render.Rows{
		Header: []string{"PARTITION", "LOG START", "HIGH WATERMARK", "SIZE", "LEADER EPOCH"},
		Right:  []string{"PARTITION", "LOG START", "HIGH WATERMARK", "SIZE", "LEADER EPOCH"},
	}
	for _, p := range topic.GetPartitionOffsets() {
		rows.Add(strconv.Itoa(int(p.GetPartition())), strconv.FormatInt(p.GetLogStartOffset(), 10),
			strconv.FormatInt(p.GetHighWatermark(), 10), render.Bytes(p.GetSizeBytes()), strconv.Itoa(int(p.GetLeaderEpoch())))
	}
	return printSection(term, rows)
}

type topicUpdateCmd struct {
	Topic      string `arg:"" help:"Name of the topic."`
	Partitions int32  `short:"p" help:"Number of partitions to grow to; never fewer than now."`
	topicConfigFlags
	Unset []string `help:"Config field that goes back to its default (repeatable)." placeholder:"FIELD"`
	brokerFlags
	outputFlags
}

func (topicUpdateCmd) Help() string {
	return `Growing a topic moves keys to other partitions: messages of one key keep their order only within each partition.

Examples:

  databus topic update orders --partitions 24
  databus topic update orders --retention 24h --set segmentBytes=128MiB
  databus topic update orders --unset retention`
}

func (c *topicUpdateCmd) Run(ctx context.Context, term *terminal) error {
	edit, err := c.edit(term)
	if err != nil {
		return err
	}
	if err := unset(edit, c.Unset); err != nil {
		return err
	}
	if edit.Empty() && c.Partitions == 0 {
		return &usage{message: "there is nothing to change", next: "give --partitions, --set, --unset or --file"}
	}
	req := &brokerv1.UpdateTopicRequest{Topic: c.Topic, Partitions: c.Partitions}
	if !edit.Empty() {
		req.Config, req.UpdateMask = &brokerv1.TopicConfig{}, edit.Mask()
		if err := edit.Into(req.Config); err != nil {
			return err
		}
	}
	client, err := c.server().topics()
	if err != nil {
		return err
	}
	res, err := client.UpdateTopic(ctx, req)
	if err != nil {
		return err
	}
	return printTopics(term, c.outputFlags, res.GetTopic())
}

// printTopics prints topics as a list.
func printTopics(term *terminal, flags outputFlags, topics ...*brokerv1.Topic) error {
	rows := render.Rows{
		Header: []string{"TOPIC", "PARTITIONS", "RETENTION", "CLEANUP", "CREATED", "ID"},
		Right:  []string{"PARTITIONS"},
		Empty:  "there are no topics; create one with `databus topic create NAME`",
	}
	for _, t := range topics {
		rows.Add(t.GetName(), strconv.Itoa(int(t.GetPartitions())), retention(t.GetConfig()),
			shortEnum(t.GetConfig().GetCleanup().String(), "CLEANUP_POLICY_", "DELETE"),
			render.Time(t.GetCreateTime().AsTime()), render.OrDash(t.GetId()))
	}
	return printAll(term, flags, topics, rows)
}

// retention says for how long and how many bytes a topic keeps.
func retention(c *brokerv1.TopicConfig) string {
	span := 7 * 24 * time.Hour // the default that the proto states
	if c.GetRetention() != nil {
		span = c.GetRetention().AsDuration()
	}
	text := render.Span(span)
	if span == 0 {
		text = "for ever"
	}
	if c.GetRetentionBytes() > 0 {
		text += ", " + render.Bytes(c.GetRetentionBytes())
	}
	return text
}
