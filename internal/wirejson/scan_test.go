package wirejson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/databus-suite/databus/internal/errs"
)

// edges are payloads that must come through byte for byte.
var edges = []string{
	`12345678901234567890`, `-9223372036854775808`, `18446744073709551615`, `0.1`, `1.0`, `1e400`, `-0`, `1E+2`, `0`, `-0.0e-0`,
	`123456789012345678901234567890.123456789`, `"plain"`, `"\u0000"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"😀 raw"`,
	`"\u00e9 vs é"`, `""`, `"\/ and /"`, `"tab\tnewline\n"`, `null`, `true`, `false`, `[]`, `{}`, `{"":1}`, `{"a":1,"a":2}`,
	`{"b":1,"a":2}`, `{ "spaced" :  1 }`, `[1, 2,3 ]`, "{\n\t\"a\" : [ ]\r\n}", `{"__proto__":{"x":1}}`, `[[[[[[[[1]]]]]]]]`,
	`"` + strings.Repeat("x", 70000) + `"`, "\"\u2028\u2029\x7f\"", `"</script>"`,
	strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
	strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
	strings.Repeat(`[{"a":`, 65) + "1" + strings.Repeat("}]", 65),
}

// broken are not JSON, with the place that must be named.
var broken = []struct {
	doc          string
	line, column int
	says         string
}{
	{``, 1, 1, "ends"}, {`  `, 1, 3, "ends"}, {`{`, 1, 2, "ends"}, {`[1,`, 1, 4, "ends"}, {`"abc`, 1, 5, "ends"}, {`"a\`, 1, 4, "ends"},
	{`"\u12`, 1, 6, "ends"}, {`tru`, 1, 4, "ends"}, {`-`, 1, 2, "ends"}, {`1.`, 1, 3, "ends"}, {`1e+`, 1, 4, "ends"}, {`{"a"`, 1, 5, "ends"},
	{`{"a":`, 1, 6, "ends"}, {`{"a":1`, 1, 7, "ends"}, {`[1`, 1, 3, "ends"}, {`{"a":1,`, 1, 8, "ends"},
	{`nul1`, 1, 1, "true, false or null"}, {`01`, 1, 2, "number"}, {`.5`, 1, 1, "expected a JSON value"}, {`1.x`, 1, 3, "number"},
	{`1ex`, 1, 3, "number"}, {`-x`, 1, 2, "number"}, {`+1`, 1, 1, "expected a JSON value"}, {`"\x"`, 1, 2, "escape"}, {`"\u12G4"`, 1, 2, "escape"},
	{"\"a\nb\"", 1, 3, "control"}, {"\"a\xff\"", 1, 3, "UTF-8"}, {"\"a\xed\xa0\x80\"", 1, 3, "UTF-8"}, {`{a:1}`, 1, 2, "double quotes"},
	{`{"a" 1}`, 1, 6, "colon"}, {`{"a":1 "b":2}`, 1, 8, "comma or }"}, {`[1 2]`, 1, 4, "comma or ]"}, {`[1,]`, 1, 4, "expected a JSON value"},
	{`{"a":1,}`, 1, 8, "double quotes"}, {`[1}`, 1, 3, "comma or ]"}, {`{"a":1]`, 1, 7, "comma or }"}, {`1 2`, 1, 3, "nothing more"},
	{"{\n  \"é\": 1,\n  \"b\": x\n}", 3, 8, "expected a JSON value"}, {"\"éé\" x", 1, 6, "nothing more"}, {`]`, 1, 1, "expected a JSON value"},
	{strings.Repeat("[", MaxDepth+1), 1, MaxDepth + 1, "deeper"}, {strings.Repeat(`{"a":`, MaxDepth+1), 1, 5*MaxDepth + 1, "deeper"},
	{"\xef\xbb\xbf{}", 1, 1, "expected a JSON value"}, {`{"a":1}}`, 1, 8, "nothing more"},
}

func TestValidJSON(t *testing.T) {
	t.Parallel()
	for _, doc := range edges {
		for _, around := range []string{"", " ", "\r\n\t"} {
			if err := ValidJSON([]byte(around + doc + around)); err != nil {
				t.Errorf("%.60q: %v", doc, err)
			}
		}
		if !isPayloadJSON([]byte(doc)) {
			t.Errorf("%.60q would not stand as value", doc)
		}
		if isPayloadJSON([]byte(doc+" ")) || isPayloadJSON([]byte(" "+doc)) {
			t.Errorf("%.60q with space around would stand as value", doc)
		}
	}
	for _, c := range broken {
		err := ValidJSON([]byte(c.doc))
		if err == nil {
			t.Errorf("%.60q passes", c.doc)
			continue
		}
		wantPlace(t, c.doc, err, c.line, c.column, c.says)
	}
}

func wantPlace(t *testing.T, doc string, err error, line, column int, says string) {
	t.Helper()
	e := errs.From(err)
	prefix := "line " + itoa(line) + ", column " + itoa(column) + ": "
	if e.Code != errs.Invalid || !strings.HasPrefix(e.Message, prefix) || !strings.Contains(e.Message, says) {
		t.Errorf("%.60q: got %v %q, want %q…%q", doc, e.Code, e.Message, prefix, says)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestValidJSONAtCountsInTheWholeDocument(t *testing.T) {
	t.Parallel()
	doc := "{\"a\":1}\n{\"b\":x}\n"
	if err := ValidJSONAt([]byte(doc), 0, 7); err != nil {
		t.Error(err)
	}
	wantPlace(t, doc, ValidJSONAt([]byte(doc), 8, 15), 2, 6, "expected a JSON value")
	wantPlace(t, doc, ValidJSONAt([]byte(doc), 8, 12), 2, 5, "ends")
}

func TestValidJSONDoesNotAllocate(t *testing.T) {
	doc := []byte(sample(10))
	if n := testing.AllocsPerRun(10, func() { _ = ValidJSON(doc) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzValidJSON(f *testing.F) {
	for _, doc := range edges {
		if len(doc) < 200 {
			f.Add([]byte(doc))
			f.Add([]byte(" " + doc + "\n"))
		}
	}
	for _, c := range broken {
		if len(c.doc) < 200 {
			f.Add([]byte(c.doc))
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		want := json.Valid(doc) && utf8.Valid(doc)
		if err := ValidJSON(doc); (err == nil) != want {
			t.Fatalf("%q: valid is %v, got %v", doc, want, err)
		}
	})
}

// sample is a document in the style of a webhook, n entries long.
func sample(n int) string {
	var b strings.Builder
	b.WriteString(`{"action":"opened","events":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"id":` + itoa(1000000+i) + `,"node_id":"MDU6SXNzdWU0NDQ1MDAwNDE=","number":1347,"state":"open","locked":false,` +
			`"title":"Spelling error in the README file","url":"https://api.example.com/repos/octocat/Hello-World/issues/1347",` +
			`"user":{"login":"octocat","id":1,"site_admin":false,"name":"Zoë Ångström"},"labels":[],"milestone":null,` +
			`"body":"It looks like you mistakenly spelled 'commit' with two 't's.\n\nRegards","score":0.75}`)
	}
	b.WriteString(`]}`)
	return b.String()
}

func BenchmarkValidJSON(b *testing.B) {
	doc := []byte(sample(20))
	b.Run("wirejson", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if ValidJSON(doc) != nil {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if !json.Valid(doc) {
				b.Fatal("not valid")
			}
		}
	})
}
