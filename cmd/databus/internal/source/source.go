package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/keypath"
	"github.com/databus-suite/databus/internal/wirejson"
)

// Format says what a message is in the input.
type Format int

// Formats of input.
const (
	Lines    Format = iota // a line is a payload, any bytes; empty lines are skipped
	NDJSON                 // a line is a payload, which must be JSON; empty lines are skipped
	Raw                    // the whole input is one payload, byte for byte
	Envelope               // a line is a message object with key, value, headers, id, timestamp
)

// Options are the same for every input of one command.
type Options struct {
	Format Format
	// Key of every message that has none of its own; nil: none.
	Key []byte
	// KeyPath takes the key from a JSON payload; nil: not used.
	KeyPath *keypath.Path
	// KeySeparator splits a line into key and payload; empty: not used.
	KeySeparator string
	// Headers that every message gets.
	Headers []*databusv1.Header
}

// Message is one message and where it was found.
type Message struct {
	*databusv1.Message
	Name string // of the input
	Line int    // from 1; 0 where the input is one message
	Size int    // bytes of input that it took
}

// Where is the place in the form that editors understand.
func (m Message) Where() string { return where(m.Name, m.Line) }

func where(name string, line int) string {
	if line == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, line)
}

// Source reads the messages of one input.
type Source struct {
	name    string
	in      *bufio.Reader
	options Options
	line    int
	done    bool
	batch   wirejson.Batch
}

// New returns a source that reads from in; name is for errors.
func New(name string, in io.Reader, options Options) *Source {
	return &Source{name: name, in: bufio.NewReaderSize(in, 256<<10), options: options}
}

// Next returns the next message, and io.EOF after the last. Another error ends the source: an *errs.Error that names file
// and line where a message is malformed, else what reading returned.
func (s *Source) Next() (Message, error) {
	if s.options.Format == Raw {
		return s.whole()
	}
	for {
		line, err := s.in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return Message{}, s.failed(err)
		}
		s.line++
		size := len(line)
		if line = trimEnd(line); len(line) == 0 {
			continue
		}
		m, parseErr := s.parse(line)
		if parseErr != nil {
			return Message{}, fmt.Errorf("%s: %w", where(s.name, s.line), parseErr)
		}
		return Message{Message: m, Name: s.name, Line: s.line, Size: size}, nil
	}
}

func (s *Source) whole() (Message, error) {
	if s.done {
		return Message{}, io.EOF
	}
	s.done = true
	payload, err := io.ReadAll(s.in)
	if err != nil {
		return Message{}, s.failed(err)
	}
	m, err := s.message(payload)
	if err != nil {
		return Message{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return Message{Message: m, Name: s.name, Size: len(payload)}, nil
}

func (s *Source) failed(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return errs.New(errs.Invalid, "INPUT", "read %s", s.name).Wrap(err)
}

func (s *Source) parse(line []byte) (*databusv1.Message, error) {
	switch s.options.Format {
	case NDJSON:
		if err := wirejson.ValidJSON(line); err != nil {
			return nil, onLine(err, 0)
		}
	case Envelope:
		return s.envelope(line)
	case Lines, Raw:
	}
	if s.options.KeySeparator != "" {
		key, payload, ok := bytes.Cut(line, []byte(s.options.KeySeparator))
		if !ok {
			return nil, errs.New(errs.Invalid, "NO_SEPARATOR", "the line has no %q between key and payload", s.options.KeySeparator).
				WithNext("give every line a key, or leave --key-separator out")
		}
		m, err := s.message(payload)
		if m != nil {
			m.Key = key
		}
		return m, err
	}
	return s.message(line)
}

// message wraps a payload.
func (s *Source) message(payload []byte) (*databusv1.Message, error) {
	if payload == nil {
		payload = []byte{} // empty, not a tombstone
	}
	m := &databusv1.Message{Key: s.options.Key, Value: payload, Headers: s.options.Headers}
	if m.Key == nil && s.options.KeyPath != nil {
		if err := wirejson.ValidJSON(payload); err != nil {
			return nil, fmt.Errorf("take the key by %s: %w", s.options.KeyPath, onLine(err, 0))
		}
		if key, ok := s.options.KeyPath.Key(payload); ok {
			m.Key = bytes.Clone(key)
		}
	}
	return m, nil
}

const (
	envelopeBefore = `{"messages":[`
	envelopeAfter  = `]}`
)

// envelope reads a message object as the JSON API takes it.
func (s *Source) envelope(line []byte) (*databusv1.Message, error) {
	body := make([]byte, 0, len(envelopeBefore)+len(line)+len(envelopeAfter))
	body = append(append(append(body, envelopeBefore...), line...), envelopeAfter...)
	// Checked alone first, so that nothing on the line can close the list that it is put into.
	if err := wirejson.ValidJSON(line); err != nil {
		return nil, onLine(err, 0)
	}
	if err := wirejson.DecodePublish(body, &s.batch); err != nil {
		return nil, onLine(err, len(envelopeBefore))
	}
	decoded := &s.batch.Messages[0]
	if decoded.Key == nil {
		decoded.Key = s.options.Key
	}
	if err := decoded.Check(); err != nil {
		return nil, err
	}
	m := &databusv1.Message{}
	decoded.ToProto(m)
	// The batch's buffers are used again by the next line.
	m.Key, m.Value = cloneKeepNil(m.Key), cloneKeepNil(m.Value)
	for _, h := range m.GetHeaders() {
		h.Value = cloneKeepNil(h.GetValue())
	}
	m.Headers = append(m.Headers, s.options.Headers...)
	if m.Key == nil && m.Value != nil && s.options.KeyPath != nil && wirejson.ValidJSON(m.GetValue()) == nil {
		if key, ok := s.options.KeyPath.Key(m.GetValue()); ok {
			m.Key = bytes.Clone(key)
		}
	}
	return m, nil
}

// onLine makes an error of package wirejson relative to its line: the line's number is in front already, and what was put
// before the line counts neither as columns nor in the path.
func onLine(err error, before int) error {
	e := errs.From(err)
	column, convErr := strconv.Atoi(e.Meta["column"])
	_, what, ok := strings.Cut(e.Message, ": ")
	if convErr != nil || !ok {
		return err
	}
	c := *e
	c.Message = fmt.Sprintf("column %d: %s", column-before, strings.ReplaceAll(what, "messages[0].", ""))
	c.Field = strings.TrimPrefix(e.Field, "messages[0].")
	if strings.Contains(what, "did you mean") {
		c.Next = "" // it says the same again
	}
	return &c
}

func trimEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// cloneKeepNil copies b. An empty value is not the same as none.
func cloneKeepNil(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
