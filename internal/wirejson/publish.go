package wirejson

import (
	"strings"
	"unsafe"
)

// Batch is a decoded publish request. Its messages alias the body that they were decoded from and the batch's own buffers: both
// must stay unchanged until the messages are done with. IDs are copies, because they outlive the request.
type Batch struct {
	// Channel as the body names it; empty where it does not.
	Channel  string
	Messages []Message

	headers []Header
	arena   []byte
}

// Reset forgets the messages and keeps the memory.
func (b *Batch) Reset() {
	clear(b.Messages)
	clear(b.headers)
	b.Channel, b.Messages, b.headers, b.arena = "", b.Messages[:0], b.headers[:0], b.arena[:0]
}

// DecodePublish reads {"messages":[…]} into a batch that it resets first. The error is an *errs.Error.
func DecodePublish(body []byte, into *Batch) error {
	into.Reset()
	d := messageDecoder{cursor: cursor{doc: body, arena: into.arena}, headers: into.headers}
	f := d.publish(into)
	if f == nil {
		f = d.end()
	}
	into.arena, into.headers = d.arena, d.headers
	if f != nil {
		return f.coded(body)
	}
	return nil
}

// messageDecoder reads messages in the suite's own mapping.
type messageDecoder struct {
	cursor
	headers []Header
	lenient bool // take and skip unknown names, and both forms of headers
}

var publishNames = []string{"channel", "messages"}

func (d *messageDecoder) publish(b *Batch) *fault {
	if d.peek() == 0 {
		f := fieldFault(d.pos, "the body is empty")
		f.reason, f.next = ReasonMalformed, `send an object such as {"messages":[{"value":{"a":1}}]}`
		return f
	}
	if f := d.open('{', "an object"); f != nil {
		return f
	}
	var seen uint32
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil || !more {
			return f
		}
		name, at, f := d.name()
		if f != nil {
			return f
		}
		index := uint32(indexName(publishNames, name))
		if f := d.once(&seen, index, name, at, publishNames); f != nil {
			return f
		}
		switch index {
		case 0:
			var s []byte
			if s, f = d.optionalText(); f != nil {
				return f.under("channel")
			}
			b.Channel = string(s)
		case 1:
			if f := d.messages(&b.Messages); f != nil {
				return f.under("messages")
			}
		default:
			if _, f := d.raw(); f != nil {
				return f
			}
		}
	}
}

// once refuses a name that is not known, or that came before.
func (d *messageDecoder) once(seen *uint32, index uint32, name []byte, at int, known []string) *fault {
	if index >= uint32(len(known)) {
		if d.lenient {
			return nil
		}
		return unknownFault(at, string(name), known).under(string(name))
	}
	if *seen&(1<<index) != 0 {
		return duplicateFault(at).under(string(name))
	}
	*seen |= 1 << index
	return nil
}

func (d *messageDecoder) messages(list *[]Message) *fault {
	if d.null() {
		return nil
	}
	if f := d.open('[', "an array of messages"); f != nil {
		return f
	}
	for i := 0; ; i++ {
		more, f := d.next(i == 0, ']')
		if f != nil || !more {
			return f
		}
		if i == MaxMessages {
			return fieldFault(d.pos, "a request has at most %d messages", MaxMessages)
		}
		*list = append(*list, Message{})
		if f := d.message(&(*list)[i], nil); f != nil {
			return f.item(i)
		}
	}
}

// The index of a name in messageNames or storedNames is what message switches on; they share the first seven.
var (
	messageNames = []string{"key", "value", "headers", "timestamp", "keyBase64", "valueBase64", "headerList", "id", "partition"}
	storedNames  = []string{"key", "value", "headers", "timestamp", "keyBase64", "valueBase64", "headerList", "offset"}
)

const (
	nameKey = iota
	nameValue
	nameHeaders
	nameTimestamp
	nameKeyBase64
	nameValueBase64
	nameHeaderList
	nameID
	namePartition
	nameOffset = nameID
)

// message reads a Message, or a StoredMessage where offset is not nil.
func (d *messageDecoder) message(m *Message, offset *int64) *fault {
	if f := d.open('{', `an object such as {"value":1}`); f != nil {
		return f
	}
	names := messageNames
	if offset != nil {
		names = storedNames
	}
	var seen uint32
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil || !more {
			return f
		}
		name, at, f := d.name()
		if f != nil {
			return f
		}
		index := indexName(names, name)
		if f := d.once(&seen, uint32(index), name, at, names); f != nil {
			return f
		}
		if f := d.rivals(seen, at, index); f != nil {
			return f
		}
		if offset != nil && index == nameOffset {
			*offset, f = d.integer(64)
		} else {
			f = d.field(m, index)
		}
		if f != nil {
			return f.under(string(name))
		}
	}
}

// rivals refuses two forms of the same thing.
func (d *messageDecoder) rivals(seen uint32, at, index int) *fault {
	if index < 0 {
		return nil
	}
	for _, pair := range [...][2]int{{nameKey, nameKeyBase64}, {nameValue, nameValueBase64}, {nameHeaders, nameHeaderList}} {
		both := uint32(1)<<pair[0] | uint32(1)<<pair[1]
		if seen&both != both || index != pair[0] && index != pair[1] {
			continue
		}
		if pair[0] == nameHeaders && d.lenient {
			continue
		}
		f := fieldFault(at, "%s and %s are two forms of the same: give one", messageNames[pair[0]], messageNames[pair[1]])
		f.reason = ReasonDuplicate
		return f.under(messageNames[index])
	}
	return nil
}

func (d *messageDecoder) field(m *Message, index int) (f *fault) {
	switch index {
	case nameKey:
		m.Key, f = d.optionalText()
	case nameValue:
		m.Value, f = d.raw()
	case nameID:
		var s []byte
		s, f = d.optionalText()
		m.ID = string(s)
	case nameTimestamp:
		m.TimestampMillis, m.HasTimestamp, f = d.millis()
	case namePartition:
		m.Partition, m.HasPartition, f = d.partition()
	case nameKeyBase64:
		m.Key, f = d.optionalBytes()
	case nameValueBase64:
		m.Value, f = d.optionalBytes()
	case nameHeaders:
		var list []Header
		if list, f = d.headerObject(); m.Headers == nil { // where both are given, the list says more
			m.Headers = list
		}
	case nameHeaderList:
		m.Headers, f = d.headerArray()
	default:
		_, f = d.raw()
	}
	return f
}

func (d *messageDecoder) optionalText() ([]byte, *fault) {
	if d.null() {
		return nil, nil
	}
	return d.text()
}

func (d *messageDecoder) optionalBytes() ([]byte, *fault) {
	if d.null() {
		return nil, nil
	}
	return d.bytes()
}

// headerObject reads {"name":"value"}; the order is kept and a name comes once.
func (d *messageDecoder) headerObject() ([]Header, *fault) {
	if d.null() {
		return nil, nil
	}
	if f := d.open('{', "an object of strings"); f != nil {
		return nil, f
	}
	begin := len(d.headers)
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil {
			return nil, f
		}
		if !more {
			return d.headersFrom(begin), nil
		}
		if len(d.headers)-begin == MaxHeaders {
			return nil, fieldFault(d.pos, "a message has at most %d headers", MaxHeaders)
		}
		name, at, f := d.name()
		if f != nil {
			return nil, f
		}
		if d.hasHeader(begin, name) {
			f = duplicateFault(at)
			f.next = `give repeated names in headerList: [{"key":"a","value":"1"},{"key":"a","value":"2"}]`
			return nil, f.under(string(name))
		}
		if d.peek() == 'n' {
			return nil, fieldFault(d.pos, `must be a string; a null value goes into headerList: [{"key":"a"}]`).under(string(name))
		}
		value, f := d.text()
		if f != nil {
			return nil, f.under(string(name))
		}
		d.headers = append(d.headers, Header{Key: alias(name), Value: value})
	}
}

func (d *messageDecoder) hasHeader(begin int, name []byte) bool {
	for i := begin; i < len(d.headers); i++ {
		if d.headers[i].Key == string(name) {
			return true
		}
	}
	return false
}

func (d *messageDecoder) headersFrom(begin int) []Header {
	if begin == len(d.headers) {
		return nil
	}
	return d.headers[begin:len(d.headers):len(d.headers)]
}

var headerNames = []string{"key", "value", "valueBase64"}

// headerArray reads [{"key":"a","value":"1"},{"key":"b","valueBase64":"…"},{"key":"c"}].
func (d *messageDecoder) headerArray() ([]Header, *fault) {
	if d.null() {
		return nil, nil
	}
	if f := d.open('[', "an array of headers"); f != nil {
		return nil, f
	}
	begin := len(d.headers)
	for i := 0; ; i++ {
		more, f := d.next(i == 0, ']')
		if f != nil {
			return nil, f
		}
		if !more {
			return d.headersFrom(begin), nil
		}
		if i == MaxHeaders {
			return nil, fieldFault(d.pos, "a message has at most %d headers", MaxHeaders)
		}
		h, f := d.header()
		if f != nil {
			return nil, f.item(i)
		}
		d.headers = append(d.headers, h)
	}
}

func (d *messageDecoder) header() (h Header, f *fault) {
	if f := d.open('{', `an object such as {"key":"a","value":"1"}`); f != nil {
		return h, f
	}
	var seen uint32
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil || !more {
			return h, f
		}
		name, at, f := d.name()
		if f != nil {
			return h, f
		}
		index := indexName(headerNames, name)
		if f = d.once(&seen, uint32(index), name, at, headerNames); f != nil {
			return h, f
		}
		if seen&6 == 6 {
			return h, duplicateFault(at).under(headerNames[index])
		}
		switch index {
		case 0:
			var s []byte
			s, f = d.text()
			h.Key = alias(s)
		case 1:
			h.Value, f = d.optionalText()
		case 2:
			h.Value, f = d.optionalBytes()
		default:
			_, f = d.raw()
		}
		if f != nil {
			return h, f.under(string(name))
		}
	}
}

// indexName finds a name in its lowerCamel or snake_case form, -1 where it is not known.
func indexName(known []string, name []byte) int {
	for i, k := range known {
		if k == string(name) {
			return i
		}
	}
	for _, b := range name {
		if b == '_' {
			camel := lowerCamel(string(name))
			for i, k := range known {
				if k == camel {
					return i
				}
			}
			break
		}
	}
	return -1
}

// lowerCamel is protobuf's own rule for JSON names.
func lowerCamel(s string) string {
	var b strings.Builder
	upper := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_':
			upper = true
			continue
		case upper && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		upper = false
		b.WriteByte(c)
	}
	return b.String()
}

// alias is a string over bytes that are not changed any more.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
