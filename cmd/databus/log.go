package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker"
)

// logCmd is `databus log`: a log's files without a broker.
type logCmd struct {
	Verify logVerifyCmd `cmd:"" help:"Check every file of a log that no broker uses."`
	Dump   logDumpCmd   `cmd:"" help:"Print the record batches, or the records, of a log that no broker uses."`
	Repair logRepairCmd `cmd:"" help:"Make a damaged log open again, leaving out what can not be read."`
}

// logDirs names the data directories.
type logDirs struct {
	Dirs   []string `arg:"" name:"dir" help:"Data directories of one broker, or a directory above them." type:"existingdir"`
	Output string   `short:"o" help:"Format: table, or json (an object a line)." enum:"table,json" default:"table" env:"DATABUS_OUTPUT"`
}

// searchDepth is how far below a given directory data directories are looked for.
const searchDepth = 4

// find returns the data directories at or below the given ones.
func (d logDirs) find() ([]string, error) {
	var found []string
	for _, top := range d.Dirs {
		depth := strings.Count(filepath.Clean(top), string(os.PathSeparator)) + searchDepth
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return err
			}
			if _, err := os.Stat(filepath.Join(path, "databus.dir")); err == nil {
				found = append(found, path)
				return fs.SkipDir
			}
			if strings.Count(path, string(os.PathSeparator)) >= depth {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, errs.New(errs.NotFound, "NO_LOG", "no data directory of a log at or below %s", strings.Join(d.Dirs, ", "))
	}
	return found, nil
}

// finding prints one finding as it is found.
func (d logDirs) finding(term *terminal, f broker.LogFinding) {
	if d.Output == "json" {
		printJSON(term, map[string]any{"topic": f.Topic, "partition": f.Partition, "file": f.File, "position": f.Offset, "problem": f.Problem, "harmless": f.Harmless})
		return
	}
	kind := "DAMAGED "
	if f.Harmless {
		kind = "harmless"
	}
	where := f.File
	if f.Offset >= 0 {
		where += " at byte " + strconv.FormatInt(f.Offset, 10)
	}
	fmt.Fprintf(term.out, "%s  %s: %s\n", kind, where, f.Problem)
}

func (d logDirs) summary(term *terminal, s broker.LogSummary) {
	if d.Output == "json" {
		printJSON(term, map[string]any{"partitions": s.Partitions, "segments": s.Segments, "batches": s.Batches, "records": s.Records, "bytes": s.Bytes, "findings": s.Findings})
		return
	}
	fmt.Fprintf(term.out, "%s, %s, %s, %s: %s\n", render.Plural(int64(s.Partitions), "partition"), render.Plural(int64(s.Segments), "segment"),
		render.Plural(s.Records, "record"), render.Bytes(s.Bytes), render.Plural(int64(s.Findings), "finding"))
}

func printJSON(term *terminal, v map[string]any) {
	b, err := json.Marshal(v)
	if err == nil {
		fmt.Fprintf(term.out, "%s\n", b)
	}
}

type logVerifyCmd struct{ logDirs }

func (logVerifyCmd) Help() string {
	return `Reads every segment, index and checkpoint and changes nothing. Fails when something is damaged; what the next start of
the broker mends by itself, such as the unfinished end that a crash leaves, is called harmless.

Examples:

  databus log verify data
  databus log verify /disk1/log /disk2/log -o json`
}

func (c *logVerifyCmd) Run(ctx context.Context, term *terminal) error {
	dirs, err := c.find()
	if err != nil {
		return err
	}
	damaged := 0
	sum, err := broker.VerifyLog(ctx, dirs, func(f broker.LogFinding) {
		if !f.Harmless {
			damaged++
		}
		c.finding(term, f)
	})
	if err != nil {
		return err
	}
	c.summary(term, sum)
	if damaged > 0 {
		return errs.New(errs.DataLoss, "LOG_DAMAGED", "%s in the log; databus log repair leaves out what can not be read",
			render.Plural(int64(damaged), "damage"))
	}
	return nil
}

type logDumpCmd struct {
	logDirs
	Topic     string `short:"t" help:"Only this topic."`
	Partition int32  `short:"p" help:"Only this partition." default:"-1"`
	Offset    int64  `help:"Only from this offset on."`
	Records   bool   `short:"r" help:"Print the records of each batch too."`
}

func (logDumpCmd) Help() string {
	return `Examples:

  databus log dump data --topic orders
  databus log dump data --topic orders --partition 0 --records -o json`
}

func (c *logDumpCmd) Run(ctx context.Context, term *terminal) error {
	dirs, err := c.find()
	if err != nil {
		return err
	}
	damage := func(f broker.LogFinding) { fmt.Fprintf(term.err, "%s at byte %d: %s\n", f.File, f.Offset, f.Problem) }
	_, err = broker.DumpLog(ctx, dirs, damage, func(b broker.LogBatch) error {
		if c.Topic != "" && b.Topic != c.Topic || c.Partition >= 0 && b.Partition != c.Partition || b.Header.LastOffset() < c.Offset {
			return nil
		}
		c.batch(term, b)
		if !c.Records {
			return nil
		}
		for r, err := range recordbatch.Records(b.Bytes, 0) {
			if err != nil {
				return fmt.Errorf("%s at byte %d: %w", b.File, b.Position, err)
			}
			if r.Offset >= c.Offset {
				c.record(term, r)
			}
		}
		return nil
	})
	return err
}

func (c *logDumpCmd) batch(term *terminal, b broker.LogBatch) {
	h := b.Header
	if c.Output == "json" {
		printJSON(term, map[string]any{"topic": b.Topic, "partition": b.Partition, "file": b.File, "position": b.Position,
			"baseOffset": h.BaseOffset, "lastOffset": h.LastOffset(), "records": h.Count, "bytes": h.Size(), "codec": h.Codec().String(),
			"maxTimestamp": h.MaxTimestamp, "producerId": h.ProducerID, "producerEpoch": h.ProducerEpoch, "baseSequence": h.BaseSequence,
			"leaderEpoch": h.LeaderEpoch})
		return
	}
	fmt.Fprintf(term.out, "%s-%d  %d..%d  %d records  %s  %s  %s  position %d\n", b.Topic, b.Partition, h.BaseOffset, h.LastOffset(), h.Count,
		render.Bytes(int64(h.Size())), h.Codec(), time.UnixMilli(h.MaxTimestamp).UTC().Format(time.RFC3339Nano), b.Position)
}

func (c *logDumpCmd) record(term *terminal, r recordbatch.Record) {
	if c.Output == "json" {
		headers := make([]map[string]any, 0, len(r.Headers))
		for _, h := range r.Headers {
			headers = append(headers, map[string]any{"key": h.Key, "value": h.Value})
		}
		printJSON(term, map[string]any{"offset": r.Offset, "timestamp": r.Timestamp, "keyBase64": r.Key, "valueBase64": r.Value, "headers": headers})
		return
	}
	fmt.Fprintf(term.out, "    %d  key %q  value %q\n", r.Offset, r.Key, r.Value)
}

type logRepairCmd struct {
	logDirs
	Yes bool `short:"y" help:"Do not ask."`
}

func (logRepairCmd) Help() string {
	return `Leaves record batches out that can not be read; their offsets stay empty. A segment as it was is kept beside the new one,
with the ending .damaged. Give all data directories of the broker.

Examples:

  databus log verify data && databus log repair data
  databus log repair --yes /disk1/log /disk2/log`
}

func (c *logRepairCmd) Run(ctx context.Context, term *terminal) error {
	dirs, err := c.find()
	if err != nil {
		return err
	}
	if err := term.confirm(c.Yes, "Repair "+strings.Join(dirs, ", ")+"?"); err != nil {
		return err
	}
	n := 0
	if err := broker.RepairLog(ctx, dirs, func(f broker.LogFinding) { n++; c.finding(term, f) }); err != nil {
		return err
	}
	if c.Output == "table" {
		fmt.Fprintf(term.out, "done: %s\n", render.Plural(int64(n), "repair"))
	}
	return nil
}
