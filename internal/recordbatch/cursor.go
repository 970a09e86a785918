package recordbatch

import (
	"encoding/binary"
	"math"
)

// cursor reads fields off the front of b. The first field that does not fit
// sets bad for good, so that a caller asks once, after all fields.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) varint() int64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most are one byte
		u := c.b[0]
		c.b = c.b[1:]
		return int64(u>>1) ^ -int64(u&1)
	}
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.bad = true
		c.b = nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

// length reads a varint that must fit 32 bits, as lengths and counts do.
func (c *cursor) length() int {
	v := c.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		c.bad = true
		return 0
	}
	return int(v)
}

// nullable reads a length and so many bytes; -1 is null. The result is not nil
// when it is empty.
func (c *cursor) nullable() []byte {
	n := c.length()
	if n == -1 {
		return nil
	}
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	if v == nil {
		v = []byte{}
	}
	return v
}
