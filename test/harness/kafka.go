package harness

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Dump is what Kafka's DumpLogSegments found in segments' files.
type Dump struct {
	Batches, Records          int
	IndexEntries, TimeEntries int
	Indexes, Sane             int            // their files, and those that passed its sanity check or are empty
	Codecs                    map[string]int // batches by codec
	Problems                  []string       // the lines in which it complains, 20 at most
}

var (
	batchLine = regexp.MustCompile(`(?m)^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*compresscodec: (\w+) .*isvalid: (true|false)`)
	indexLine = regexp.MustCompile(`(?m)^offset: \d+ position: \d+`)
	timeLine  = regexp.MustCompile(`(?m)^timestamp: \d+ offset: \d+`)
	saneLine  = regexp.MustCompile(`(?m)(passed sanity check| is empty)\.?$`)
	// complaints are the tool's words for what does not fit. It ends with code 0 all the same.
	complaints = regexp.MustCompile(`(?im)^.*(mismatch|isvalid: false|out of order|corrupt|exception|could not|is followed by|not .*found|trailing).*$`)
)

// firstOffset is the tool's word about every segment but a partition's first: it counts from -1, not from the segment's base
// offset. Where the two numbers are the same, nothing is missing.
var firstOffset = regexp.MustCompile(`(?m)^Non-consecutive offsets in .*/0*(\d+)\.log\n +-1 is followed by (\d+)\n`)

// maxFilesArg is how long one argument of a process may be, with room to spare.
const maxFilesArg = 100_000

// Gap is in the complaint about offsets that do not follow one another, as in a compacted topic.
const Gap = "is followed by"

// DumpLogSegments has Kafka's own tool read and verify files of segments: batches to their records, index entries against the log,
// and each index by itself. It needs Java and Maven, which fetches the tool.
func DumpLogSegments(t testing.TB, files []string) Dump {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	classPath := filepath.Join(root, "test", "clients", "java", "target", "classpath")
	if _, err := os.Stat(classPath); err != nil {
		build := exec.CommandContext(t.Context(), "mvn", "-q", "-B", "package")
		build.Dir = filepath.Dir(filepath.Dir(classPath))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("fetch Kafka's tools: %v\n%s", err, out)
		}
	}
	path, err := os.ReadFile(classPath)
	if err != nil {
		t.Fatal(err)
	}
	d := Dump{Codecs: make(map[string]int)}
	for len(files) > 0 {
		n := maxFilesArg / (len(files[0]) + len("/99999/00000000000000000000.timeindex,"))
		part := files[:min(n, len(files))]
		files = files[len(part):]
		d.run(t, strings.TrimSpace(string(path)), part, "--deep-iteration")
		d.run(t, strings.TrimSpace(string(path)), part, "--index-sanity-check")
	}
	d.Problems = d.Problems[:min(len(d.Problems), 20)]
	return d
}

func (d *Dump) run(t testing.TB, classPath string, files []string, mode string) {
	t.Helper()
	sanity := mode == "--index-sanity-check"
	if sanity {
		if files = indexes(files); len(files) == 0 {
			return
		}
		d.Indexes += len(files)
	}
	tool := exec.CommandContext(t.Context(), "java", "-cp", classPath, "org.apache.kafka.tools.DumpLogSegments", mode, "--files", strings.Join(files, ","))
	out, err := tool.CombinedOutput()
	text := firstOffset.ReplaceAllStringFunc(string(out), func(complaint string) string {
		if m := firstOffset.FindStringSubmatch(complaint); m[1] == m[2] {
			return ""
		}
		return complaint
	})
	d.Problems = append(d.Problems, complaints.FindAllString(text, -1)...)
	if err != nil {
		d.Problems = append(d.Problems, fmt.Sprintf("%v: %.2000s", err, text))
	}
	for _, m := range batchLine.FindAllStringSubmatch(text, -1) {
		count, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		d.Batches++
		d.Records += count
		d.Codecs[m[4]]++
	}
	d.IndexEntries += len(indexLine.FindAllString(text, -1))
	d.TimeEntries += len(timeLine.FindAllString(text, -1))
	if sanity {
		d.Sane += len(saneLine.FindAllString(text, -1))
	}
}

func indexes(files []string) (list []string) {
	for _, file := range files {
		if filepath.Ext(file) != ".log" {
			list = append(list, file)
		}
	}
	return list
}

// SegmentFiles are the files of a topic's segments, wherever the data directory keeps them.
func SegmentFiles(t testing.TB, dir, topic string) (files []string) {
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
