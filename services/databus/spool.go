package databus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
	"github.com/databus-suite/databus/services/databus/internal/relay"
	"github.com/databus-suite/databus/services/databus/internal/sender"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

const (
	// settle is how long a batch that the agent sent before it was killed may still be on its way into the log.
	settle = 2 * time.Second
	// askAgain is the pause between questions to a broker that does not answer.
	askAgain = 500 * time.Millisecond
	// expireEvery is how often ids past their window are looked for.
	expireEvery = time.Minute
)

// openDisk opens what the agent keeps of messages: the spool, and the ids. Without a data directory there is no spool, and ids are
// forgotten at the end.
func (a *Agent) openDisk(m *meter, traced bool) error {
	a.out = relay.NewOut(relay.OutConfig{Push: a.sender.Push, Logger: a.log, Traced: traced, RefugeDir: a.file("refused")})
	ids := a.file("ids")
	if a.cfg.DataDir != "" {
		var err error
		a.spool, err = spool.Open(spool.Config{Dir: a.file("spool"), Logger: a.log, Ready: a.out.Ready, Observer: m.spool()})
		if err != nil {
			return err
		}
		a.in = relay.NewIn(a.spool)
		a.spooled = batcher.New(a.in)
	} else {
		dir, err := os.MkdirTemp("", "databus-agent-")
		if err != nil {
			return err
		}
		a.temporary = dir
		ids = filepath.Join(dir, "ids")
	}
	var err error
	if a.ids, err = dedup.Open(dedup.Config{Dir: ids, Logger: a.log, Forgotten: m.forgotten}); err != nil {
		return err
	}
	for _, d := range a.ids.Doubts() {
		switch {
		case d.Target.Entry == 0:
			a.doubts = append(a.doubts, d)
		case a.spool != nil && a.spool.Found(d.Target.Topic, d.Target.Partition, d.Target.Entry):
			d.Found(dedup.Answer{BaseOffset: -1})
		default:
			d.Lost()
		}
	}
	return nil
}

// relayAll begins to send what an earlier run left in the spool.
func (a *Agent) relayAll() {
	if a.spool == nil {
		return
	}
	r := a.spool.Recovery()
	if r.Batches > 0 || r.TornBytes > 0 {
		a.log.Info("the spool holds messages of an earlier run", slog.Any("batches", r.Batches), slog.Any("messages", r.Messages), slog.Any("torn_bytes", r.TornBytes))
	}
	for _, q := range a.spool.Waiting() {
		a.out.Ready(q)
	}
}

// expireIDs drops ids that are past their window until ctx ends.
func (a *Agent) expireIDs(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.ids.Expire()
		}
	}
}

// clearDoubts finds out which batches of an earlier run are in the log, until all are known or ctx ends. One that is not there may
// have been on its way when that run was killed, so only a second look, a while later, counts.
func (a *Agent) clearDoubts(ctx context.Context) {
	again := time.Now().Add(settle)
	doubts := a.doubts
	a.doubts = nil
	for len(doubts) > 0 && ctx.Err() == nil {
		last := time.Now().After(again)
		var left []*dedup.Doubt
		for _, d := range doubts {
			if !a.clear(ctx, d, last) {
				left = append(left, d)
			}
		}
		if doubts = left; len(doubts) > 0 {
			pause(ctx, askAgain)
		}
	}
}

// clear asks about one batch, and tells whether that is done with.
func (a *Agent) clear(ctx context.Context, d *dedup.Doubt, last bool) bool {
	t := d.Target
	p, found, err := a.sender.Find(ctx, sender.Identity{Topic: t.Topic, Partition: t.Partition, ProducerID: t.ProducerID, Epoch: t.Epoch,
		Sequence: t.Sequence, From: t.From})
	switch {
	case err != nil:
		a.log.Debug("a batch of an earlier run can not be looked for yet", slog.String("topic", t.Topic), slog.Any("partition", t.Partition), slog.Any("error", err))
		return false
	case found:
		d.Found(dedup.Answer{BaseOffset: p.BaseOffset, AppendTime: p.AppendTime})
	case last:
		d.Lost()
	default:
		return false
	}
	a.log.Info("cleared up a batch of an earlier run", slog.String("channel", d.Channel), slog.String("topic", t.Topic), slog.Any("partition", t.Partition), slog.Any("ids", d.Count), slog.Any("in_log", found))
	return true
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// closeDisk closes the spool and the ids, after the sender: what is spooled or in doubt stays for the next run.
func (a *Agent) closeDisk(ctx context.Context) error {
	var err error
	if a.in != nil {
		a.in.Close()
	}
	if a.spool != nil {
		err = a.spool.Close(ctx)
	}
	if a.spooled != nil {
		a.spooled.Close()
	}
	if a.ids != nil {
		err = errors.Join(err, a.ids.Close())
	}
	if a.temporary != "" {
		err = errors.Join(err, os.RemoveAll(a.temporary))
	}
	return err
}
