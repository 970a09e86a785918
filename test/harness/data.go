package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Line is one JSON value of a test data file, byte for byte.
type Line struct {
	File   string
	Number int // from 1
	Value  []byte
	Event  string // what kind of webhook it is; "" where it is none
}

// Lines reads the lines of a shared data file that are valid JSON. DATABUS_TEST_DATA names the folder; without it the
// folder is shared/data beside the repository. A file that is not there is fs.ErrNotExist.
func Lines(file string) ([]Line, error) {
	folder := os.Getenv("DATABUS_TEST_DATA")
	if folder == "" {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		folder = filepath.Join(filepath.Dir(root), "shared", "data")
	}
	text, err := os.ReadFile(filepath.Join(folder, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (set DATABUS_TEST_DATA to the folder of %s)", err, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read test data: %w", err)
	}
	return parseLines(file, text), nil
}

func parseLines(file string, text []byte) (lines []Line) {
	number := 0
	for value := range bytes.SplitSeq(text, []byte("\n")) {
		number++
		value = bytes.TrimSpace(value)
		if !json.Valid(value) {
			continue
		}
		var webhook struct{ Event string }
		_ = json.Unmarshal(value, &webhook) // most edge cases are no objects, and no webhooks
		lines = append(lines, Line{File: file, Number: number, Value: value, Event: webhook.Event})
	}
	return lines
}
