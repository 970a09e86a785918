package harness

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStoredMessage reads the REST API's messages: payloads byte for byte, headers in their order.
func TestStoredMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want Message
	}{
		"payload's text is kept": {
			`{"offset":"7","key":"k","value":{ "a" : 1.0,"a":"\ud83d"},"headers":{"z":"1","a":"2"}}`,
			Message{Partition: 2, Offset: 7, Key: []byte("k"), Value: []byte(`{ "a" : 1.0,"a":"\ud83d"}`), Headers: []Header{{"z", "1"}, {"a", "2"}}},
		},
		"null is a payload": {`{"offset":"0","value":null}`, Message{Partition: 2, Value: []byte("null")}},
		"absent is none":    {`{"offset":"0","key":""}`, Message{Partition: 2, Key: []byte{}}},
		"base64":            {`{"offset":"0","keyBase64":"/w==","valueBase64":""}`, Message{Partition: 2, Key: []byte{0xff}, Value: []byte{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stored storedMessage
			if err := json.Unmarshal([]byte(tc.text), &stored); err != nil {
				t.Fatal(err)
			}
			got, err := stored.message(2)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
