package intake

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
)

// attributes are a CloudEvent's context attributes as record headers, named as in CloudEvents' binding to Kafka.
type attributes struct {
	headers     []recordbatch.RecordHeader
	contentType string
	key         string // extension partitionkey, the binding's default for the record's key
	seen        map[string]bool
}

// set adds an attribute by its name in the specification.
func (a *attributes) set(name, value string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return cloudEventFault(name, "attribute name %q has other characters than a to z and 0 to 9", name)
	}
	if a.seen == nil {
		a.seen = make(map[string]bool, 8)
	}
	if a.seen[name] {
		return cloudEventFault(name, "attribute %q comes twice", name)
	}
	a.seen[name] = true
	switch name {
	case "datacontenttype":
		a.contentType = value
		return nil
	case "specversion":
		if value != "1.0" {
			return cloudEventFault(name, "specversion %q is not understood", value).WithNext(`use "1.0"`)
		}
	case "partitionkey":
		a.key = value
	}
	a.headers = append(a.headers, recordbatch.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	return nil
}

// complete checks that what every event has is there.
func (a *attributes) complete() error {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		i := slices.IndexFunc(a.headers, func(h recordbatch.RecordHeader) bool { return h.Key == "ce_"+name })
		if i < 0 || len(a.headers[i].Value) == 0 {
			return cloudEventFault(name, "attribute %q is missing or empty", name)
		}
	}
	return nil
}

// apply adds the attributes to the message that e describes.
func (e *events) apply(a *attributes) {
	e.headers = append(slices.Clip(e.headers), a.headers...)
	if a.contentType != "" {
		e.headers = append(e.headers, recordbatch.RecordHeader{Key: "content-type", Value: []byte(a.contentType)})
	}
	if e.key == nil && a.key != "" {
		e.key = []byte(a.key)
	}
}

// structured reads one event in the JSON format.
func (e *events) structured(into *wirejson.Batch) error {
	if err := wirejson.ValidJSON(e.body); err != nil {
		return err
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(e.body), jsontext.AllowDuplicateNames(true))
	if err := e.event(dec, into); err != nil {
		return e.located(err, int(dec.InputOffset()), "")
	}
	return nil
}

// structuredBatch reads an array of events.
func (e *events) structuredBatch(into *wirejson.Batch) error {
	if err := wirejson.ValidJSON(e.body); err != nil {
		return err
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(e.body), jsontext.AllowDuplicateNames(true))
	if dec.PeekKind() != '[' {
		return e.located(cloudEventFault("", "a batch is an array of events"), 0, "")
	}
	_, err := dec.ReadToken()
	for i := 0; err == nil && dec.PeekKind() != ']'; i++ {
		one := *e
		if err = one.event(dec, into); err != nil {
			return e.located(err, int(dec.InputOffset()), "["+strconv.Itoa(i)+"]")
		}
	}
	return err
}

// located says where in the body an event is wrong.
func (e *events) located(err error, offset int, at string) error {
	coded := errs.From(err)
	line, column := wirejson.Position(e.body, min(offset, len(e.body)))
	out := errs.New(errs.Invalid, "MALFORMED_CLOUDEVENT", "line %d, column %d: %s", line, column, coded.Message)
	if coded.Next != "" {
		out = out.WithNext("%s", coded.Next)
	}
	if coded.Field != "" {
		out = out.WithField(strings.TrimPrefix(at+"."+coded.Field, "."))
	}
	return out
}

// event reads the event that comes next. The document is known to be valid JSON.
func (e *events) event(dec *jsontext.Decoder, into *wirejson.Batch) error {
	if dec.PeekKind() != '{' {
		return cloudEventFault("", "an event is an object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var ce attributes
	var data, data64 []byte
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		switch name {
		case "data", "data_base64":
			end := int(dec.InputOffset())
			raw := e.body[end-len(value) : end : end]
			if data != nil && name == "data" || data64 != nil && name == "data_base64" {
				return cloudEventFault(name, "%q comes twice", name)
			}
			if name == "data" {
				data = raw
			} else {
				data64 = raw
			}
		default:
			if err := ce.setJSON(name, value); err != nil {
				return err
			}
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if err := ce.complete(); err != nil {
		return err
	}
	payload, err := payload(&ce, data, data64)
	if err != nil {
		return err
	}
	e.apply(&ce)
	e.add(into, payload)
	return nil
}

// setJSON adds an attribute by its JSON value; null says that it is absent.
func (a *attributes) setJSON(name string, value jsontext.Value) error {
	switch value.Kind() {
	case 'n':
		return nil
	case '"':
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return cloudEventFault(name, "attribute %q is no valid text", name)
		}
		return a.set(name, string(text))
	case '{', '[':
		return cloudEventFault(name, "attribute %q is neither text, number nor boolean", name).
			WithNext("put structured content into data")
	}
	return a.set(name, string(value))
}

// payload is the event's data as bytes. Data that is JSON stays byte for byte; a string in an event of another content type is
// that content; an event without data has an empty payload.
func payload(a *attributes, data, data64 []byte) ([]byte, error) {
	switch {
	case data != nil && data64 != nil:
		return nil, cloudEventFault("data_base64", "an event has data or data_base64, not both")
	case data64 != nil:
		text, err := jsontext.AppendUnquote(nil, data64)
		if err == nil {
			text, err = base64.StdEncoding.AppendDecode(nil, text)
		}
		if err != nil {
			return nil, cloudEventFault("data_base64", "data_base64 is no base64 text")
		}
		return nonNil(text), nil
	case data == nil:
		return []byte{}, nil
	case data[0] == '"' && !isJSON(a.contentType):
		text, err := jsontext.AppendUnquote(nil, data)
		if err != nil {
			return nil, cloudEventFault("data", "data is no valid text")
		}
		return nonNil(text), nil
	}
	return data, nil
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// isJSON tells whether an event's data is JSON; that is also the format's default.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "" || media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}
