package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/databus-suite/databus/internal/config"
	"github.com/databus-suite/databus/internal/errs"
)

// Exit codes of every command. docs/cli.md explains them; scripts rely on them. A signal that ended a command gives 128 and
// the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
)

// usage is a command line that makes no sense, found before anything was done.
type usage struct {
	message string
	next    string
}

func (u *usage) Error() string { return u.message }

// report prints err in one line with its next step to standard error and returns the exit code that fits it. Mistakes in a
// config have a line each.
func report(term *terminal, err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		for mistake := range strings.Lines(err.Error()) {
			fmt.Fprintln(term.err, "databus: "+strings.TrimRight(mistake, "\n"))
		}
		return exitUsage
	}
	code, message, next := explain(err)
	line := "databus: " + strings.ReplaceAll(message, "\n", " ")
	if next != "" {
		line += "; " + next
	}
	fmt.Fprintln(term.err, line)
	return code
}

// explain finds the exit code, what went wrong and what to do next.
func explain(err error) (code int, message, next string) {
	if u, ok := errors.AsType[*usage](err); ok {
		return exitUsage, u.message, u.next
	}
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return exitError, err.Error(), ""
	}
	message = err.Error()
	if e.Code == errs.Invalid && e.Field != "" && !strings.Contains(message, e.Field) {
		message = e.Field + ": " + message
	}
	return exitCode(e.Code), message, e.Next
}

func exitCode(c errs.Code) int {
	switch c {
	case errs.Invalid, errs.TooLarge, errs.UnsupportedMedia, errs.KeyReused, errs.OutOfRange:
		return exitUsage
	case errs.NotFound:
		return exitNotFound
	case errs.AlreadyExists, errs.Conflict, errs.Precondition:
		return exitConflict
	case errs.Unavailable, errs.Exhausted, errs.Deadline:
		return exitUnavailable
	default:
		return exitError
	}
}

// firstLine is err without the lines that were joined to it.
func firstLine(err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e.Error()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
