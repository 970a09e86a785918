package intake

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
)

// The request headers of the suite.
const (
	keyHeader    = "Databus-Key"
	idHeader     = "Databus-Id"
	repeatHeader = "Idempotency-Key"
	headerPrefix = "Databus-Header-"
	laneHeader   = "Databus-Lane"
)

// decodeMessages reads the JSON envelope.
func (q *request) decodeMessages(r *http.Request) error {
	if t := r.Header.Get("Content-Type"); t != "application/json" && t != "" {
		if m, _, err := mime.ParseMediaType(t); err != nil || m != "application/json" {
			return errs.New(errs.UnsupportedMedia, "UNSUPPORTED_CONTENT_TYPE", "content-type %q is not taken here", t).
				WithNext("send application/json, or post the payload as it is to /v1/channels/%s/events", q.publish.Channel)
		}
	}
	if err := wirejson.DecodePublish(q.body.buf, &q.batch); err != nil {
		return err
	}
	if c := q.batch.Channel; c != "" && c != q.publish.Channel {
		return errs.New(errs.Invalid, "CHANNEL_MISMATCH", "the path names channel %q, the body %q", q.publish.Channel, c).WithField("channel").
			WithNext("leave channel out of the body, or name the same one in both")
	}
	if len(q.batch.Messages) == 0 {
		return noMessages()
	}
	lane, id := r.Header.Get(laneHeader), repeatKey(r.Header)
	if lane == "" && id == "" {
		return nil
	}
	for i := range q.batch.Messages {
		m := &q.batch.Messages[i]
		if lane != "" && !hasHeader(m.Headers, "databus-lane") {
			m.Headers = append(slices.Clip(m.Headers), recordbatch.RecordHeader{Key: "databus-lane", Value: []byte(lane)})
		}
		if m.ID == "" {
			m.ID = idOf(id, i, len(q.batch.Messages))
		}
	}
	return nil
}

func noMessages() error {
	return errs.New(errs.Invalid, "NO_MESSAGES", "the request has no messages").WithField("messages").
		WithNext(`send at least one: {"messages":[{"value":{"a":1}}]}`)
}

func hasHeader(headers []recordbatch.RecordHeader, key string) bool {
	return slices.ContainsFunc(headers, func(h recordbatch.RecordHeader) bool { return h.Key == key })
}

func repeatKey(h http.Header) string {
	if id := h.Get(idHeader); id != "" {
		return id
	}
	return h.Get(repeatHeader)
}

// idOf makes ids of a request's one, if it has one: each message needs its own.
func idOf(id string, i, n int) string {
	if id == "" || n == 1 {
		return id
	}
	return id + "/" + strconv.Itoa(i)
}

// decodeEvents reads a body by its content type.
func (q *request) decodeEvents(r *http.Request) error {
	e := events{contentType: r.Header.Get("Content-Type"), body: q.body.buf, attribute: func(name string) (string, bool) {
		v := r.Header["Ce-"+canonical(name)]
		return first(v), len(v) > 0
	}}
	if v := r.Header[keyHeader]; len(v) > 0 {
		e.key = []byte(v[0])
	}
	for name, v := range r.Header {
		switch {
		case strings.HasPrefix(name, headerPrefix) && len(name) > len(headerPrefix):
			e.addHeaders(strings.ToLower(name[len(headerPrefix):]), v)
		case name == laneHeader:
			e.addHeaders("databus-lane", v[:1])
		case strings.HasPrefix(name, "Ce-"):
			e.binary = append(e.binary, strings.ToLower(name[len("Ce-"):]))
		}
	}
	slices.SortStableFunc(e.headers, func(a, b recordbatch.RecordHeader) int { return strings.Compare(a.Key, b.Key) })
	slices.Sort(e.binary)
	err := e.decode(&q.batch)
	if err != nil {
		return err
	}
	id := repeatKey(r.Header)
	for i := range q.batch.Messages {
		q.batch.Messages[i].ID = idOf(id, i, len(q.batch.Messages))
	}
	q.publish.JSON = e.json
	return nil
}

func canonical(name string) string { return http.CanonicalHeaderKey(name) }

func first(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

// events is a body whose content type says how many messages it holds.
type events struct {
	contentType string
	body        []byte
	key         []byte // nil: none given
	headers     []recordbatch.RecordHeader
	binary      []string                         // names of the CloudEvents attributes that came beside the body
	attribute   func(name string) (string, bool) // their values
	json        bool                             // set by decode: every payload is valid JSON
}

func (e *events) addHeaders(name string, values []string) {
	for _, v := range values {
		e.headers = append(e.headers, recordbatch.RecordHeader{Key: name, Value: []byte(v)})
	}
}

// decode reads the messages into the batch; their payloads alias the body.
func (e *events) decode(into *wirejson.Batch) error {
	into.Reset()
	media := e.contentType
	if media != "" && media != "application/json" {
		m, _, err := mime.ParseMediaType(e.contentType)
		if err != nil {
			return errs.New(errs.UnsupportedMedia, "UNSUPPORTED_CONTENT_TYPE", "content-type %q is malformed", e.contentType).Wrap(err)
		}
		media = m
	}
	var err error
	switch media {
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		err = e.lines(into)
	case "application/cloudevents+json":
		err = e.structured(into)
	case "application/cloudevents-batch+json":
		err = e.structuredBatch(into)
	default:
		err = e.raw(media, into)
	}
	if err != nil {
		return err
	}
	if len(into.Messages) == 0 {
		return errs.New(errs.Invalid, "NO_MESSAGES", "the body has no messages").WithNext("send at least one")
	}
	return nil
}

func (e *events) add(into *wirejson.Batch, value []byte) {
	into.Messages = append(into.Messages, wirejson.Message{Key: e.key, Value: value, Headers: e.headers})
}

// raw takes the body as one payload, byte for byte. Only what calls itself JSON must be JSON.
func (e *events) raw(media string, into *wirejson.Batch) error {
	if media == "application/json" {
		if err := wirejson.ValidJSON(e.body); err != nil {
			return err
		}
		e.json = true
	}
	value := e.body
	if value == nil {
		value = []byte{} // an empty payload, not a tombstone
	}
	if len(e.binary) > 0 {
		if err := e.binaryHeaders(); err != nil {
			return err
		}
	}
	e.add(into, value)
	return nil
}

// lines takes each line as a payload. One bad line refuses all of them, so that a repeat does not publish the good ones twice.
func (e *events) lines(into *wirejson.Batch) error {
	for start, n := 0, 1; start < len(e.body); n++ {
		end := len(e.body)
		if i := bytes.IndexByte(e.body[start:], '\n'); i >= 0 {
			end = start + i
		}
		line := bytes.TrimRight(e.body[start:end], "\r")
		if len(bytes.TrimSpace(line)) > 0 {
			if err := wirejson.ValidJSONAt(e.body, start, start+len(line)); err != nil {
				coded := errs.From(err)
				return errs.New(coded.Code, coded.Reason, "%s", coded.Message).WithField("line " + strconv.Itoa(n)).
					WithNext("mend the line and send all of them again: none was published")
			}
			e.add(into, line)
		}
		start = end + 1
	}
	e.json = true
	return nil
}

// binaryHeaders turns CloudEvents attributes that came beside the body into record headers.
func (e *events) binaryHeaders() error {
	var ce attributes
	for _, name := range e.binary {
		value, _ := e.attribute(name)
		if err := ce.set(name, percentDecoded(value)); err != nil {
			return err
		}
	}
	if err := ce.complete(); err != nil {
		return err
	}
	if e.contentType != "" {
		ce.contentType = e.contentType
	}
	e.apply(&ce)
	return nil
}

// percentDecoded undoes the HTTP binding's encoding of attribute values; what is no such encoding stays as it is.
func percentDecoded(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

func cloudEventFault(field, format string, args ...any) *errs.Error {
	return errs.New(errs.Invalid, "MALFORMED_CLOUDEVENT", "%s", fmt.Sprintf(format, args...)).WithField(field)
}
