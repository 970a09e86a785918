// Package store owns where the segments and checkpoints of partitions live.
//
// Store is the seam: FS keeps them in several data directories; an object store can take its place. The room
// knows names, directories and their health. It does not know offsets' meaning, acknowledgement or reads.
package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/segment"
)

// ID is a topic's id or a directory's.
type ID [16]byte

// Key names a partition. A topic that was deleted and made again has another id.
type Key struct {
	Topic     string
	ID        ID
	Partition int32
}

func (k Key) String() string { return fmt.Sprintf("%s-%d", k.Topic, k.Partition) }

// Segment is a segment together with the directory it lives in.
type Segment struct {
	*segment.Segment
	Dir ID
}

// Stub is a segment as it was found on disk, not opened.
type Stub struct {
	Dir  ID
	Base int64
	Size int64 // of the log file
}

// Found is a partition as it was found on disk.
type Found struct {
	Key         Key
	Segments    []Stub   // by base offset; the same base may occur in two directories
	Checkpoints [][]byte // as saved; some may be damaged
	Swaps       []Swap
}

// Swap is a compacted segment that is complete and was not yet put in the place of those with a base in [First, End).
type Swap struct {
	Dir        string
	ID         ID
	First, End int64
	Size       int64
}

// DirStatus is what is known of one data directory.
type DirStatus struct {
	Path        string
	ID          ID
	Err         error     // why it is fenced, nil when it is healthy
	Since       time.Time // when it was fenced
	Free, Total uint64
}

// Store keeps segments and checkpoints. All methods may run concurrently, for one partition one at a time but for Create and
// Remove of different segments. The owner closes it. Package storetest holds an implementation to what is said here.
//
// Durable means that it survives a loss of power. An error of the disk comes back as it is, so that a caller can tell a full one.
type Store interface {
	// List names the partitions that exist, each once, in any order. A partition exists from the first Create or SaveCheckpoint of
	// it that returned without an error, to DeletePartition. One that can not be told apart is an error that matches ErrCorrupt.
	List() ([]Key, error)
	// Load reads what there is of one partition, and drops unfinished compactions. One that does not exist, such as another topic's
	// of the same name, is empty. Of the checkpoints those that were saved last are there. What is durable of the checkpoints
	// where there are swaps is what was read.
	Load(k Key) (Found, error)
	// Create makes an empty segment, durably, in a random healthy place with room. avoid lists directories not to use. What is there
	// of the same base goes. With an error the segment's Dir says where it was to be, unless there was no place: ErrNoDir. A topic
	// name that can not be one is ErrTopicName.
	Create(k Key, base int64, o segment.Options, avoid ...ID) (Segment, error)
	// Open returns a segment that exists; see segment.Open. A directory that is not known is ErrNotFound.
	Open(k Key, stub Stub, o segment.Options) (Segment, error)
	// Remove deletes one segment, however far it got before. It is durable with the next durable change in its directory.
	Remove(k Key, stub Stub) error
	// SaveCheckpoint makes data durable beside the segments in dir. generation grows by one from save to save: of two saves in a row
	// one is whole after a crash, however far the second got. A full disk does not refuse what is shorter than a block.
	SaveCheckpoint(k Key, dir ID, generation uint64, data []byte) error
	// FinishSwap puts a compacted segment in its place, durably, once a durable checkpoint names it. What a crash leaves of it Load
	// still finds, and FinishSwap completes. DropSwap forgets it; the segments stay.
	FinishSwap(w Swap) error
	DropSwap(w Swap) error
	// DeletePartition removes a partition with all that belongs to it, durably. A crash leaves, in each directory, all of it or
	// nothing. One that does not exist is no error.
	DeletePartition(k Key) error
	// Fail fences a directory after an error of its disk: Create does not use it. The first cause stays. Restore checks that it works
	// and takes it back; one that is not the directory that it was is ErrMissingDir, a path that is not known ErrNotFound.
	Fail(dir ID, cause error)
	Restore(path string) (ID, error)
	// Dirs reports on the directories, in the order in which they were given.
	Dirs() []DirStatus
	// Close lets the directories go. It may be called more than once.
	Close() error
}

var (
	// ErrNoDir says that no healthy directory is left. It can be tried again after Restore.
	ErrNoDir = errors.New("no healthy data directory")
	// ErrNotFound says that the partition or directory does not exist.
	ErrNotFound = errors.New("not found")
	// ErrMissingDir says that a directory that held data is not there.
	ErrMissingDir = errors.New("data directory is missing")
	// ErrTopicName says that a topic's name can not be a directory's name.
	ErrTopicName = errors.New("invalid topic name")
)

// CheckTopic refuses names that Kafka would refuse too.
func CheckTopic(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 249 {
		return fmt.Errorf("%w %q: it needs 1 to 249 characters and may not be . or .. itself", ErrTopicName, name)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("%w %q: only letters, digits, . _ and -", ErrTopicName, name)
		}
	}
	return nil
}
