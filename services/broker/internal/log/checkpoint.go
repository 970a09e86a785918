package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/databus-suite/databus/services/broker/internal/store"
)

// checkpoint is what a recovery starts from. docs/format/log.md has the byte diagram.
type checkpoint struct {
	generation  uint64
	logStart    int64
	offset      int64 // everything before it is durable in the segments
	position    int64 // where the log goes on in the last segment
	cleanedTo   int64 // compaction has dealt with everything before it
	leaderEpoch int32
	gaps        bool         // offsets may not follow one another
	segments    []store.Stub // all of them, by base; the last is the active one
	producers   producers
}

const (
	checkpointMagic   = "DBCP"
	checkpointVersion = 1
	checkpointFixed   = 64
	segmentRefSize    = 32
	producerFixed     = 20
	producerBatchSize = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *checkpoint) encode() []byte {
	b := make([]byte, checkpointFixed, checkpointFixed+len(c.segments)*segmentRefSize+len(c.producers)*(producerFixed+window*producerBatchSize))
	copy(b, checkpointMagic)
	be := binary.BigEndian
	be.PutUint16(b[12:], checkpointVersion)
	be.PutUint32(b[16:], uint32(len(c.segments)))
	be.PutUint32(b[20:], uint32(len(c.producers)))
	be.PutUint64(b[24:], c.generation)
	be.PutUint64(b[32:], uint64(c.logStart))
	be.PutUint64(b[40:], uint64(c.offset))
	be.PutUint64(b[48:], uint64(c.position))
	be.PutUint32(b[56:], uint32(c.leaderEpoch))
	if c.gaps {
		b[63] = 1
	}
	b = be.AppendUint64(b, uint64(c.cleanedTo))
	for _, s := range c.segments {
		b = append(b, s.Dir[:]...)
		b = be.AppendUint64(b, uint64(s.Base))
		b = be.AppendUint64(b, uint64(s.Size))
	}
	for id, p := range c.producers {
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint64(b, uint64(p.seen))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint16(b, uint16(p.n))
		for _, r := range p.batches[:p.n] {
			b = be.AppendUint32(b, uint32(r.firstSeq))
			b = be.AppendUint32(b, uint32(r.lastSeq))
			b = be.AppendUint64(b, uint64(r.base))
			b = be.AppendUint64(b, uint64(r.last))
		}
	}
	be.PutUint32(b[4:], uint32(len(b)))
	be.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

var errCheckpoint = errors.New("checkpoint is damaged")

func decodeCheckpoint(b []byte) (*checkpoint, error) {
	be := binary.BigEndian
	if len(b) < checkpointFixed+8 || string(b[:4]) != checkpointMagic {
		return nil, fmt.Errorf("%w: no header", errCheckpoint)
	}
	// A shorter checkpoint may have been written over a longer one.
	n := int(be.Uint32(b[4:]))
	if n < checkpointFixed+8 || n > len(b) {
		return nil, fmt.Errorf("%w: it should have %d bytes", errCheckpoint, n)
	}
	b = b[:n]
	if crc32.Checksum(b[12:], castagnoli) != be.Uint32(b[8:]) {
		return nil, fmt.Errorf("%w: checksum differs", errCheckpoint)
	}
	if v := be.Uint16(b[12:]); v != checkpointVersion {
		return nil, fmt.Errorf("checkpoint has version %d, this program knows %d", v, checkpointVersion)
	}
	nseg, nprod := int(be.Uint32(b[16:])), int(be.Uint32(b[20:]))
	c := &checkpoint{generation: be.Uint64(b[24:]), logStart: int64(be.Uint64(b[32:])), offset: int64(be.Uint64(b[40:])),
		position: int64(be.Uint64(b[48:])), leaderEpoch: int32(be.Uint32(b[56:])), cleanedTo: int64(be.Uint64(b[64:])), gaps: b[63]&1 != 0}
	b = b[checkpointFixed+8:]
	if nseg < 0 || nseg > len(b)/segmentRefSize {
		return nil, fmt.Errorf("%w: %d segments do not fit", errCheckpoint, nseg)
	}
	for ; nseg > 0; nseg-- {
		s := store.Stub{Base: int64(be.Uint64(b[16:])), Size: int64(be.Uint64(b[24:]))}
		copy(s.Dir[:], b)
		c.segments = append(c.segments, s)
		b = b[segmentRefSize:]
	}
	var err error
	c.producers, err = decodeProducers(b, nprod)
	return c, err
}

func decodeProducers(b []byte, n int) (producers, error) {
	be := binary.BigEndian
	t := make(producers)
	for ; n > 0; n-- {
		if len(b) < producerFixed {
			return nil, fmt.Errorf("%w: a producer is cut", errCheckpoint)
		}
		id := int64(be.Uint64(b))
		p := &producer{seen: int64(be.Uint64(b[8:])), epoch: int16(be.Uint16(b[16:])), n: int8(be.Uint16(b[18:]))}
		b = b[producerFixed:]
		if p.n < 0 || p.n > window || len(b) < int(p.n)*producerBatchSize {
			return nil, fmt.Errorf("%w: a producer is cut", errCheckpoint)
		}
		for i := range p.batches[:p.n] {
			p.batches[i] = producerBatch{firstSeq: int32(be.Uint32(b)), lastSeq: int32(be.Uint32(b[4:])),
				base: int64(be.Uint64(b[8:])), last: int64(be.Uint64(b[16:]))}
			b = b[producerBatchSize:]
		}
		t[id] = p
	}
	return t, nil
}

// newest returns the checkpoint with the highest generation; damaged says that another could not be read.
func newest(all [][]byte) (best *checkpoint, damaged error) {
	for _, b := range all {
		c, err := decodeCheckpoint(b)
		if err != nil {
			damaged = err
			continue
		}
		if best == nil || c.generation > best.generation {
			best = c
		}
	}
	return best, damaged
}
