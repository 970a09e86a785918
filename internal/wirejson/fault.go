package wirejson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/databus-suite/databus/internal/errs"
)

// Reasons of the errors that this package returns.
const (
	ReasonMalformed = "MALFORMED_JSON"
	ReasonUnknown   = "UNKNOWN_FIELD"
	ReasonDuplicate = "DUPLICATE_FIELD"
	ReasonInvalid   = "INVALID_FIELD"
)

// fault is an error that still knows its place as an offset; the path grows as it travels up.
type fault struct {
	at     int
	path   string
	reason string
	what   string
	next   string
}

func syntaxFault(at int, bad problem) *fault {
	return &fault{at: at, reason: ReasonMalformed, what: problemTexts[bad]}
}

func fieldFault(at int, format string, args ...any) *fault {
	return &fault{at: at, reason: ReasonInvalid, what: fmt.Sprintf(format, args...)}
}

// under puts a field in front of the fault's path.
func (f *fault) under(name string) *fault {
	if !plainName(name) {
		name = "[" + strconv.Quote(name) + "]"
	}
	if f.path != "" && f.path[0] != '[' {
		name += "."
	}
	f.path = name + f.path
	return f
}

// item puts an index in front of the fault's path.
func (f *fault) item(index int) *fault {
	name := "[" + strconv.Itoa(index) + "]"
	if f.path != "" && f.path[0] != '[' {
		name += "."
	}
	f.path = name + f.path
	return f
}

func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return name != ""
}

// coded turns the fault into the error that callers see.
func (f *fault) coded(doc []byte) *errs.Error {
	line, column := Position(doc, f.at)
	var b strings.Builder
	fmt.Fprintf(&b, "line %d, column %d: ", line, column)
	if f.path != "" {
		b.WriteString(f.path)
		b.WriteString(": ")
	}
	b.WriteString(f.what)
	e := errs.New(errs.Invalid, f.reason, "%s", b.String()).WithMeta("line", strconv.Itoa(line)).WithMeta("column", strconv.Itoa(column))
	if f.path != "" {
		e = e.WithField(f.path)
	}
	if f.next != "" {
		return e.WithNext("%s", f.next)
	}
	return e.WithNext("correct the JSON at line %d, column %d, and send the whole request again", line, column)
}

// Position tells line and column of an offset in a document, both from 1; columns count characters.
func Position(doc []byte, offset int) (line, column int) {
	offset = min(offset, len(doc))
	before := doc[:offset]
	line = 1 + bytes.Count(before, []byte{'\n'})
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

// ValidJSON checks that b is exactly one JSON value in valid UTF-8, with or without space around it. The error is an
// *errs.Error that names line and column.
func ValidJSON(b []byte) error {
	return ValidJSONAt(b, 0, len(b))
}

// ValidJSONAt is ValidJSON for doc[start:end]; line and column are those in doc.
func ValidJSONAt(doc []byte, start, end int) error {
	part := doc[:end]
	i, bad := scanValueWhole(part, skipSpace(part, start))
	if bad == fine {
		return nil
	}
	return syntaxFault(i, bad).coded(doc)
}

func scanValueWhole(b []byte, i int) (int, problem) {
	i, bad := scanValue(b, i)
	if bad != fine {
		return i, bad
	}
	if i = skipSpace(b, i); i < len(b) {
		return i, trailing
	}
	return i, fine
}

// isPayloadJSON tells whether b can stand in a document unchanged: one JSON value, nothing around it, valid UTF-8.
func isPayloadJSON(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	end, bad := scanValue(b, 0)
	return bad == fine && end == len(b)
}
