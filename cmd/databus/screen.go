package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The escape sequences of a live view: another screen, without cursor and wrapped lines, and back; to its corner; to the end of a
// line; what is below.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	screenClose = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K"
	screenRest  = "\x1b[J"
)

// liveScreen is a terminal of which a command has all, to draw one frame over the other. close gives it back as it was.
type liveScreen struct {
	term    *terminal
	restore func()
	resized chan os.Signal // gets one when the terminal has another size
}

// openScreen takes the terminal. Its keys come without Enter and are not shown; leave is called once, at q or Ctrl-C.
func openScreen(term *terminal, leave func()) *liveScreen {
	s := &liveScreen{term: term, restore: func() {}, resized: make(chan os.Signal, 1)}
	if term.raw != nil {
		if restore, err := term.raw(); err == nil { // else Ctrl-C is a signal
			s.restore = restore
			go readKeys(term.in, leave) // ends with the process: nothing else wants its input
		}
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	fmt.Fprint(term.out, screenOpen)
	return s
}

func readKeys(in io.Reader, leave func()) {
	defer leave()
	key := make([]byte, 1)
	for {
		if _, err := io.ReadFull(in, key); err != nil || bytes.ContainsAny(key, "qQ\x03\x04") {
			return
		}
	}
}

// size is the terminal's, now; 0 where it does not say.
func (s *liveScreen) size() (width, height int) {
	if s.term.size == nil {
		return 0, 0
	}
	return s.term.size()
}

// draw shows a frame in place of the one before. Of one that is too high it shows what fits, and how many lines do not.
func (s *liveScreen) draw(frame []byte) error {
	lines := bytes.Split(bytes.TrimRight(frame, "\n"), []byte("\n"))
	if _, height := s.size(); height > 1 && len(lines) > height {
		more := len(lines) - height + 1
		lines = append(lines[:height-1:height-1], fmt.Appendf(nil, "and %d more", more))
	}
	out := append([]byte(screenHome), bytes.Join(lines, []byte(lineRest+"\r\n"))...)
	_, err := s.term.out.Write(append(out, lineRest+screenRest...))
	return err
}

func (s *liveScreen) close() {
	signal.Stop(s.resized)
	fmt.Fprint(s.term.out, screenClose)
	s.restore()
}
