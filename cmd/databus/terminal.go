package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
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

// screen is how much freedom render has with what goes to out.
func (t *terminal) screen() render.Screen {
	return render.Screen{Color: t.outTTY && os.Getenv("NO_COLOR") == "", Width: t.width}
}

// confirm asks a person before something that cannot be undone. Without a person, as in scripts, the command itself is the
// answer.
func (t *terminal) confirm(yes bool, question string) error {
	if yes || !t.inTTY || !t.errTTY {
		return nil
	}
	fmt.Fprintf(t.err, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(t.in, &answer); err != nil || !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return &usage{message: "nothing was changed", next: "answer y, or give --yes"}
	}
	return nil
}
