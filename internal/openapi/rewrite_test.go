package openapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/databus-suite/databus/gen"
)

// TestCommittedDocument: the document in the tree is a rewritten one, whole and without loose ends.
func TestCommittedDocument(t *testing.T) {
	t.Parallel()
	again, err := Rewrite(gen.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, gen.OpenAPI) {
		t.Error("the committed document changes when it is rewritten: run make gen")
	}
	var doc struct {
		Definitions map[string]json.RawMessage
	}
	if err := json.Unmarshal(again, &doc); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(again), `"#/definitions/`) {
		if name, _, _ := strings.Cut(part, `"`); !strings.HasPrefix(part, "{") && doc.Definitions[name] == nil {
			t.Errorf("nothing defines %s", name)
		}
	}
	for _, long := range []string{"CODEC_ZSTD", "DURABILITY_DURABLE", "_UNSPECIFIED", "rpcStatus", "HttpBody"} {
		if bytes.Contains(again, []byte(long)) {
			t.Errorf("the document still has %s", long)
		}
	}
}

const generated = `{"swagger":"2.0","paths":{
"/v1/channels/{channel}":{"patch":{"responses":{"200":{"schema":{"$ref":"#/definitions/ChannelConfig"}}},"parameters":[{"name":"channel","in":"path"}]}},
"/v1/channels/{channel}/events":{"post":{"responses":{},"parameters":[{"name":"channel","in":"path"},{"name":"body","in":"body"},{"name":"key","in":"query"}]}},
"/v1/channels/{channel}/messages":{"post":{"responses":{},"parameters":[]}}},
"definitions":{
"Batch":{"properties":{"linger":{"type":"string"},"maxBytes":{"type":"integer"}}},
"ChannelConfig":{"properties":{"b":{"$ref":"#/definitions/Batch"},"c":{"$ref":"#/definitions/Codec"},"m":{"type":"object","$ref":"#/definitions/Message"},"s":{"$ref":"#/definitions/Status"}}},
"Codec":{"type":"string","enum":["CODEC_UNSPECIFIED","CODEC_NONE","CODEC_ZSTD"],"default":"CODEC_UNSPECIFIED","description":"Codec.\n\n - CODEC_UNSPECIFIED: ZSTD.\n - CODEC_NONE: None."},
"Header":{"properties":{"key":{},"value":{"format":"byte"}}},
"Message":{"properties":{"key":{"type":"string","format":"byte","description":"A key."},"value":{"type":"string","format":"byte"},"headers":{"type":"array"},"id":{"type":"string"}}},
"PublishEventsResponse":{},"PublishResponse":{},"Status":{},"Unused":{"$ref":"#/definitions/UnusedToo"},"UnusedToo":{}}}`

func TestRewrite(t *testing.T) {
	t.Parallel()
	out, err := Rewrite([]byte(generated))
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out); err != nil {
		t.Fatal(err)
	}
	got := compact.String()
	for _, want := range []string{
		`"linger":{"type":"string","format":"duration","example":"30s"},"maxBytes":{"type":"integer"}`,
		`"Codec":{"type":"string","enum":["NONE","ZSTD"],"description":"Codec.\n\n - left out: ZSTD.\n - NONE: None."}`,
		`"key":{"type":"string","description":"A key."},"keyBase64":{"type":"string","format":"byte"`,
		`"value":{"description":"Any JSON value`, `"headers":{"type":"object","additionalProperties":{"type":"string"}`,
		`"m":{"$ref":"#/definitions/Message"}`, `"s":{"$ref":"#/definitions/ErrorStatus"}`,
		`{"name":"updateMask","in":"query"`, `{"name":"Databus-Key","in":"header"`, `"207":{"description":"Some messages did`,
		`"default":{"description":"An error.","schema":{"$ref":"#/definitions/ErrorStatus"}}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s in\n%s", want, got)
		}
	}
	for _, gone := range []string{`"Unused`, `"name":"key"`, `CODEC_`} {
		if strings.Contains(got, gone) {
			t.Errorf("still has %s", gone)
		}
	}
	again, err := Rewrite(out)
	if err != nil || !bytes.Equal(again, out) {
		t.Errorf("a second rewrite changes it (%v)", err)
	}
	for _, bad := range []string{``, `[]`, `{}{}`, `{"a":`} {
		if _, err := Rewrite([]byte(bad)); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
