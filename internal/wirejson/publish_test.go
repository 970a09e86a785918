package wirejson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

func TestDecodePublish(t *testing.T) {
	t.Parallel()
	body := "{\"messages\": [\n" +
		`{"key":"k1","value": { "a" :  1 } ,"headers":{"b":"2","a":"1","é":""},"id":"i\u0031","timestamp":"2026-01-02T03:04:05.678Z","partition":3},
		{"keyBase64":"/wA","valueBase64":"aGk=","timestamp":1700000000000},
		{"key_base64":"_w==","value_base64":"","timestamp":"1700000000001","header_list":[{"key":"a","value":"1"},{"key":"a","valueBase64":"/w=="},{"key":"n"}]},
		{"key":"","value":null},
		{"key":"gone"},
		{"key":null,"value":"x","headers":null,"id":null,"timestamp":null,"partition":null},
		{"key":"\ud83d\ude00\n","value":1e400,"partition":"7"}
	],"channel":"orders"}`
	var got Batch
	if err := DecodePublish([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := []Message{
		{Key: []byte("k1"), Value: []byte(`{ "a" :  1 }`), Headers: []Header{{Key: "b", Value: []byte("2")}, {Key: "a", Value: []byte("1")}, {Key: "é", Value: []byte{}}},
			ID: "i1", TimestampMillis: 1767323045678, HasTimestamp: true, Partition: 3, HasPartition: true},
		{Key: []byte{0xff, 0}, Value: []byte("hi"), TimestampMillis: 1700000000000, HasTimestamp: true},
		{Key: []byte{0xff}, Value: []byte{}, TimestampMillis: 1700000000001, HasTimestamp: true,
			Headers: []Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{0xff}}, {Key: "n"}}},
		{Key: []byte{}, Value: []byte("null")},
		{Key: []byte("gone")},
		{Value: []byte(`"x"`)},
		{Key: []byte("😀\n"), Value: []byte("1e400"), Partition: 7, HasPartition: true},
	}
	if diff := cmp.Diff(want, got.Messages); diff != "" || got.Channel != "orders" {
		t.Errorf("channel %q, %s", got.Channel, diff)
	}
}

func TestDecodePublishRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, place, field, says string }{
		{``, "line 1, column 1", "", "empty"},
		{`[]`, "line 1, column 1", "", "must be an object, is an array"},
		{`{"messages":[{"value":1}]} x`, "line 1, column 28", "", "nothing more"},
		{`{"messages":{}}`, "line 1, column 13", "messages", "an array of messages, is an object"},
		{`{"mesages":[]}`, "line 1, column 2", "mesages", "did you mean messages?"},
		{"{\"messages\":[{\"value\":1},\n {\"vaule\":2}]}", "line 2, column 3", "messages[1].vaule", "did you mean value?"},
		{`{"messages":[{"value":1,"value":2}]}`, "line 1, column 25", "messages[0].value", "given twice"},
		{`{"messages":[{"value":1,"value_base64":""}]}`, "line 1, column 25", "messages[0].valueBase64", "two forms"},
		{`{"messages":[],"messages":[]}`, "line 1, column 16", "messages", "given twice"},
		{`{"messages":[{"key":7}]}`, "line 1, column 21", "messages[0].key", "must be a string, is a number"},
		{`{"messages":[{"key":"\ud83d"}]}`, "line 1, column 22", "messages[0].key", "surrogate"},
		{`{"messages":[{"keyBase64":"*"}]}`, "line 1, column 27", "messages[0].keyBase64", "base64"},
		{`{"messages":[{"headers":{"a":1}}]}`, "line 1, column 30", "messages[0].headers.a", "must be a string"},
		{`{"messages":[{"headers":{"a":null}}]}`, "line 1, column 30", "messages[0].headers.a", "headerList"},
		{`{"messages":[{"headers":{"a":"1","a":"2"}}]}`, "line 1, column 34", "messages[0].headers.a", "given twice"},
		{`{"messages":[{"headers":{"a.b":[]}}]}`, "line 1, column 32", `messages[0].headers["a.b"]`, "must be a string"},
		{`{"messages":[{"headers":{},"headerList":[]}]}`, "line 1, column 28", "messages[0].headerList", "two forms"},
		{`{"messages":[{"headerList":[{"key":"a"},{"kye":"a"}]}]}`, "line 1, column 42", "messages[0].headerList[1].kye", "did you mean key?"},
		{`{"messages":[{"timestamp":"yesterday"}]}`, "line 1, column 27", "messages[0].timestamp", "RFC 3339"},
		{`{"messages":[{"timestamp":-1}]}`, "line 1, column 27", "messages[0].timestamp", "RFC 3339"},
		{`{"messages":[{"partition":1.5}]}`, "line 1, column 27", "messages[0].partition", "integer"},
		{`{"messages":[{"partition":2147483648}]}`, "line 1, column 27", "messages[0].partition", "32 bits"},
		{`{"messages":[{"value":}]}`, "line 1, column 23", "messages[0].value", "expected a JSON value"},
		{`{"messages":[{"value":1}`, "line 1, column 25", "messages", "ends"},
		{`{"messages":[{"value":` + strings.Repeat("[", MaxDepth+1), "line 1, column 10023", "messages[0].value", "deeper"},
		{`{"messages":[` + strings.Repeat(`{},`, MaxMessages) + `{}]}`, "line 1, column 30014", "messages", "at most 10000 messages"},
	} {
		var b Batch
		e := errs.From(DecodePublish([]byte(c.body), &b))
		if e == nil {
			t.Errorf("%.80q passes", c.body)
			continue
		}
		if e.Code != errs.Invalid || !strings.HasPrefix(e.Message, c.place+": ") || e.Field != c.field || !strings.Contains(e.Message, c.says) {
			t.Errorf("%.80q: field %q, %q; want field %q, %s … %s", c.body, e.Field, e.Message, c.field, c.place, c.says)
		}
	}
}

// TestPayloadsComeBack posts every edge through the envelope and reads it back as a stored message.
func TestPayloadsComeBack(t *testing.T) {
	t.Parallel()
	for _, payload := range edges {
		var b Batch
		if err := DecodePublish([]byte(`{"messages":[{"key":"k","value": `+payload+"\n}]}"), &b); err != nil {
			t.Errorf("%.60q: %v", payload, err)
			continue
		}
		if string(b.Messages[0].Value) != payload {
			t.Errorf("%.60q became %.60q", payload, b.Messages[0].Value)
		}
		out := AppendStored(nil, &databusv1.StoredMessage{Value: b.Messages[0].Value})
		if want := `{"offset":"0","value":` + payload + `}`; string(out) != want {
			t.Errorf("read back %.80q, want %.80q", out, want)
		}
	}
}

func TestAppendStored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		m    *databusv1.StoredMessage
		want string
	}{
		{"all", &databusv1.StoredMessage{Offset: 9007199254740993, Timestamp: timestampOf(1767323045670), Key: []byte(`a"b`), Value: []byte(`{"a":1}`),
			Headers: []*databusv1.Header{{Key: "b", Value: []byte("2")}, {Key: "a", Value: []byte("<é>")}}},
			`{"offset":"9007199254740993","timestamp":"2026-01-02T03:04:05.670Z","key":"a\"b","value":{"a":1},"headers":{"b":"2","a":"<é>"}}`},
		{"whole second", &databusv1.StoredMessage{Timestamp: timestampOf(0)}, `{"offset":"0","timestamp":"1970-01-01T00:00:00Z"}`},
		{"bytes", &databusv1.StoredMessage{Key: []byte{0xff}, Value: []byte("hi")}, `{"offset":"0","keyBase64":"/w==","valueBase64":"aGk="}`},
		{"empty", &databusv1.StoredMessage{Key: []byte{}, Value: []byte{}}, `{"offset":"0","key":"","valueBase64":""}`},
		{"space around", &databusv1.StoredMessage{Value: []byte("1 ")}, `{"offset":"0","valueBase64":"MSA="}`},
		{"invalid UTF-8", &databusv1.StoredMessage{Value: []byte("\"\xff\"")}, `{"offset":"0","valueBase64":"Iv8i"}`},
		{"repeated", &databusv1.StoredMessage{Headers: []*databusv1.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}},
			`{"offset":"0","headers":{"a":"2"},"headerList":[{"key":"a","value":"1"},{"key":"a","value":"2"}]}`},
		{"null and bytes", &databusv1.StoredMessage{Headers: []*databusv1.Header{{Key: "n"}, {Key: "b", Value: []byte{0xff}}}},
			`{"offset":"0","headerList":[{"key":"n"},{"key":"b","valueBase64":"/w=="}]}`},
	} {
		if got := string(AppendStored(nil, c.m)); got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestAppendStoredLineHasNoBreaks(t *testing.T) {
	t.Parallel()
	got := string(AppendStoredLine(nil, 2, &databusv1.StoredMessage{Value: []byte("[\n]")}))
	if want := `{"partition":2,"offset":"0","valueBase64":"Wwpd"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = string(AppendStoredLine(nil, -1, &databusv1.StoredMessage{Value: []byte("[ ]")}))
	if want := `{"offset":"0","value":[ ]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAppendResults(t *testing.T) {
	t.Parallel()
	got := string(AppendResults(nil, []Result{
		{Topic: "orders", Partition: 3, Offset: 42, TimestampMillis: 1767323045678, Placed: true},
		{Topic: "orders", TimestampMillis: 1767323045000, Duplicate: true},
		{Err: errs.New(errs.TooLarge, "MESSAGE_TOO_LARGE", "too large")},
	}))
	want := `{"results":[{"topic":"orders","partition":3,"offset":"42","timestamp":"2026-01-02T03:04:05.678Z"},` +
		`{"topic":"orders","timestamp":"2026-01-02T03:04:05Z","duplicate":true},{"error":{"code":3,"message":"too large","details":[`
	if !strings.HasPrefix(got, want) || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
	if got := string(AppendResults(nil, nil)); got != `{"results":[]}` {
		t.Errorf("got %s", got)
	}
}

func TestMessageCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field string
		m     Message
	}{
		{"", Message{Value: []byte{}}},
		{"", Message{Key: []byte("k")}},
		{"value", Message{}},
		{"key", Message{Key: make([]byte, MaxKeyBytes+1)}},
		{"headers", Message{Value: []byte{}, Headers: make([]Header, MaxHeaders+1)}},
		{"headers", Message{Value: []byte{}, Headers: make([]Header, 1)}},
		{"headers", Message{Value: []byte{}, Headers: []Header{{Key: strings.Repeat("x", MaxHeaderName+1)}}}},
		{"id", Message{Value: []byte{}, ID: strings.Repeat("x", MaxIDLength+1)}},
		{"partition", Message{Value: []byte{}, Partition: -1, HasPartition: true}},
		{"timestamp", Message{Value: []byte{}, TimestampMillis: -1, HasTimestamp: true}},
	} {
		e := c.m.Check()
		if (e == nil) != (c.field == "") || e != nil && e.Field != c.field {
			t.Errorf("want field %q, got %v", c.field, e)
		}
	}
}

// FuzzDecodePublish: what is accepted is JSON, and comes back the same after it was written out again.
func FuzzDecodePublish(f *testing.F) {
	f.Add([]byte(`{"messages":[{"key":"k","value":{"a":1},"headers":{"a":"b"},"id":"i","timestamp":1,"partition":0}]}`))
	f.Add([]byte(`{"messages":[{"key_base64":"/w","valueBase64":"","header_list":[{"key":"a","value":"1"},{"key":"a"}]}],"channel":"c"}`))
	f.Add([]byte(`{"messages":[{"key":"\ud83d\ude00","timestamp":"2026-01-02T03:04:05Z","partition":1e1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b, again Batch
		if err := DecodePublish(body, &b); err != nil {
			if errs.From(err).Code != errs.Invalid {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is taken and is no JSON", body)
		}
		out := []byte(`{"messages":[`)
		for i := range b.Messages {
			if i > 0 {
				out = append(out, ',')
			}
			var p databusv1.Message
			b.Messages[i].ToProto(&p)
			message := AppendMessage(nil, &p, false)
			if bytes.Contains(message, []byte(`"headerList"`)) { // the list alone says it all
				var fields map[string]json.RawMessage
				if err := json.Unmarshal(message, &fields); err != nil {
					t.Fatal(err)
				}
				if _, ok := fields["headerList"]; ok {
					delete(fields, "headers")
				}
				message = join(fields)
			}
			out = append(out, message...)
		}
		out = append(out, "]}"...)
		if err := DecodePublish(out, &again); err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		if diff := cmp.Diff(b.Messages, again.Messages); diff != "" && len(b.Messages) > 0 {
			t.Fatalf("%q became %q: %s", body, out, diff)
		}
	})
}

func join(fields map[string]json.RawMessage) []byte {
	var parts []string
	for name, raw := range fields {
		parts = append(parts, fmt.Sprintf("%q:%s", name, raw))
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

func BenchmarkDecodePublish(b *testing.B) {
	for _, n := range []int{1, 100} {
		body := []byte(`{"messages":[` + strings.Repeat(`{"key":"user-1234","headers":{"type":"order.created"},"value":`+sample(2)+`},`, n-1) +
			`{"key":"user-1234","headers":{"type":"order.created"},"value":` + sample(2) + `}]}`)
		b.Run(itoa(n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			var batch Batch
			for b.Loop() {
				if err := DecodePublish(body, &batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendResults(b *testing.B) {
	results := make([]Result, 100)
	for i := range results {
		results[i] = Result{Topic: "orders", Partition: 3, Offset: int64(i), TimestampMillis: 1767323045678, Placed: true}
	}
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendResults(dst[:0], results)
	}
}
