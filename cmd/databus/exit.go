package main

import (
	"errors"
	"fmt"
	"strings"
)

// Exit codes of every command. docs/cli.md explains them; scripts rely on them.
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

// report prints err in one line with its next step to standard error and returns the exit code that fits it.
func report(term *terminal, err error) int {
	if err == nil {
		return exitOK
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
	return exitError, err.Error(), ""
}
