//go:build clients

package clients

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// TestDumpLogSegments has Kafka's own tool read and verify the log, index and time index of every segment that the broker
// wrote, in every codec, and shows that the tool finds damage.
func TestDumpLogSegments(t *testing.T) {
	execute(t, filepath.Join(root, "test", "clients", "java"), nil, "mvn", "-q", "-B", "package")
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
			files := segmentFiles(t, suite.Dir(), "dump."+strings.ToLower(codec))
			dump := dumpLogSegments(t, files)
			if problems := dump.problems(); len(problems) > 0 {
				t.Errorf("Kafka's tool complains:\n%s", strings.Join(problems, "\n"))
			}
			if dump.records != rounds*len(lines) || dump.codecs[strings.ToLower(codec)] < dump.batches*9/10 {
				t.Errorf("Kafka's tool read %d records in %d batches of codecs %v, want %d records, nearly all in %s",
					dump.records, dump.batches, dump.codecs, rounds*len(lines), codec)
			}
			if len(files) < 6 || dump.indexEntries == 0 || dump.timeEntries == 0 {
				t.Errorf("%d files, %d index and %d time index entries: too few to prove anything", len(files), dump.indexEntries, dump.timeEntries)
			}
			t.Logf("%d files, %d batches, %d records, %d index and %d time index entries", len(files), dump.batches, dump.records, dump.indexEntries, dump.timeEntries)
		})
	}
	t.Run("damage is found", func(t *testing.T) {
		findsDamage(t, segmentFiles(t, suite.Dir(), "dump.none"))
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
		if problems := dumpLogSegments(t, copies).problems(); len(problems) == 0 {
			t.Errorf("a flipped bit in the %s went unnoticed: this test could not fail", extension)
		}
	}
}

// dump is what Kafka's tool printed.
type dump struct {
	text                      string
	failed                    error
	batches, records          int
	indexEntries, timeEntries int
	codecs                    map[string]int
}

var (
	batchLine = regexp.MustCompile(`(?m)^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*compresscodec: (\w+) .*isvalid: (true|false)`)
	indexLine = regexp.MustCompile(`(?m)^offset: \d+ position: \d+`)
	timeLine  = regexp.MustCompile(`(?m)^timestamp: \d+ offset: \d+`)
	// complaints are the tool's words for what does not fit. It ends with code 0 all the same.
	complaints = regexp.MustCompile(`(?im)^.*(mismatch|isvalid: false|out of order|corrupt|exception|could not|is followed by|not .*found|trailing).*$`)
)

// firstOffset is the tool's word about every segment but a partition's first: it counts from -1, not from the segment's base
// offset. Where the two numbers are the same, nothing is missing.
var firstOffset = regexp.MustCompile(`(?m)^Non-consecutive offsets in .*/0*(\d+)\.log\n +-1 is followed by (\d+)\n`)

func dumpLogSegments(t *testing.T, files []string) dump {
	t.Helper()
	classPath, err := os.ReadFile(filepath.Join(root, "test", "clients", "java", "target", "classpath"))
	if err != nil {
		t.Fatal(err)
	}
	tool := exec.CommandContext(t.Context(), "java", "-cp", strings.TrimSpace(string(classPath)),
		"org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", strings.Join(files, ","))
	out, err := tool.CombinedOutput()
	text := firstOffset.ReplaceAllStringFunc(string(out), func(complaint string) string {
		if m := firstOffset.FindStringSubmatch(complaint); m[1] == m[2] {
			return ""
		}
		return complaint
	})
	d := dump{text: text, failed: err, codecs: make(map[string]int)}
	for _, m := range batchLine.FindAllStringSubmatch(d.text, -1) {
		count, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		d.batches++
		d.records += count
		d.codecs[m[4]]++
	}
	d.indexEntries = len(indexLine.FindAllString(d.text, -1))
	d.timeEntries = len(timeLine.FindAllString(d.text, -1))
	return d
}

// problems are the lines in which the tool complains.
func (d dump) problems() []string {
	problems := complaints.FindAllString(d.text, -1)
	if d.failed != nil {
		problems = append(problems, d.failed.Error(), d.text)
	}
	return problems[:min(len(problems), 20)]
}

// segmentFiles are the files of a topic's segments, wherever the data directory keeps them.
func segmentFiles(t *testing.T, dir, topic string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, string(filepath.Separator)+topic+string(filepath.Separator)) {
			return err
		}
		switch filepath.Ext(path) {
		case ".log", ".index", ".timeindex":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no segments of topic %s below %s", topic, dir)
	}
	return files
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
