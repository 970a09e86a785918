package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal is where a command reads from and writes to. Commands use nothing else, so that tests can stand in for all of it.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// inTTY, outTTY and errTTY tell whether a person is at the other end: colours, progress and prompts depend on it.
	inTTY, outTTY, errTTY bool
	// width of the terminal in columns; 0 where out is no terminal.
	width int
}

func newTerminal(in, out, err *os.File) *terminal {
	t := &terminal{
		in: in, out: out, err: err,
		inTTY:  term.IsTerminal(int(in.Fd())),
		outTTY: term.IsTerminal(int(out.Fd())),
		errTTY: term.IsTerminal(int(err.Fd())),
	}
	if t.outTTY {
		if w, _, sizeErr := term.GetSize(int(out.Fd())); sizeErr == nil {
			t.width = w
		}
	}
	return t
}
