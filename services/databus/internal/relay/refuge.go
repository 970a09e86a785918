package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// refugeBytes bounds the refuge; what no longer fits is dropped.
const refugeBytes = 256 << 20

// refuge keeps what the broker refused for good: a producer was told that it is safe, so somebody should be able to look at it. A
// file a partition, `<topic>-<partition>.batches`, holds record batches one after the other, as a segment does. Its methods may run
// concurrently.
type refuge struct {
	dir string

	mu   sync.Mutex
	size int64 // -1: not known yet
}

// keep appends a batch to its partition's file.
func (r *refuge) keep(topic string, partition int32, batch []byte) (name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return "", fmt.Errorf("keep a refused batch: %w", err)
	}
	if r.size < 0 {
		if r.size, err = sizeOf(r.dir); err != nil {
			return "", fmt.Errorf("keep a refused batch: %w", err)
		}
	}
	if r.size+int64(len(batch)) > refugeBytes {
		return "", fmt.Errorf("keep a refused batch: %s holds %d bytes, which is as much as it may; move its files away", r.dir, r.size)
	}
	name = filepath.Join(r.dir, fmt.Sprintf("%s-%d.batches", topic, partition))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return "", fmt.Errorf("keep a refused batch: %w", err)
	}
	_, err = f.Write(batch)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", fmt.Errorf("keep a refused batch: %w", err)
	}
	r.size += int64(len(batch))
	return name, nil
}

func sizeOf(dir string) (n int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		n += info.Size()
	}
	return n, nil
}
