package routing

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"

	"cel.dev/cel-go/cel"
)

// Message is what rules see of a message. What costs something (the header map, the parsed payload) is made when the first
// rule asks, and kept for the next rule. Not for concurrent use.
type Message struct {
	Headers iter.Seq2[string, []byte] // nil: none
	Key     []byte
	Lane    string
	Channel string
	JSON    []byte // the payload, JSON or not

	headers map[string]string
	parsed  any
	isSet   bool
}

var _ cel.Activation = (*Message)(nil)

// ResolveName gives CEL a variable's value.
func (m *Message) ResolveName(name string) (any, bool) {
	switch name {
	case "headers":
		return m.headerMap(), true
	case "key":
		return text(m.Key), true
	case "lane":
		return m.Lane, true
	case "channel":
		return m.Channel, true
	case "json":
		if !m.isSet {
			m.parsed, m.isSet = parse(m.JSON), true
		}
		return m.parsed, true
	}
	return nil, false
}

// Parent is nil: a rule sees nothing but the message.
func (m *Message) Parent() cel.Activation { return nil }

func (m *Message) headerMap() map[string]string {
	if m.headers != nil {
		return m.headers
	}
	m.headers = map[string]string{}
	if m.Headers != nil {
		for name, value := range m.Headers {
			m.headers[name] = text(value)
		}
	}
	return m.headers
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// parse builds the payload's tree; nil, CEL's null, where it is not exactly one JSON value.
func parse(payload []byte) any {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil
	}
	if _, err := d.Token(); err == nil {
		return nil
	}
	return numbers(v)
}

// numbers turns each number into the type that a rule can compare: int where it is exact, else double.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // past the range: ±Inf, which compares as one expects
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
