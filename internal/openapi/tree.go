package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object that keeps the order of its members; encoding/json's maps would sort the fields of every message.
// Other values are []any, string, bool, json.Number and nil.
type object struct{ members []member }

type member struct {
	name  string
	value any
}

// obj builds an object from names and values in turn.
func obj(pairs ...any) *object {
	o := &object{}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func (o *object) index(name string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

func (o *object) get(name string) any {
	if i := o.index(name); i >= 0 {
		return o.members[i].value
	}
	return nil
}

// child is the object of that name; an empty one where there is none, which belongs to no document.
func (o *object) child(name string) *object {
	if c, ok := o.get(name).(*object); ok {
		return c
	}
	return &object{}
}

func (o *object) text(name string) string {
	s, _ := o.get(name).(string)
	return s
}

func (o *object) set(name string, value any) {
	if i := o.index(name); i >= 0 {
		o.members[i].value = value
		return
	}
	o.members = append(o.members, member{name, value})
}

func (o *object) remove(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
}

func parse(doc []byte) (*object, error) {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	v, err := readValue(d)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, errors.New("the document is no object")
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the document")
	}
	return o, nil
}

func readValue(d *jsontext.Decoder) (any, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return readObject(d)
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	case '"':
		return token.String(), nil
	case '0':
		return json.Number(token.String()), nil
	case 'n':
		return nil, nil
	}
	return token.Bool(), nil
}

func readObject(d *jsontext.Decoder) (*object, error) {
	o := &object{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		v, err := readValue(d)
		if err != nil {
			return nil, err
		}
		o.members = append(o.members, member{key, v})
	}
	_, err := d.ReadToken()
	return o, err
}

// MarshalJSON writes the members in their order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

func (o *object) write() ([]byte, error) {
	raw, err := marshal(o)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
