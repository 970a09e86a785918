package source

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/keypath"
)

// all reads a source to its end and writes each message as place, key and value.
func all(s *Source) (list []string, err error) {
	for {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, fmt.Sprintf("%s %s %s", m.Where(), show(m.GetKey()), show(m.GetValue())))
	}
}

func show(b []byte) string {
	if b == nil {
		return "-"
	}
	return fmt.Sprintf("%q", b)
}

func path(t testing.TB, query string) *keypath.Path {
	t.Helper()
	p, err := keypath.Compile(query)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		in      string
		options Options
		want    []string
	}{
		{"nothing", "", Options{}, nil},
		{"lines", "a\n\nb c \r\nlast", Options{}, []string{`in:1 - "a"`, `in:3 - "b c "`, `in:4 - "last"`}},
		{"one key", "a\n", Options{Key: []byte("k")}, []string{`in:1 "k" "a"`}},
		{"an empty key", "a\n", Options{Key: []byte{}}, []string{`in:1 "" "a"`}},
		{"key separator", "k:a:b\n:x\n", Options{KeySeparator: ":"}, []string{`in:1 "k" "a:b"`, `in:2 "" "x"`}},
		{"key path", `{"u":{"id":7}}` + "\n" + `{"u":1}` + "\n", Options{Format: NDJSON, KeyPath: path(t, "$.u.id")}, []string{`in:1 "7" "{\"u\":{\"id\":7}}"`, `in:2 - "{\"u\":1}"`}},
		{"ndjson keeps bytes", "{ \"a\" : 1.0 }\n12345678901234567890\n", Options{Format: NDJSON}, []string{`in:1 - "{ \"a\" : 1.0 }"`, `in:2 - "12345678901234567890"`}},
		{"raw", "two\nlines\n\n", Options{Format: Raw}, []string{`in - "two\nlines\n\n"`}},
		{"raw and empty", "", Options{Format: Raw}, []string{`in - ""`}},
		{"envelope", `{"key":"k","value":{"a":1.0}}` + "\n" + `{"key":"t"}` + "\n" + `{"valueBase64":""}` + "\n", Options{Format: Envelope},
			[]string{`in:1 "k" "{\"a\":1.0}"`, `in:2 "t" -`, `in:3 - ""`}},
		{"envelope with key path", `{"value":{"id":"x"}}` + "\n" + `{"key":"own","value":{"id":"x"}}`, Options{Format: Envelope, KeyPath: path(t, "$.id")},
			[]string{`in:1 "x" "{\"id\":\"x\"}"`, `in:2 "own" "{\"id\":\"x\"}"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, in := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := all(New("in", in, tt.options))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		in      string
		options Options
		says    string
	}{
		{"malformed", "{}\n\n{\"a\":}\n", Options{Format: NDJSON}, "in:3: column 6"},
		{"no separator", "a:b\nc\n", Options{KeySeparator: ":"}, "in:2: the line has no"},
		{"key path into no JSON", "text\n", Options{KeyPath: path(t, "$.a")}, "in:1: take the key by $.a: column 1"},
		{"envelope's field", "{}\n", Options{Format: Envelope}, "in:1: a message without a value"},
		{"envelope's unknown field", `{"value":1,"headrs":{}}`, Options{Format: Envelope}, "in:1: column 12: headrs"},
		{"envelope that closes the list", `{"value":1}]} `, Options{Format: Envelope}, "in:1: column 12"},
		{"two envelopes on a line", `{"value":1},{"value":2}`, Options{Format: Envelope}, "in:1: column 12"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := all(New("in", strings.NewReader(tt.in), tt.options))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %q in it", err, tt.says)
			}
			if errs.CodeOf(err) != errs.Invalid {
				t.Errorf("code %s, want INVALID", errs.CodeOf(err))
			}
		})
	}
}

// TestMessagesOutliveTheirLine reads on and looks at what was returned before.
func TestMessagesOutliveTheirLine(t *testing.T) {
	t.Parallel()
	s := New("in", strings.NewReader(`{"key":"first","value":"\u0061","headers":{"h":"one"}}`+"\n"+`{"key":"other","value":"b","headers":{"h":"two"}}`), Options{Format: Envelope})
	first, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if string(first.GetKey()) != "first" || string(first.GetValue()) != `"\u0061"` || string(first.GetHeaders()[0].GetValue()) != "one" || first.GetHeaders()[0].GetKey() != "h" {
		t.Errorf("the next line changed the message: %v", first.Message)
	}
}

func TestHeadersOfTheCommand(t *testing.T) {
	t.Parallel()
	given := []*databusv1.Header{{Key: "databus-lane", Value: []byte("a")}}
	s := New("in", strings.NewReader(`{"value":1,"headers":{"h":"x"}}`+"\n"+`{"value":2}`), Options{Format: Envelope, Headers: given})
	for _, want := range []int{2, 1} {
		m, err := s.Next()
		if err != nil || len(m.GetHeaders()) != want {
			t.Fatalf("got %v and %v, want %d headers", m.GetHeaders(), err, want)
		}
	}
}

func TestReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk gone")
	for _, format := range []Format{Lines, Raw} {
		_, err := all(New("in", iotest.ErrReader(broken), Options{Format: format}))
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "in") {
			t.Errorf("got %v, want the cause and the name", err)
		}
	}
}

// FuzzEnvelope holds every accepted line to one message.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{`{"value":1}`, `{"key":"k"}`, `{"value":1}]}`, `{"value":1},{"value":2}`, `{"headers":{"a":"b"},"value":null}`, "", "{", `"x"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s := New("in", strings.NewReader(line), Options{Format: Envelope})
		got, err := all(s)
		if err == nil && len(got) > 1+strings.Count(line, "\n") {
			t.Fatalf("%q became %d messages", line, len(got))
		}
	})
}
