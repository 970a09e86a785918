// Package corpus gives the JSON bodies that the benchmarks send.
package corpus

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Small gives JSON events of about want bytes. They come from the webhook
// corpus beside the repository where it is there: whole objects of the
// payloads (repository, sender, pull_request …) between half and one and a half
// times the size. Otherwise they are made up, and the name says so.
func Small(root string, want int) (events [][]byte, name string, err error) {
	f, err := os.Open(filepath.Join(root, "..", "shared", "data", "github-webhooks.jsonl"))
	if err != nil {
		return synthetic(want), "synthetic", nil
	}
	defer func() { _ = f.Close() }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var line struct {
			Payload map[string]json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			return nil, "", fmt.Errorf("corpus: %w", err)
		}
		for _, v := range line.Payload {
			if v[0] == '{' && len(v) > want/2 && len(v) < want*3/2 {
				events = append(events, bytes.Clone(v))
			}
		}
	}
	if len(events) == 0 {
		return synthetic(want), "synthetic", nil
	}
	return events, "webhooks", sc.Err()
}

func synthetic(want int) [][]byte {
	events := make([][]byte, 256)
	for i := range events {
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"id":%d,"user":{"id":"u%d","name":"person %d"},"items":[`, i*7919, i%97, i%97)
		for n := 0; b.Len() < want-20; n++ {
			if n > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"sku":"s-%d","count":%d}`, (i*31+n)%1000, n)
		}
		b.WriteString(`]}`)
		events[i] = b.Bytes()
	}
	return events
}
