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
	// size of the terminal now, in columns and lines; nil where out is none.
	size func() (width, height int)
	// raw gives up the line discipline, so that a key comes at once and is not shown, until restore; nil where in is no terminal.
	raw func() (restore func(), err error)
}

func newTerminal(in, out, err *os.File) *terminal {
	t := &terminal{
		in: in, out: out, err: err,
		inTTY:  term.IsTerminal(int(in.Fd())),
		outTTY: term.IsTerminal(int(out.Fd())),
		errTTY: term.IsTerminal(int(err.Fd())),
	}
	if t.outTTY {
		t.size = func() (width, height int) {
			width, height, sizeErr := term.GetSize(int(out.Fd()))
			if sizeErr != nil {
				return 0, 0
			}
			return width, height
		}
		t.width, _ = t.size()
	}
	if t.inTTY {
		t.raw = func() (func(), error) {
			before, err := term.MakeRaw(int(in.Fd()))
			return func() { _ = term.Restore(int(in.Fd()), before) }, err
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
