package errs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Error is a failure that a caller can act on. Values are not changed once made: the With methods and Wrap
// return copies, so that one can be kept in a variable and be refined by many goroutines.
type Error struct {
	Code       Code
	Reason     string            // what happened, for programs: UPPER_SNAKE such as CHANNEL_NOT_FOUND
	Message    string            // what happened, for people: operation and identity
	Field      string            // path of the offending field in lowerCamel, such as config.batch.linger
	Violations []Violation       // every offending field, where there is more than one
	Next       string            // what to do next
	Retryable  bool              // the same request may succeed later
	RetryAfter time.Duration     // how long to wait before that; zero says nothing
	Meta       map[string]string // further facts for programs
	Err        error             // the cause
}

// Violation is one field that broke a rule.
type Violation struct {
	Field   string
	Message string
}

// New returns an error of the given code. Exhausted and Unavailable are retryable from the start.
func New(code Code, reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Message: sprintf(format, args), Retryable: code.mapping().retry}
}

func sprintf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// Error returns the message, followed by the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is match another *Error with the same code and reason, so that an error kept in a variable
// is found after it was refined or has crossed the wire.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Reason == e.Reason
}

// WithNext returns a copy that tells the caller what to do next.
func (e *Error) WithNext(format string, args ...any) *Error {
	c := *e
	c.Next = sprintf(format, args)
	return &c
}

// WithField returns a copy that names the offending field.
func (e *Error) WithField(path string) *Error {
	c := *e
	c.Field = path
	return &c
}

// WithRetryAfter returns a retryable copy that asks the caller to wait for d.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	c := *e
	c.Retryable, c.RetryAfter = true, d
	return &c
}

// WithMeta returns a copy that carries one more fact. The keys kind, field, nextStep and retryable are taken.
func (e *Error) WithMeta(key, value string) *Error {
	c := *e
	c.Meta = maps.Clone(e.Meta)
	if c.Meta == nil {
		c.Meta = map[string]string{}
	}
	c.Meta[key] = value
	return &c
}

// Wrap returns a copy with err as its cause.
func (e *Error) Wrap(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// HTTPStatus returns the HTTP status to answer with.
func (e *Error) HTTPStatus() int { return e.Code.HTTP() }

// CodeOf returns the code of err as From sees it, and zero for nil.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	return From(err).Code
}

// Retryable reports whether the operation that returned err may succeed when it is tried again.
func Retryable(err error) bool { return err != nil && From(err).Retryable }

// reasonInternal marks an error that nobody gave a code.
const reasonInternal = "INTERNAL"

// From returns the *Error that err is or carries: an *Error in its chain, a gRPC status, a Connect error or a
// context error. Text that was wrapped around it is kept in the message. Anything else becomes Internal, with
// err as the cause, which stays in this process. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return withPrefix(e, err)
	}
	if e := fromWire(err); e != nil {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Code: Canceled, Reason: "CANCELED", Message: "canceled by the caller", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: Deadline, Reason: "DEADLINE_EXCEEDED", Message: "time ran out", Err: err,
			Next: "give it more time, and check whether it took effect before trying again"}
	}
	return &Error{Code: Internal, Reason: reasonInternal, Message: "internal error", Err: err,
		Next: "look in the log of the service for the cause"}
}

// withPrefix returns e with the text that outer has in front of it, and e itself where there is none.
func withPrefix(e *Error, outer error) *Error {
	text, inner := outer.Error(), e.Error()
	n := len(text) - len(inner)
	if n <= 0 || text[n:] != inner {
		return e
	}
	c := *e
	c.Message = text[:n] + e.Message
	return &c
}
