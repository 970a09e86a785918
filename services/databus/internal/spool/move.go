package spool

import "log/slog"

// move is a batch that is written again, so that its file can go.
type move struct {
	item  *item
	file  *file
	head  entryHead
	batch []byte
	pos   int64
}

// planMovesLocked picks the batches that keep a file which is otherwise empty: a stuck partition must not hold the disk space of
// all that went past it.
func (s *Spool) planMovesLocked() {
	if len(s.moving) > 0 || len(s.files) < 3 {
		return
	}
	for _, f := range s.files[:len(s.files)-1] {
		if f.moving || f.live == 0 || f.live > f.size/8 || f.out == nil {
			continue
		}
		f.moving = true
		for _, q := range s.queues {
			for _, x := range q.items {
				if x.file == f && !x.state.done() {
					s.moving = append(s.moving, x)
				}
			}
		}
		s.wake()
		return
	}
}

// load reads the batches that are to be moved. One that can not be read stays where it is: whoever sends it finds out.
func (s *Spool) load(items []*item) (moves []move) {
	for _, x := range items {
		s.mu.Lock()
		done, f, pos := x.state.done(), x.file, x.pos
		h := entryHead{id: x.id, created: x.created, count: x.count, place: x.queue.place, channel: x.channel.name, layout: x.era.layout}
		if !done {
			f.refs++
		}
		s.mu.Unlock()
		if done {
			continue
		}
		batch, err := f.readBatch(pos, int(x.size))
		if err != nil {
			s.mu.Lock()
			s.releaseLocked(f)
			s.mu.Unlock()
			s.log.Warn("a spooled batch can not be moved", slog.String("file", f.name), slog.Any("error", err))
			continue
		}
		moves = append(moves, move{item: x, file: f, head: h, batch: batch})
	}
	return moves
}
