package keypath

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		query string
		pos   int
		part  string
	}{
		{"", 0, "starts with $"},
		{"user.id", 0, "starts with $"},
		{" $.a", 0, "starts with $"},
		{"$.a ", 3, "white space"},
		{"$.", 2, "name must follow"},
		{"$..a", 2, "more than one"},
		{"$.*", 2, "more than one"},
		{"$[*]", 2, "more than one"},
		{"$[?@.a]", 2, "more than one"},
		{"$[1:2]", 3, "more than one"},
		{"$['a','b']", 5, "more than one"},
		{"$. a", 2, "cannot start"},
		{"$.1a", 2, "cannot start"},
		{"$.a-b", 3, "expected . or ["},
		{"$a", 1, "expected . or ["},
		{"$[", 2, "not closed"},
		{"$['a'", 5, "not closed"},
		{"$['a", 2, "quote is not closed"},
		{"$[01]", 2, "leading zero"},
		{"$[-0]", 2, "leading zero"},
		{"$[-]", 3, "digits must follow"},
		{"$[9007199254740992]", 2, "2^53"},
		{"$[a]", 2, "expected a quoted name"},
		{`$['\q']`, 3, "unknown escape"},
		{`$['\"']`, 3, "unknown escape"},
		{`$['\ud800']`, 3, "lone surrogate"},
		{`$['\u12g4']`, 3, "four hexadecimal"},
		{"$['a\nb']", 4, "control character"},
		{"$['a\xff']", 0, "UTF-8"},
		{"$" + strings.Repeat(".a", maxSegments+1), 1 + 2*maxSegments, "more than 64"},
	} {
		_, err := Compile(tc.query)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Compile(%q) = %v, want a *SyntaxError", tc.query, err)
			continue
		}
		if syntax.Pos != tc.pos || !strings.Contains(syntax.Problem, tc.part) {
			t.Errorf("Compile(%q) = %d %q, want %d %q", tc.query, syntax.Pos, syntax.Problem, tc.pos, tc.part)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ query, doc, key string }{
		{"$", ` 12 `, "12"},
		{"$", `"x"`, "x"},
		{"$.user.id", `{"user":{"id":"u1","n":2}}`, "u1"},
		{"$.user.id", `{ "user" : { "n":2 , "id" : 12345678901234567890 } }`, "12345678901234567890"},
		{"$['user']['id']", `{"user":{"id":1.0}}`, "1.0"},
		{`$["a\"b"]`, `{"a\"b":"x"}`, "x"},
		{`$['a\'b']`, `{"a'b":"x"}`, "x"},
		{`$['\ud83d\ude00']`, `{"😀":1}`, "1"},
		{`$['😀']`, `{"\uD83D\uDE00":1}`, "1"},
		{"$.ключ", `{"ключ":true}`, "true"},
		{"$.a", `{"\u0061":"x"}`, "x"},
		{"$.a", `{"a":1,"b":2,"a":3}`, "3"},
		{"$ .a [ 1 ]", `{"a":[0,"x"]}`, "x"},
		{"$[0]", `["x","y"]`, "x"},
		{"$[-1]", `["x","y"]`, "y"},
		{"$[1].a", `[{"a":1},{"a":{"b":[1, 2]}}]`, `{"b":[1, 2]}`},
		{"$.a", `{"b":"}]\"\\","a":"ok"}`, "ok"},
		{"$.a", `{"a":"line\nbreak \u00e9 \ud83d\ude00"}`, "line\nbreak é 😀"},
		{"$.a", `{"a":"\ud800x"}`, "\uFFFDx"},
		{"$.a", `{"a":""}`, ""},
		{"$['']", `{"":"empty"}`, "empty"},
	} {
		p, err := Compile(tc.query)
		if err != nil {
			t.Errorf("Compile(%q): %v", tc.query, err)
			continue
		}
		key, ok := p.Key([]byte(tc.doc))
		if !ok || string(key) != tc.key {
			t.Errorf("Key(%q, %s) = %q %v, want %q", tc.query, tc.doc, key, ok, tc.key)
		}
	}
}

func TestKeyOfNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ query, doc string }{
		{"$.a", `{}`},
		{"$.a", `{"a":null}`},
		{"$.a.b", `{"a":{"b":1},"a":2}`},
		{"$.a", `[1]`},
		{"$[0]", `{"0":1}`},
		{"$[0]", `[]`},
		{"$[2]", `[1,2]`},
		{"$[-3]", `[1,2]`},
		{"$['\uFFFD']", `{"\ud800":1}`},
		{"$", ``},
		{"$.a", `{"a"`},
		{"$.a", `{"a":"x`},
		{"$.a", `{"a":`},
		{"$.a", `{"a":[1,{`},
	} {
		p, err := Compile(tc.query)
		if err != nil {
			t.Fatalf("Compile(%q): %v", tc.query, err)
		}
		if key, ok := p.Key([]byte(tc.doc)); ok {
			t.Errorf("Key(%q, %s) = %q, want none", tc.query, tc.doc, key)
		}
	}
}

func TestKeyDoesNotAllocate(t *testing.T) {
	p, err := Compile("$.user.id")
	if err != nil {
		t.Fatal(err)
	}
	doc := []byte(`{"pad":[1,2,{"x":"y"}],"user":{"id":"u1"}}`)
	if n := testing.AllocsPerRun(100, func() { p.Key(doc) }); n != 0 {
		t.Errorf("Key allocates %v times", n)
	}
}

// FuzzFind holds the evaluator against encoding/json, which builds the tree that we do not.
func FuzzFind(f *testing.F) {
	f.Add("$.a", `{"a":1,"a":[2,"\u0061"]}`)
	f.Add("$['a'][-1].b", `{"a":[{"b":"x\\\""}]}`)
	f.Add(`$["\ud83d\ude00"]`, `{"😀":{"":null}}`)
	f.Add("$[0][1]", `[[1e400,-0.0],{}]`)
	f.Fuzz(func(t *testing.T, query, doc string) {
		p, err := Compile(query)
		if err != nil {
			return
		}
		got, ok := p.Find([]byte(doc))
		_, _ = p.Key([]byte(doc))
		// encoding/json turns what is no character into U+FFFD, which a query may name; we hold it as equal to nothing.
		if !json.Valid([]byte(doc)) || !utf8.ValidString(doc) || strings.Contains(query+doc, "\uFFFD") || strings.Contains(doc, `\u`) {
			return
		}
		want, wantOK := findInTree(t, p, doc)
		if ok != wantOK {
			t.Fatalf("Find(%q, %q) = %q %v, tree says %v", query, doc, got, ok, wantOK)
		}
		if !ok {
			return
		}
		a, _ := json.Marshal(decode(t, string(got)))
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Fatalf("Find(%q, %q) = %s, tree says %s", query, doc, a, b)
		}
	})
}

func decode(t *testing.T, doc string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %q: %v", doc, err)
	}
	return v
}

func findInTree(t *testing.T, p *Path, doc string) (any, bool) {
	t.Helper()
	v := decode(t, doc)
	for _, s := range p.segments {
		if s.byIndex {
			list, _ := v.([]any)
			i := s.index
			if i < 0 {
				i += int64(len(list))
			}
			if i < 0 || i >= int64(len(list)) {
				return nil, false
			}
			v = list[i]
			continue
		}
		object, _ := v.(map[string]any)
		next, ok := object[s.name]
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

func BenchmarkKey(b *testing.B) {
	p, err := Compile("$.user.id")
	if err != nil {
		b.Fatal(err)
	}
	doc := []byte(`{"pad":"` + strings.Repeat("x", 900) + `","list":[1,2,3,{"a":"b"}],"user":{"name":"n","id":"u-12345"}}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := p.Key(doc); !ok {
			b.Fatal("no key")
		}
	}
}
