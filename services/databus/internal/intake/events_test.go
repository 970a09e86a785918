package intake

import (
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
)

// decoded are the messages of a body as text: key|value|header=value,…
func decoded(e *events) ([]string, error) {
	var b wirejson.Batch
	if err := e.decode(&b); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range b.Messages {
		s := "-"
		if m.Key != nil {
			s = string(m.Key)
		}
		if m.Value == nil {
			s += "|null|"
		} else {
			s += "|" + string(m.Value) + "|"
		}
		var hs []string
		for _, h := range m.Headers {
			hs = append(hs, h.Key+"="+string(h.Value))
		}
		out = append(out, s+strings.Join(hs, ","))
	}
	return out, nil
}

const event = `{"specversion":"1.0","id":"1","source":"/s","type":"t"`

func TestBodies(t *testing.T) {
	base := "ce_specversion=1.0,ce_id=1,ce_source=/s,ce_type=t"
	for _, tc := range []struct {
		name, contentType, body string
		want                    []string
		fault                   string
	}{
		{"raw", "", "any\x00thing", []string{"-|any\x00thing|"}, ""},
		{"empty", "text/plain", "", []string{"-||"}, ""},
		{"json keeps its space", "application/json; charset=utf-8", " {\"a\": 1.0 }\n", []string{"-| {\"a\": 1.0 }\n|"}, ""},
		{"not json", "application/json", "{\"a\":}", nil, "line 1, column 6"},
		{"other json is not looked at", "application/problem+json", "{", []string{"-|{|"}, ""},
		{"lines", "application/x-ndjson", "1\n\n \n\"a\"\r\n {}", []string{`-|1|`, `-|"a"|`, `-| {}|`}, ""},
		{"bad line", "application/x-ndjson", "1\n2\nx\n", nil, "line 3, column 1"},
		{"two values a line", "application/x-ndjson", "1 2\n", nil, "line 1"},
		{"content type", "a b c", "1", nil, "UNSUPPORTED_CONTENT_TYPE"},

		{"structured", "application/cloudevents+json", event + `,"data":{"a": 1.0,"a":2}}`, []string{`-|{"a": 1.0,"a":2}|` + base}, ""},
		{"structured, key", "application/cloudevents+json", event + `,"partitionkey":"k","data":1}`, []string{"k|1|" + base + ",ce_partitionkey=k"}, ""},
		{"structured, text", "application/cloudevents+json", event + `,"datacontenttype":"text/plain","data":"a\nb"}`, []string{"-|a\nb|" + base + ",content-type=text/plain"}, ""},
		{"structured, json text", "application/cloudevents+json", event + `,"datacontenttype":"application/json","data":"a"}`, []string{`-|"a"|` + base + ",content-type=application/json"}, ""},
		{"structured, bytes", "application/cloudevents+json", event + `,"data_base64":"AAE="}`, []string{"-|\x00\x01|" + base}, ""},
		{"structured, no data", "application/cloudevents+json", event + `}`, []string{"-||" + base}, ""},
		{"structured, null data", "application/cloudevents+json", event + `,"data":null}`, []string{"-|null|" + base}, ""},
		{"extensions", "application/cloudevents+json", event + `,"n":12,"b":true,"gone":null}`, []string{"-||" + base + ",ce_n=12,ce_b=true"}, ""},
		{"missing", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s"}`, nil, `"type" is missing`},
		{"version", "application/cloudevents+json", `{"specversion":"0.3","id":"1","source":"/s","type":"t"}`, nil, "specversion"},
		{"attribute name", "application/cloudevents+json", event + `,"Bad_Name":1}`, nil, "Bad_Name"},
		{"attribute twice", "application/cloudevents+json", event + `,"id":"2"}`, nil, "twice"},
		{"data twice", "application/cloudevents+json", event + `,"data":1,"data":2}`, nil, "twice"},
		{"both", "application/cloudevents+json", event + `,"data":1,"data_base64":""}`, nil, "not both"},
		{"object attribute", "application/cloudevents+json", event + `,"x":{}}`, nil, "neither text"},
		{"not an object", "application/cloudevents+json", `[]`, nil, "an event is an object"},
		{"malformed", "application/cloudevents+json", `{"id":`, nil, "line 1"},
		{"base64", "application/cloudevents+json", event + `,"data_base64":"?"}`, nil, "base64"},

		{"batch", "application/cloudevents-batch+json", "[" + event + `,"data":1},` + "\n" + event + `,"data":[2]}]`, []string{"-|1|" + base, "-|[2]|" + base}, ""},
		{"empty batch", "application/cloudevents-batch+json", "[]", nil, "NO_MESSAGES"},
		{"bad event in a batch", "application/cloudevents-batch+json", "[" + event + "},\n{}]", nil, "line 2"},
		{"no batch", "application/cloudevents-batch+json", "{}", nil, "array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decoded(&events{contentType: tc.contentType, body: []byte(tc.body)})
			if tc.fault != "" {
				e := errs.From(err)
				if err == nil || !strings.Contains(err.Error()+" "+e.Reason, tc.fault) {
					t.Fatalf("error %v, want one with %q", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Fatalf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestBinaryCloudEvent(t *testing.T) {
	values := map[string]string{"specversion": "1.0", "id": "1", "source": "/s%20a", "type": "t", "subject": "100%"}
	e := &events{contentType: "text/plain", body: []byte("hello"), binary: []string{"id", "source", "specversion", "subject", "type"},
		attribute: func(name string) (string, bool) { v, ok := values[name]; return v, ok }}
	got, err := decoded(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := "-|hello|ce_id=1,ce_source=/s a,ce_specversion=1.0,ce_subject=100%,ce_type=t,content-type=text/plain"; got[0] != want {
		t.Fatalf("got  %q\nwant %q", got[0], want)
	}
	delete(values, "type")
	e.binary = []string{"id", "source", "specversion"}
	e.headers = nil
	if _, err := decoded(e); err == nil || !strings.Contains(err.Error(), "type") {
		t.Fatalf("error %v", err)
	}
}

// FuzzEvents checks that no body breaks the decoder, that payloads of JSON kinds are JSON, and that lines are kept.
func FuzzEvents(f *testing.F) {
	types := []string{"application/json", "application/x-ndjson", "application/cloudevents+json", "application/cloudevents-batch+json", "text/plain"}
	for i := range types {
		for _, body := range []string{"", "1", "{\"a\":1}\n2\r\n\n", event + `,"data":{"x":[1,2]}}`, "[" + event + `,"data_base64":"AA=="}]`, "\xff", "{\"id\":\"\\ud800\"}"} {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		media := types[int(kind)%len(types)]
		e := &events{contentType: media, body: body, key: []byte("k"), headers: []recordbatch.RecordHeader{{Key: "h"}}}
		var b wirejson.Batch
		before := string(body)
		err := e.decode(&b)
		if string(body) != before {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if len(errs.From(err).Reason) == 0 || errs.CodeOf(err) == errs.Internal {
				t.Fatalf("error without a reason: %v", err)
			}
			return
		}
		if len(b.Messages) == 0 {
			t.Fatal("neither messages nor an error")
		}
		for _, m := range b.Messages {
			if m.Value == nil {
				t.Fatal("a payload became a tombstone")
			}
			if e.json && wirejson.ValidJSON(m.Value) != nil {
				t.Fatalf("payload %q is said to be JSON", m.Value)
			}
			if !strings.Contains(media, "cloudevents") && !strings.Contains(before, string(m.Value)) {
				t.Fatalf("payload %q is not in the body", m.Value)
			}
		}
	})
}
