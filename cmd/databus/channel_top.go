package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

type channelTopCmd struct {
	Channels []string      `arg:"" optional:"" help:"Channels to show. Left out: every channel."`
	Interval time.Duration `help:"Time between two snapshots." default:"1s"`
	Count    int           `short:"n" help:"Number of snapshots after which it ends; 0 goes on until Ctrl-C."`
	brokerFlags
	Output render.Format `short:"o" help:"Format: table, or json, a channel a line." enum:"table,json" default:"table" env:"DATABUS_OUTPUT"`
}

func (channelTopCmd) Help() string {
	return `Shows what all agents together do with each channel, on a terminal as a live table. Rates are between two reports of
an agent, which come each second while somebody looks; the first snapshots may be without. Times are of the last ten seconds: of the
agent that is worst off. QUEUE is from a batch's first message until it is sent, LATENCY until the broker's answer.

Examples:

  databus channel top
  databus channel top orders payments --interval 2s
  databus channel top -o json -n 10 | jq '{channel, messagesPerSecond}'`
}

// minInterval keeps a slip of the hand from keeping the broker busy.
const minInterval = 100 * time.Millisecond

// The escape sequences of a live table: another screen without a cursor, and back; to its corner; to the end of a line; what is below.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l"
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K"
	screenRest  = "\x1b[J"
)

func (c *channelTopCmd) Run(ctx context.Context, term *terminal) error {
	if c.Interval < minInterval {
		return &usage{message: fmt.Sprintf("--interval %s is too short", c.Interval), next: "give at least " + minInterval.String()}
	}
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	live := term.outTTY && c.Output == render.Table
	if live {
		fmt.Fprint(term.out, screenOpen)
		defer fmt.Fprint(term.out, screenClose)
	}
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	history := map[string]reportHistory{}
	for n := 1; ; n++ {
		list, err := c.snapshot(ctx, client, history)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how a live view ends
		}
		if err != nil {
			return err
		}
		if err := c.show(term, live, list); err != nil {
			return err
		}
		if n == c.Count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// snapshot asks how each channel fares, and keeps the answers for the next one's rates.
func (c *channelTopCmd) snapshot(ctx context.Context, client databusv1connect.ChannelServiceClient,
	history map[string]reportHistory,
) ([]channelSum, error) {
	names := c.Channels
	if len(names) == 0 {
		res, err := client.ListChannels(ctx, &databusv1.ListChannelsRequest{})
		if err != nil {
			return nil, err
		}
		for _, ch := range res.GetChannels() {
			names = append(names, ch.GetName())
		}
	}
	var list []channelSum
	for _, name := range names {
		status, err := client.GetChannelStatus(ctx, &databusv1.GetChannelStatusRequest{Channel: name})
		if err != nil {
			return nil, err
		}
		history[name] = history[name].next(status)
		list = append(list, sumUp(name, status.GetRevision(), history[name]))
	}
	return list, nil
}

func (c *channelTopCmd) show(term *terminal, live bool, list []channelSum) error {
	if c.Output == render.JSON {
		enc := json.NewEncoder(term.out)
		for i := range list {
			if err := enc.Encode(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var frame bytes.Buffer
	fmt.Fprintf(&frame, "%s, %s\n\n", time.Now().Format(time.TimeOnly), render.Plural(int64(len(list)), "channel"))
	screen := term.screen()
	screen.Width = 0 // a row must stay one line
	if err := render.NewPrinter(&frame, render.Table, screen).Print(nil, topRows(list)); err != nil {
		return err
	}
	if !live {
		_, err := fmt.Fprintln(term.out, frame.String())
		return err
	}
	_, err := fmt.Fprint(term.out, screenHome, strings.ReplaceAll(frame.String(), "\n", lineRest+"\n"), screenRest)
	return err
}

func topRows(list []channelSum) render.Rows {
	rows := render.Rows{
		Header: []string{"CHANNEL", "AGENTS", "REVISION", "MSG/S", "REJECTED/S", "MSG/BATCH", "CLOSED BY", "RATIO", "QUEUE P50/P99", "LATENCY P50/P99", "PENDING", "SPOOLED", "CIRCUIT"},
		Right:  []string{"AGENTS", "REVISION", "MSG/S", "REJECTED/S", "MSG/BATCH", "RATIO", "QUEUE P50/P99", "LATENCY P50/P99", "PENDING", "SPOOLED"},
		Empty:  "there is no channel",
	}
	for _, s := range list {
		revision := strconv.FormatInt(s.Revision, 10)
		if s.Behind > 0 {
			revision += fmt.Sprintf(" (%d behind)", s.Behind)
		}
		rows.Add(s.Channel, strconv.Itoa(s.Agents), revision, render.Count(int64(s.MessagesPerSecond+.5)), render.Count(int64(s.RejectedPerSecond+.5)),
			decimal(s.MessagesPerBatch), render.OrDash(s.ClosedBy), decimal(s.CompressionRatio), times(s.Queue), times(s.Latency),
			render.Bytes(s.PendingBytes), render.Bytes(s.SpoolBytes), render.OrDash(s.Circuit))
	}
	return rows
}

func decimal(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}

func times(t *recentTimes) string {
	if t == nil {
		return "-"
	}
	return fmt.Sprintf("%s/%s", millis(t.P50Millis), millis(t.P99Millis))
}

func millis(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1fms", v)
	}
	return fmt.Sprintf("%.0fms", v)
}
