package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

type readCmd struct {
	Topic     string  `arg:"" help:"Topic to read."`
	Partition []int32 `short:"p" help:"Partition (repeatable). Left out: all." placeholder:"N"`
	Offset    string  `help:"Where to begin in each partition: earliest, latest, an offset, or -N for the last N. Left out: earliest, with --follow latest." placeholder:"PLACE" xor:"begin"`
	Since     string  `help:"Begin with the first message at or after a time: 10m ago, or 2026-01-31T12:00:00Z." placeholder:"TIME" xor:"begin"`
	Follow    bool    `short:"f" help:"Go on with messages as they come, until Ctrl-C."`
	Limit     int64   `short:"n" help:"Stop after that many messages. 0: no limit."`

	Output render.MessageFormat `short:"o" help:"Format: table, pretty, json (an object a line, as in REST), yaml, value (payloads byte for byte), or envelope (for publish --envelope)." enum:"table,pretty,json,yaml,value,envelope" default:"table" env:"DATABUS_OUTPUT"`
	Format string               `short:"F" help:"Format of your own instead: ${template}" placeholder:"TEXT"`
	brokerFlags
}

func (readCmd) Help() string {
	return `Messages that are there already come in the order of their timestamps across partitions, and always in the order of
their offsets within a partition. Without --follow the command ends at what was there when it began.

Examples:

  databus read orders --offset -10
  databus read orders --since 10m --follow -o pretty
  databus read orders -p 0 --offset 1500 --limit 1 -o value | jq .
  databus read orders --format '%p:%o %k=%v\n'`
}

func (c *readCmd) Run(ctx context.Context, term *terminal) error {
	begin, err := c.begin(time.Now())
	if err != nil {
		return err
	}
	out, err := render.NewMessages(term.out, c.Output, c.Format, term.screen())
	if err != nil {
		return &usage{message: "--format: " + err.Error(), next: "see `databus read --help`"}
	}
	topics, err := c.server().topics()
	if err != nil {
		return err
	}
	reads, err := c.server().reads()
	if err != nil {
		return err
	}
	r := &reader{server: c.server(), topic: c.Topic, only: c.Partition, topics: topics, reads: reads, out: out, left: c.Limit, term: term}
	if c.Limit <= 0 {
		r.left = -1
	}
	err = r.run(ctx, begin, c.Follow)
	if flushErr := out.Flush(); err == nil || errors.Is(err, errEnough) {
		err = flushErr
	}
	return err
}

// begin is where reading starts in each partition.
type begin struct {
	kind   beginKind
	number int64
	time   time.Time
}

type beginKind int

const (
	atEarliest beginKind = iota
	atLatest
	atOffset
	atLast // the last number messages
	atTime
)

func (c *readCmd) begin(now time.Time) (begin, error) {
	if c.Since != "" {
		t, err := since(c.Since, now)
		return begin{kind: atTime, time: t}, err
	}
	switch c.Offset {
	case "":
		if c.Follow {
			return begin{kind: atLatest}, nil
		}
		return begin{kind: atEarliest}, nil
	case "earliest":
		return begin{kind: atEarliest}, nil
	case "latest":
		return begin{kind: atLatest}, nil
	}
	n, err := strconv.ParseInt(c.Offset, 10, 64)
	switch {
	case err != nil:
		return begin{}, &usage{message: fmt.Sprintf("--offset %s is no place", c.Offset), next: "give earliest, latest, an offset, or -N for the last N"}
	case n < 0:
		return begin{kind: atLast, number: -n}, nil
	}
	return begin{kind: atOffset, number: n}, nil
}

// since reads a length of time before now, or a moment.
func since(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &usage{message: fmt.Sprintf("--since %s is no time", text), next: "give 10m, 2h30m, or 2026-01-31T12:00:00Z"}
}

// wanted tells whether a partition is to be read; an empty list means all.
func wanted(only []int32, partition int32) bool {
	return len(only) == 0 || slices.Contains(only, partition)
}
