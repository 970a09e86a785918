// Package journal owns what makes an append durable before its segment is synced: a sequence of flushes, each of
// which carries what many partitions waited for.
//
// It knows entries as opaque batches of a topic id and partition. It does not know segments, offsets' meaning or
// who waits. Journal is the seam for other implementations; Local keeps it in files.
package journal

import "errors"

// Entry is what one partition adds to a flush.
type Entry struct {
	Topic      [16]byte
	Partition  int32
	Base, Last int64    // offsets of the first and the last record
	Batches    [][]byte // whole record batches, in order
}

// Size is the number of bytes of batches in the entry.
func (e *Entry) Size() int {
	n := 0
	for _, b := range e.Batches {
		n += len(b)
	}
	return n
}

// Journal keeps flushes until they are trimmed. Append, Read, Trim, Size and Close may run concurrently; Replay must have
// returned before the first Append. The owner closes it. Package journaltest holds an implementation to what is said here.
type Journal interface {
	// Append makes the entries durable, all or none of them, and returns the flush's sequence number, which grows from flush to
	// flush, through restarts too. It does not keep the entries or their batches. An error that matches ErrFull leaves the journal
	// usable; after any other, which matches ErrFailed or ErrClosed, every further Append fails. A flush that was refused may be
	// replayed only if nothing was appended after it.
	Append(entries []Entry) (seq uint64, err error)
	// Replay passes every entry that is not trimmed, in the order in which it was appended. The entry and its
	// batches are valid only during the call. An error of fn ends it and is returned, wrapped. What it passed is durable. A flush that
	// was never acknowledged may be missing; if one that was acknowledged can not be read, Replay returns an error that matches
	// ErrCorrupt.
	Replay(fn func(seq uint64, e Entry) error) error
	// Read passes what was appended and is not trimmed as Replay does, at any time; other calls wait for it. It works
	// after a failed Append too, as far as what was appended before can be read.
	Read(fn func(seq uint64, e Entry) error) error
	// Trim says that flushes up to and including seq are not needed any more. They may be kept; those after it are.
	Trim(seq uint64) error
	// Size is how many bytes are kept because they are not trimmed.
	Size() int64
	// Close trims nothing. It may be called more than once.
	Close() error
}

var (
	// ErrFull says that there is no room for the flush now; the journal stays usable.
	ErrFull = errors.New("no space left for the journal")
	// ErrFailed says that an earlier write or sync failed; what follows it can not be made durable here.
	ErrFailed = errors.New("journal failed")
	// ErrCorrupt is matched by errors about a flush that was acknowledged and can not be read.
	ErrCorrupt = errors.New("journal is damaged")
	// ErrClosed says that the journal is closed.
	ErrClosed = errors.New("journal is closed")
)
