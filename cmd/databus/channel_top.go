package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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
	return `Shows what all agents together do with each channel, on a terminal as a live table, which q or Ctrl-C leaves; columns for
which it has no room are left out. Rates are between two reports of an agent, which come each second while somebody looks; the first
snapshots may be without. Times are of the last ten seconds: of the agent that is worst off. QUEUE is from a batch's first message
until it is sent, LATENCY until the broker's answer.

Examples:

  databus channel top
  databus channel top orders payments --interval 2s
  databus channel top -o json -n 10 | jq '{channel, messagesPerSecond}'`
}

// minInterval keeps a slip of the hand from keeping the broker busy.
const minInterval = 100 * time.Millisecond

func (c *channelTopCmd) Run(ctx context.Context, term *terminal) error {
	if c.Interval < minInterval {
		return &usage{message: fmt.Sprintf("--interval %s is too short", c.Interval), next: "give at least " + minInterval.String()}
	}
	client, err := c.server().channels()
	if err != nil {
		return err
	}
	history := map[string]reportHistory{}
	next := func(ctx context.Context) ([]channelSum, error) { return c.snapshot(ctx, client, history) }
	if term.outTTY && c.Output == render.Table {
		return c.live(ctx, term, next)
	}
	return c.plain(ctx, term, next)
}

// plain prints one snapshot after the other.
func (c *channelTopCmd) plain(ctx context.Context, term *terminal, next func(context.Context) ([]channelSum, error)) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		list, err := next(ctx)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if err != nil {
			return err
		}
		if err := c.print(term, list); err != nil {
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

// live draws one snapshot over the other. Once there is one, a broker that does not answer is said above it.
func (c *channelTopCmd) live(ctx context.Context, term *terminal, next func(context.Context) ([]channelSum, error)) error {
	list, err := next(ctx)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	screen := openScreen(term, leave)
	defer screen.close()
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for n, at := 1, time.Now(); ; {
		if err := c.draw(screen, list, at, err); err != nil {
			return err
		}
		if n == c.Count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-screen.resized:
		case <-tick.C:
			n++
			var newer []channelSum
			if newer, err = next(ctx); err == nil {
				list, at = newer, time.Now()
			}
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

func (c *channelTopCmd) print(term *terminal, list []channelSum) error {
	if c.Output == render.JSON {
		enc := json.NewEncoder(term.out)
		for i := range list {
			if err := enc.Encode(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	frame, err := topFrame(render.Screen{}, list, time.Now(), "")
	if err == nil {
		_, err = fmt.Fprintf(term.out, "%s\n", frame)
	}
	return err
}

// draw shows the snapshot of a moment, with what went wrong since.
func (c *channelTopCmd) draw(screen *liveScreen, list []channelSum, at time.Time, wrong error) error {
	hint := "q leaves"
	if wrong != nil {
		hint = "the broker does not answer now: " + wrong.Error()
	}
	look := screen.term.screen()
	look.Width, _ = screen.size()
	frame, err := topFrame(look, list, at, hint)
	if err != nil {
		return err
	}
	return screen.draw(frame)
}

// topFrame is a snapshot as text. Of a table that is too wide for the screen some columns are left out.
func topFrame(look render.Screen, list []channelSum, at time.Time, hint string) ([]byte, error) {
	var frame bytes.Buffer
	fmt.Fprintf(&frame, "%s, %s", at.Format(time.TimeOnly), render.Plural(int64(len(list)), "channel"))
	if hint != "" {
		frame.WriteString("   " + hint)
	}
	frame.WriteString("\n\n")
	rows := topRows(list)
	for _, name := range []string{"REVISION", "CLOSED BY", "MSG/BATCH", "AGENTS", "RATIO", "QUEUE P50/P99", "SPOOLED", "PENDING"} {
		if look.Width == 0 || rows.Width() <= look.Width {
			break
		}
		rows.Remove(name)
	}
	look.Width = 0 // a row must stay one line
	err := render.NewPrinter(&frame, render.Table, look).Print(nil, rows)
	return frame.Bytes(), err
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
