package vfstest

import (
	"maps"
	"math/rand/v2"
)

// sector is the unit that a disk writes whole or not at all.
const sector = 512

// Crash returns a copy of the file system as it could be found after the power failed at this moment. Of every file
// that was not synced, any sectors of any of its writes may be there; of every directory that was not synced, the
// changes up to some point. The original goes on unharmed.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &crash{rng: rng, mode: rng.IntN(4), seen: make(map[*node]*node)}
	return &Mem{root: c.node(m.root), locks: make(map[string]bool)}
}

// Clone returns a copy as it is found after the process alone died: nothing is lost yet, and what was not synced
// can still be.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := make(map[*node]*node)
	return &Mem{root: clone(m.root, seen), locks: make(map[string]bool)}
}

func clone(n *node, seen map[*node]*node) *node {
	if n == nil || seen[n] != nil {
		return seen[n]
	}
	out := &node{dir: n.dir, data: append([]byte(nil), n.data...), durable: append([]byte(nil), n.durable...),
		writes: append([]write(nil), n.writes...), names: make(map[string]*node), durableNames: make(map[string]*node)}
	seen[n] = out
	for name, c := range n.names {
		out.names[name] = clone(c, seen)
	}
	for name, c := range n.durableNames {
		out.durableNames[name] = clone(c, seen)
	}
	for _, op := range n.nameOps {
		op.to = clone(op.to, seen)
		out.nameOps = append(out.nameOps, op)
	}
	return out
}

const (
	nothing    = 0 // only what was synced survives
	everything = 1
	// any other: each sector by itself
)

type crash struct {
	rng  *rand.Rand
	mode int
	seen map[*node]*node
}

// chance says whether something that was not synced is there.
func (c *crash) chance() bool {
	switch c.mode {
	case nothing:
		return false
	case everything:
		return true
	}
	return c.rng.IntN(2) == 0
}

func (c *crash) node(n *node) *node {
	if done := c.seen[n]; done != nil {
		return done
	}
	out := &node{dir: n.dir}
	c.seen[n] = out
	if n.dir {
		names := c.names(n)
		out.names = make(map[string]*node, len(names))
		for name, child := range names {
			out.names[name] = c.node(child)
		}
		out.durableNames = maps.Clone(out.names)
		return out
	}
	out.data = c.content(n)
	out.durable = append([]byte(nil), out.data...)
	return out
}

func (c *crash) names(n *node) map[string]*node {
	names := maps.Clone(n.durableNames)
	upTo := len(n.nameOps)
	switch {
	case c.mode == nothing:
		upTo = 0
	case c.mode != everything:
		upTo = c.rng.IntN(len(n.nameOps) + 1)
	}
	for _, op := range n.nameOps[:upTo] {
		if op.gone != "" {
			delete(names, op.gone)
		}
		if op.to == nil {
			delete(names, op.name)
		} else {
			names[op.name] = op.to
		}
	}
	return names
}

func (c *crash) content(n *node) []byte {
	out := &node{data: append([]byte(nil), n.durable...)}
	for _, w := range n.writes {
		if w.data == nil {
			if c.chance() {
				out.truncate(w.off)
			}
			continue
		}
		// Sectors are of the disk, not of the write.
		for from := int64(0); from < int64(len(w.data)); {
			to := min(from+sector-(w.off+from)%sector, int64(len(w.data)))
			if c.chance() {
				out.write(write{off: w.off + from, data: w.data[from:to]})
			}
			from = to
		}
	}
	return out.data
}
