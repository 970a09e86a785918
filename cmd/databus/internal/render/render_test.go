package render

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with testdata/name, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); `go test -update` writes it anew:\n%s", path, diff)
	}
}

// messages are one of each kind that a topic may hold.
func messages() []Message {
	at := func(ms int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(1_700_000_000_000 + ms)) }
	header := func(k, v string) *databusv1.Header { return &databusv1.Header{Key: k, Value: []byte(v)} }
	list := []*databusv1.StoredMessage{
		{Offset: 0, Timestamp: at(1), Key: []byte("u1"), Value: []byte(`{"user":{"id":"u1"},"n":12345678901234567890,"price":1.0}`)},
		{Offset: 1, Timestamp: at(2), Value: []byte("plain text"), Headers: []*databusv1.Header{header("source", "shop"), header("lane", "a")}},
		{Offset: 2, Timestamp: at(3), Key: []byte("u1")}, // a tombstone
		{Offset: 3, Timestamp: at(4), Key: []byte{0xff, 0x00}, Value: []byte{0xfe, 0x01}},
		{Offset: 4, Timestamp: at(5), Key: []byte{}, Value: []byte{}},
		{Offset: 5, Timestamp: at(6), Key: []byte("two\nlines"), Value: []byte("{\n\t\"a\": 1\n}")},
		{Offset: 6, Timestamp: at(7), Key: []byte("esc"), Value: []byte("\x1b[31mred\x1b[0m")},
		{Offset: 7, Timestamp: at(8), Key: []byte("c1"), Value: []byte("{\"csi\":\"\u009b31m\"}")},
		{Offset: 8, Timestamp: at(9), Key: []byte("a key that is longer than its column"), Value: []byte(`"` + strings.Repeat("long ", 30) + `"`)},
	}
	var out []Message
	for i, m := range list {
		out = append(out, Message{Topic: "orders", Partition: int32(i % 2), StoredMessage: m})
	}
	return out
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file     string
		format   MessageFormat
		template string
		screen   Screen
	}{
		{"messages.table", MessageFormat(Table), "", Screen{}},
		{"messages.table-100", MessageFormat(Table), "", Screen{Width: 100}},
		{"messages.pretty", Pretty, "", Screen{}},
		{"messages.pretty-color", Pretty, "", Screen{Color: true, Width: 80}},
		{"messages.json", MessageFormat(JSON), "", Screen{}},
		{"messages.yaml", MessageFormat(YAML), "", Screen{}},
		{"messages.value", Value, "", Screen{}},
		{"messages.envelope", Envelope, "", Screen{}},
		{"messages.template", "", `%t/%p@%o %T %K:%k %V:%v [%h] 100%%\t\\\n`, Screen{}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			m, err := NewMessages(&out, tt.format, tt.template, tt.screen)
			if err != nil {
				t.Fatal(err)
			}
			for _, msg := range messages() {
				if err := m.Write(msg); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Flush(); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.file, out.Bytes())
		})
	}
}

func TestTemplateRefuses(t *testing.T) {
	t.Parallel()
	for _, template := range []string{"%", "%x", `\`, `\q`, "a%"} {
		if _, err := NewMessages(&bytes.Buffer{}, "", template, Screen{}); err == nil {
			t.Errorf("%q was accepted", template)
		}
	}
}

func TestPrinter(t *testing.T) {
	t.Parallel()
	documents := [][]byte{[]byte(`{"name":"a","partitions":4,"id":"12345678901234567890"}`), []byte(`{ "name": "b" }`)}
	rows := Rows{Header: []string{"TOPIC", "PARTITIONS", "NOTE"}, Right: []string{"PARTITIONS"}, Empty: "there are no topics"}
	rows.Add("a", "4", "short")
	rows.Add("much-longer", "12", "a note that is long enough to be wrapped on a narrow terminal, but only there")
	for _, tt := range []struct {
		file   string
		format Format
		screen Screen
	}{
		{"printer.table", Table, Screen{}},
		{"printer.table-60", Table, Screen{Width: 60, Color: true}},
		{"printer.json", JSON, Screen{}},
		{"printer.yaml", YAML, Screen{}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := NewPrinter(&out, tt.format, tt.screen).Print(documents, rows); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.file, out.Bytes())
		})
	}
	var out bytes.Buffer
	if err := NewPrinter(&out, Table, Screen{}).Print(nil, Rows{Empty: "there are no topics"}); err != nil || out.String() != "there are no topics\n" {
		t.Errorf("an empty table is %q, %v", out.String(), err)
	}
}

func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1024), "1.0 KiB"}, {Bytes(1536 << 20), "1.5 GiB"}, {Bytes(1 << 62), "4.0 EiB"},
		{Count(0), "0"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(-1234567), "-1,234,567"},
		{Plural(1, "message"), "1 message"}, {Plural(0, "message"), "0 messages"}, {Plural(1500, "message"), "1,500 messages"},
		{Span(5 * time.Millisecond), "5ms"}, {Span(90 * time.Minute), "1h30m"}, {Span(168 * time.Hour), "7d"}, {Span(time.Hour), "1h"},
		{Span(0), "0s"}, {Span(10 * time.Minute), "10m"}, {Span(25 * time.Hour), "25h"},
		{Time(time.Time{}), "-"}, {Time(time.Unix(0, 0)), "-"}, {Time(time.Unix(1_700_000_000, 5)), "2023-11-14T22:13:20Z"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
