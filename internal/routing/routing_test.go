package routing

import (
	"errors"
	"iter"
	"strings"
	"testing"
)

func compiler(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func headers(pairs ...string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(pairs[i], []byte(pairs[i+1])) {
				return
			}
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	c := compiler(t)
	for _, tc := range []struct {
		rule string
		m    Message
		want bool
	}{
		{"", Message{}, true},
		{"true", Message{}, true},
		{"key == 'a'", Message{Key: []byte("a")}, true},
		{"key == ''", Message{}, true},
		{"lane != '' && channel == 'orders'", Message{Lane: "t1", Channel: "orders"}, true},
		{"headers['region'] == 'eu'", Message{Headers: headers("region", "us", "region", "eu")}, true},
		{"'region' in headers", Message{}, false},
		{"headers['region'] == 'eu'", Message{}, false},
		{"json.total > 100", Message{JSON: []byte(`{"total":100.5}`)}, true},
		{"json.total > 100", Message{JSON: []byte(`{"total":101}`)}, true},
		{"json.total > 100.5", Message{JSON: []byte(`{"total":101}`)}, true},
		{"json.total > 100", Message{JSON: []byte(`{"total":"101"}`)}, false},
		{"json.total > 100", Message{JSON: []byte(`not json`)}, false},
		{"json.total > 100", Message{}, false},
		{"json == null", Message{JSON: []byte(`{} {}`)}, true},
		{"json.n == 9223372036854775807", Message{JSON: []byte(`{"n":9223372036854775807}`)}, true},
		{"json.n > 0", Message{JSON: []byte(`{"n":1e400}`)}, true},
		{"has(json.user) && json.user.tier == 'gold'", Message{JSON: []byte(`{"user":{"tier":"gold"}}`)}, true},
		{"json.items.exists(i, i.sku.startsWith('x'))", Message{JSON: []byte(`{"items":[{"sku":"a"},{"sku":"xb"}]}`)}, true},
		{"json.a == 2", Message{JSON: []byte(`{"a":1,"a":2}`)}, true},
		{"key.matches('^[a-z]+$')", Message{Key: []byte("abc")}, true},
		{"key == '\uFFFD'", Message{Key: []byte{0xff}}, true},
	} {
		rule, err := c.Compile(tc.rule)
		if err != nil {
			t.Errorf("Compile(%q): %v", tc.rule, err)
			continue
		}
		if got, err := rule.Match(&tc.m); got != tc.want {
			t.Errorf("%q matched %v (%v), want %v", tc.rule, got, err, tc.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	c := compiler(t)
	for _, tc := range []struct {
		rule string
		line int
		part string
	}{
		{"key ==", 1, "Syntax error"},
		{"true &&\n nosuch == 1", 2, "undeclared reference"},
		{"key", 0, "must be a bool"},
		{"json.vip", 0, "must be a bool"},
		{"key > 1", 1, "no matching overload"},
		{"key.matches('(')", 1, "invalid matches argument"},
		{strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), 0, "recursion"},
		{"key == '" + strings.Repeat("x", MaxExpressionBytes) + "'", 0, "at most 4096"},
		{"json.all(a, a.all(b, b.all(c, c == 1)))", 1, "comprehension"},
	} {
		_, err := c.Compile(tc.rule)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Compile(%.40q) = %v, want a *SyntaxError", tc.rule, err)
			continue
		}
		if !strings.Contains(syntax.Problem, tc.part) || tc.line > 0 && syntax.Line != tc.line {
			t.Errorf("Compile(%.40q) = %v, want line %d, %q", tc.rule, syntax, tc.line, tc.part)
		}
	}
}

func TestCostIsBounded(t *testing.T) {
	t.Parallel()
	rule, err := compiler(t).Compile("json.all(a, json.all(b, a + b >= 0))")
	if err != nil {
		t.Fatal(err)
	}
	m := Message{JSON: []byte("[" + strings.Repeat("1,", 5000) + "1]")}
	if ok, err := rule.Match(&m); ok || err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("Match = %v %v, want the cost limit", ok, err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	c := compiler(t)
	table, err := c.Table([]Route{{"gold", "json.tier == 'gold'"}, {"eu", "headers['region'] == 'eu'"}, {"rest", ""}})
	if err != nil {
		t.Fatal(err)
	}
	if !table.NeedsJSON() || !table.NeedsHeaders() {
		t.Error("the table looks at the payload and the headers")
	}
	if _, ok := table.Fixed(); ok {
		t.Error("the table is not fixed")
	}
	for _, tc := range []struct {
		m      Message
		topic  string
		failed bool
	}{
		{Message{JSON: []byte(`{"tier":"gold"}`)}, "gold", false},
		{Message{JSON: []byte(`{}`), Headers: headers("region", "eu")}, "eu", true},
		{Message{JSON: []byte(`{"tier":"x"}`), Headers: headers("region", "us")}, "rest", false},
	} {
		topic, ok, failed := table.Pick(&tc.m)
		if topic != tc.topic || !ok || (failed != nil) != tc.failed {
			t.Errorf("Pick = %q %v %v, want %q", topic, ok, failed, tc.topic)
		}
	}
	none, err := c.Table([]Route{{"eu", "key == 'eu'"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := none.Pick(&Message{}); ok {
		t.Error("no route matches")
	}
	one, err := c.Table([]Route{{"orders", ""}})
	if err != nil {
		t.Fatal(err)
	}
	if topic, ok := one.Fixed(); !ok || topic != "orders" {
		t.Errorf("Fixed = %q %v", topic, ok)
	}
	_, err = c.Table([]Route{{"a", "true"}, {"b", "key"}})
	var bad *RouteError
	if !errors.As(err, &bad) || bad.Index != 1 {
		t.Errorf("Table = %v, want routes[1]", err)
	}
}

func FuzzCompile(f *testing.F) {
	c := compiler(f)
	for _, seed := range []string{"key == 'a'", "json.items.exists(i, i.n > 1.5)", "headers.all(h, h != '')", "{'a': [1, 2u]}['a'][0] == 1", "timestamp('2020-01-01T00:00:00Z') < timestamp(key)"} {
		f.Add(seed, `{"items":[{"n":2}],"s":"x"}`)
	}
	f.Fuzz(func(t *testing.T, expr, payload string) {
		rule, err := c.Compile(expr)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("Compile(%q) = %T", expr, err)
			}
			return
		}
		_, _ = rule.Match(&Message{Key: []byte(payload), JSON: []byte(payload), Headers: headers("a", payload)})
	})
}

func BenchmarkPick(b *testing.B) {
	table, err := compiler(b).Table([]Route{{"gold", "headers['tier'] == 'gold'"}, {"eu", "key.startsWith('eu-')"}, {"rest", ""}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m := Message{Headers: headers("tier", "silver", "a", "b"), Key: []byte("us-1")}
		if _, ok, _ := table.Pick(&m); !ok {
			b.Fatal("no route")
		}
	}
}
