package spool

// encoder builds a group's records for one vectored write. Batches are not copied; the heads are cut out of one buffer, which must
// not move while they are, so it is sized first.
type encoder struct {
	heads  []byte
	bufs   [][]byte
	start  int // of the record that is being built
	pos    int64
	number uint32
	group  uint32
	pad    *[recordAlign]byte
}

func (e *encoder) begin() { e.heads, e.start = beginRecord(e.heads) }

// end closes a record whose head is built and that goes on in tail.
func (e *encoder) end(tail []byte, k kind) {
	pad := endRecord(e.heads, e.start, tail, k, e.number, e.group)
	e.bufs = append(e.bufs, e.heads[e.start:len(e.heads):len(e.heads)])
	if len(tail) > 0 {
		e.bufs = append(e.bufs, tail)
	}
	if pad > 0 {
		e.bufs = append(e.bufs, e.pad[:pad])
	}
	e.pos += int64(len(e.heads)-e.start+len(tail)) + int64(pad)
}

// encode builds the group's records in the writer's buffers.
func (s *Spool) encode(c *commit) {
	w := &s.w
	e := encoder{heads: w.heads[:0], bufs: w.bufs[:0], pos: w.at, number: w.file.number, group: uint32(w.at), pad: &w.pad}
	cuts := w.cuts
	if !c.fresh {
		cuts = nil
	}
	need := (len(c.entries)+len(c.moves))*(recordHeadSize+entryHeadSize+2*maxName) + len(cuts)*(recordHeadSize+cutSize)
	for i := range c.states {
		need += 2*(recordHeadSize+markHeadSize+maxName) + spanSize*len(c.states[i].dropped)
	}
	if cap(e.heads) < need {
		e.heads = make([]byte, 0, need)
	}
	for _, ct := range cuts {
		e.begin()
		e.heads = appendCut(e.heads, ct.file, ct.end)
		e.end(nil, kindCut)
	}
	for i := range c.states {
		st := &c.states[i]
		e.begin()
		e.heads = appendMark(e.heads, st.queue.place, st.state)
		e.end(nil, kindMark)
		if len(st.dropped) > 0 {
			e.begin()
			e.heads = appendShed(e.heads, st.queue.place, st.dropped)
			e.end(nil, kindShed)
		}
	}
	for i := range c.moves {
		m := &c.moves[i]
		m.pos = e.pos
		e.begin()
		e.heads = appendEntryHead(e.heads, &m.head)
		e.end(m.batch, kindEntry)
	}
	now := s.cfg.Now().UnixMilli()
	for _, a := range c.entries {
		s.encodeEntry(&e, a, now)
	}
	w.heads, w.bufs = e.heads, e.bufs
}

// encodeEntry gives a batch its id and place.
func (s *Spool) encodeEntry(e *encoder, a *appending, now int64) {
	w := &s.w
	w.ordinal++
	id := uint64(e.number)<<32 | uint64(w.ordinal)
	a.item = &item{id: id, created: now, file: w.file, pos: e.pos, size: int32(a.size), count: a.count, stage: a.entry.Stage}
	if a.entry.Placed != nil {
		a.entry.Placed(id)
	}
	e.begin()
	e.heads = appendEntryHead(e.heads, &entryHead{
		id: id, created: now, count: a.count, layout: a.entry.Layout,
		place: place{a.entry.Topic, a.entry.Partition}, channel: a.entry.Channel,
	})
	e.end(a.entry.Batch, kindEntry)
}
