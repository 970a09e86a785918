package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/text"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/wirejson"
)

// Message is a message with the place it was read from.
type Message struct {
	Topic     string
	Partition int32
	*databusv1.StoredMessage
}

// MessageFormat is how messages are printed.
type MessageFormat string

// Formats of messages, besides Table, JSON and YAML.
const (
	// Pretty is a line about the message, its headers and its payload, indented where it is JSON.
	Pretty MessageFormat = "pretty"
	// Value is the payload alone, byte for byte, and a newline.
	Value MessageFormat = "value"
	// Envelope is a JSON object a line as applications send it: without offset and partition, ready to be published again.
	Envelope MessageFormat = "envelope"
)

// Messages prints messages one by one, in one format.
type Messages struct {
	out     *bufio.Writer
	screen  Screen
	append  func(dst []byte, msg Message) ([]byte, error)
	count   int
	scratch []byte
}

// NewMessages returns a printer of messages. A template, where there is one, takes the format's place.
func NewMessages(out io.Writer, format MessageFormat, template string, screen Screen) (*Messages, error) {
	m := &Messages{out: bufio.NewWriterSize(out, 64<<10), screen: screen}
	if template != "" {
		parts, err := parseTemplate(template)
		if err != nil {
			return nil, err
		}
		m.append = func(dst []byte, msg Message) ([]byte, error) { return appendTemplate(dst, parts, msg), nil }
		return m, nil
	}
	switch format {
	case MessageFormat(Table):
		m.append = m.row
	case MessageFormat(JSON):
		m.append = jsonLine
	case MessageFormat(YAML):
		m.append = m.yaml
	case Pretty:
		m.append = m.pretty
	case Value:
		m.append = value
	case Envelope:
		m.append = envelope
	default:
		return nil, fmt.Errorf("no message format is called %q", format)
	}
	return m, nil
}

// Write prints one message. It may stay in the buffer until Flush.
func (m *Messages) Write(msg Message) error {
	var err error
	if m.scratch, err = m.append(m.scratch[:0], msg); err != nil {
		return fmt.Errorf("print %s/%d offset %d: %w", msg.Topic, msg.Partition, msg.GetOffset(), err)
	}
	m.count++
	_, err = m.out.Write(m.scratch)
	return err
}

// Flush hands everything printed so far to the other end.
func (m *Messages) Flush() error { return m.out.Flush() }

func value(dst []byte, msg Message) ([]byte, error) {
	return append(append(dst, msg.GetValue()...), '\n'), nil
}

// jsonLine is the same object as REST has, with the partition in front.
func jsonLine(dst []byte, msg Message) ([]byte, error) {
	return append(wirejson.AppendStoredLine(dst, msg.Partition, msg.StoredMessage), '\n'), nil
}

func envelope(dst []byte, msg Message) ([]byte, error) {
	return append(wirejson.AppendMessage(dst, &databusv1.Message{
		Key: msg.Key, Value: msg.Value, Headers: msg.GetHeaders(), Timestamp: msg.GetTimestamp(),
	}, true), '\n'), nil
}

func (m *Messages) yaml(dst []byte, msg Message) ([]byte, error) {
	y, err := yaml.JSONToYAML(wirejson.AppendStoredLine(nil, msg.Partition, msg.StoredMessage))
	if m.count > 0 {
		dst = append(dst, "---\n"...)
	}
	return append(dst, y...), err
}

// Columns of the table have fixed widths, because messages are printed as they come.
const (
	keyWidth     = 20
	valueColumn  = 9 + 2 + 10 + 2 + 24 + 2 + keyWidth + 2
	smallestText = 20
	tombstone    = "(tombstone)"
)

func (m *Messages) row(dst []byte, msg Message) ([]byte, error) {
	if m.count == 0 {
		header := fmt.Sprintf("%-9s  %10s  %-24s  %-*s  %s", "PARTITION", "OFFSET", "TIMESTAMP", keyWidth, "KEY", "VALUE")
		dst = append(append(dst, m.paint(text.Bold, header)...), '\n')
	}
	payload := tombstone
	if msg.Value != nil {
		payload = printable(msg.GetValue())
	}
	key := "-"
	if msg.Key != nil {
		key = printable(msg.GetKey())
	}
	if m.screen.Width > 0 {
		key = cut(key, keyWidth)
		payload = cut(payload, max(smallestText, m.screen.Width-valueColumn))
	}
	return fmt.Appendf(dst, "%9d  %10d  %-24s  %s  %s\n",
		msg.Partition, msg.GetOffset(), timestamp(msg), text.Pad(key, keyWidth, ' '), payload), nil
}

func (m *Messages) pretty(dst []byte, msg Message) ([]byte, error) {
	if m.count > 0 {
		dst = append(dst, '\n')
	}
	place := fmt.Sprintf("%s/%d offset %d", msg.Topic, msg.Partition, msg.GetOffset())
	dst = fmt.Appendf(dst, "%s  %s", m.paint(text.Bold, place), timestamp(msg))
	if msg.Key != nil {
		dst = fmt.Appendf(dst, "  key %s", m.paint(text.FgCyan, printable(msg.GetKey())))
	}
	dst = append(dst, '\n')
	for _, h := range msg.GetHeaders() {
		dst = fmt.Appendf(dst, "  %s %s\n", m.paint(text.Faint, printable([]byte(h.GetKey()))+":"), printable(h.GetValue()))
	}
	if msg.Value == nil {
		return append(append(dst, m.paint(text.Faint, tombstone)...), '\n'), nil
	}
	var indented bytes.Buffer
	if json.Indent(&indented, msg.GetValue(), "", "  ") == nil {
		return append(append(dst, escape(indented.String(), isLayout)...), '\n'), nil
	}
	return append(append(dst, printable(msg.GetValue())...), '\n'), nil
}

func (m *Messages) paint(c text.Color, s string) string {
	if !m.screen.Color {
		return s
	}
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}

func timestamp(msg Message) string {
	return msg.GetTimestamp().AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// printable is b on one line without control characters: a payload must not be able to steer somebody's terminal.
func printable(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("(%d bytes) %x", len(b), b[:min(len(b), 64)])
	}
	return escape(string(b), func(rune) bool { return false })
}

// isLayout is what indenting put in.
func isLayout(r rune) bool { return r == '\n' }

// escape writes out every rune that does not print and is not kept. A control character is not always below a space: a JSON
// string may hold U+009B, which steers terminals as well as an escape does.
func escape(s string, keep func(rune) bool) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) && !keep(r) }
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if !bad(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// cut shortens s to a width and shows that it did.
func cut(s string, width int) string {
	if len(s) <= width || text.StringWidth(s) <= width {
		return s
	}
	return text.Trim(s, width-1) + "…"
}
