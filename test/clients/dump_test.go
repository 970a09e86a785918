//go:build clients

package clients

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// TestDumpLogSegments has Kafka's own tool read and verify the log, index and time index of every segment that the broker
// wrote, in every codec, and shows that the tool finds damage.
func TestDumpLogSegments(t *testing.T) {
	lines := testLines(t)
	suite := harness.Run(t, binary)
	codecs := []string{"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"}
	const rounds = 12
	for _, codec := range codecs {
		topic := "dump." + strings.ToLower(codec)
		post(t, suite.URL(harness.BrokerHTTP)+"/v1/topics", "application/json",
			fmt.Appendf(nil, `{"name":%q,"partitions":2,"config":{"segmentBytes":"1048576"}}`, topic))
		if err := suite.CreateChannel(t.Context(), httpClient, topic, fmt.Sprintf(`{"compression":{"codec":%q},"batch":{"maxMessages":20}}`, codec)); err != nil {
			t.Fatal(err)
		}
		body := append(bytes.Join(lines, []byte("\n")), '\n')
		for range rounds {
			post(t, suite.URL(harness.AgentHTTP)+"/v1/channels/"+topic+"/events", "application/x-ndjson", body)
		}
	}
	if err := suite.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			files := harness.SegmentFiles(t, suite.Dir(), "dump."+strings.ToLower(codec))
			dump := harness.DumpLogSegments(t, files)
			if len(dump.Problems) > 0 {
				t.Errorf("Kafka's tool complains:\n%s", strings.Join(dump.Problems, "\n"))
			}
			if dump.Records != rounds*len(lines) || dump.Codecs[strings.ToLower(codec)] < dump.Batches*9/10 {
				t.Errorf("Kafka's tool read %d records in %d batches of codecs %v, want %d records, nearly all in %s",
					dump.Records, dump.Batches, dump.Codecs, rounds*len(lines), codec)
			}
			if len(files) < 6 || dump.IndexEntries == 0 || dump.TimeEntries == 0 {
				t.Errorf("%d files, %d index and %d time index entries: too few to prove anything", len(files), dump.IndexEntries, dump.TimeEntries)
			}
			t.Logf("%d files, %d batches, %d records, %d index and %d time index entries", len(files), dump.Batches, dump.Records, dump.IndexEntries, dump.TimeEntries)
		})
	}
	t.Run("damage is found", func(t *testing.T) {
		findsDamage(t, harness.SegmentFiles(t, suite.Dir(), "dump.none"))
	})
}

// findsDamage flips a bit in a copy of the first segment's log, and in another of its index.
func findsDamage(t *testing.T, files []string) {
	for _, extension := range []string{".log", ".index"} {
		dir := t.TempDir()
		first := strings.TrimSuffix(files[0], filepath.Ext(files[0]))
		var copies []string
		for _, ext := range []string{".log", ".index", ".timeindex"} {
			text, err := os.ReadFile(first + ext)
			if err != nil {
				t.Fatal(err)
			}
			if ext == extension {
				text[len(text)/16*8+7] ^= 1 // inside a batch; the position of an index entry, which is 8 bytes
			}
			copies = append(copies, filepath.Join(dir, filepath.Base(first)+ext))
			if err := os.WriteFile(copies[len(copies)-1], text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if problems := harness.DumpLogSegments(t, copies).Problems; len(problems) == 0 {
			t.Errorf("a flipped bit in the %s went unnoticed: this test could not fail", extension)
		}
	}
}

func post(t *testing.T, target, contentType string, body []byte) {
	t.Helper()
	answer, err := harness.Call(t.Context(), httpClient, http.MethodPost, target, body, http.Header{"Content-Type": {contentType}})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Status != http.StatusOK {
		t.Fatalf("POST %s: status %d: %s", target, answer.Status, answer.Body)
	}
}
