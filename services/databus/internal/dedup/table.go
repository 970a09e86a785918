package dedup

import "encoding/binary"

// table finds an id's slot in a file: 8 bytes an entry, of which four are of the key's hash and four the position, in units of
// eight bytes. An entry is a hint; whoever finds one reads the file to be sure. It is guarded by its channel.
type table struct {
	cells []uint64 // 0: empty
	count int
}

func tagOf(k Key) uint32 { return binary.BigEndian.Uint32(k[:]) }

func (t *table) add(tag, pos uint32) {
	if t.count >= len(t.cells)/4*3 {
		t.grow()
	}
	t.put(uint64(tag)<<32 | uint64(pos))
	t.count++
}

func (t *table) put(cell uint64) {
	mask := uint64(len(t.cells) - 1)
	for i := (cell >> 32) & mask; ; i = (i + 1) & mask {
		if t.cells[i] == 0 {
			t.cells[i] = cell
			return
		}
	}
}

func (t *table) grow() {
	old := t.cells
	t.cells = make([]uint64, max(1024, 2*len(old)))
	for _, c := range old {
		if c != 0 {
			t.put(c)
		}
	}
}

// each passes on the positions that a tag may be at, until fn returns false.
func (t *table) each(tag uint32, fn func(pos uint32) bool) {
	if len(t.cells) == 0 {
		return
	}
	mask := uint64(len(t.cells) - 1)
	for i := uint64(tag) & mask; t.cells[i] != 0; i = (i + 1) & mask {
		if uint32(t.cells[i]>>32) == tag && !fn(uint32(t.cells[i])) {
			return
		}
	}
}
