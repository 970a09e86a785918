//go:build linux

package test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// screen is a command on a terminal of its own.
type screen struct {
	*testing.T
	cmd      *exec.Cmd
	tty      *os.File // our end
	peer     *os.File // the command's end
	before   *unix.Termios
	output   chan string
	seen     strings.Builder
	lines    [][]rune
	row, col int
	size     pty.Winsize
}

func startOnScreen(t *testing.T, width, height uint16, args ...string) *screen {
	t.Helper()
	tty, peer, err := pty.Open()
	must(t, err)
	s := &screen{T: t, tty: tty, peer: peer, output: make(chan string)}
	s.resize(width, height)
	s.before, err = unix.IoctlGetTermios(int(peer.Fd()), unix.TCGETS)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	s.cmd = exec.CommandContext(ctx, binary, args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = peer, peer, peer
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	must(t, s.cmd.Start())
	go s.read()
	t.Cleanup(func() {
		cancel()
		_ = s.cmd.Wait() // whatever it says, the test is over
		tty.Close()
		peer.Close()
		for range s.output { // until it has noticed
		}
	})
	return s
}

func (s *screen) read() {
	defer close(s.output)
	buffer := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buffer)
		if n > 0 {
			s.output <- string(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (s *screen) resize(width, height uint16) {
	s.Helper()
	s.size = pty.Winsize{Cols: width, Rows: height}
	must(s.T, pty.Setsize(s.tty, &s.size))
}

// await waits until each pattern matches a line of what the terminal shows; cells that are blank count as one space.
func (s *screen) await(patterns ...string) {
	s.Helper()
	for {
		lines := s.show()
		missing := ""
		for _, p := range patterns {
			re := regexp.MustCompile(p)
			found := false
			for _, line := range lines {
				found = found || re.MatchString(line)
			}
			if !found {
				missing = p
			}
		}
		if missing == "" {
			s.Logf("%dx%d:\n%s", s.size.Cols, s.size.Rows, s.raw())
			return
		}
		text, ok := <-s.output
		if !ok {
			s.Fatalf("the command ended, and %q was never shown:\n%s", missing, s.raw())
		}
		s.feed(text)
	}
}

var blanks = regexp.MustCompile(" +")

func (s *screen) raw() string {
	var text strings.Builder
	for _, line := range s.lines {
		text.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return text.String()
}

func (s *screen) show() []string { return strings.Split(blanks.ReplaceAllString(s.raw(), " "), "\n") }

// leave presses a key, and expects that the command ends well and leaves the terminal as it was.
func (s *screen) leave(key string) {
	s.Helper()
	_, err := io.WriteString(s.tty, key)
	must(s.T, err)
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	for waiting := true; waiting; {
		select {
		case text := <-s.output:
			s.feed(text)
		case err := <-ended:
			must(s.T, err)
			waiting = false
		}
	}
	for !strings.HasSuffix(s.seen.String(), "\x1b[?1049l") { // what it printed last may still be on its way
		text, ok := <-s.output
		if !ok {
			s.Fatalf("the other screen stays: %q", s.seen.String())
		}
		s.feed(text)
	}
	for _, mode := range []string{"7", "25"} {
		if all := s.seen.String(); strings.LastIndex(all, "\x1b[?"+mode+"h") < strings.LastIndex(all, "\x1b[?"+mode+"l") {
			s.Errorf("mode %s stays off", mode)
		}
	}
	after, err := unix.IoctlGetTermios(int(s.peer.Fd()), unix.TCGETS)
	if err != nil || !reflect.DeepEqual(after, s.before) {
		s.Errorf("the terminal is not as it was: %+v, before %+v (%v)", after, s.before, err)
	}
}

var sequence = regexp.MustCompile(`^\x1b\[(\??)([0-9;]*)([A-Za-z])`)

// feed draws output: as much of a terminal as the command needs. Lines do not wrap.
func (s *screen) feed(text string) {
	s.seen.WriteString(text)
	for len(text) > 0 {
		if m := sequence.FindStringSubmatch(text); m != nil {
			s.control(m[1] == "?", m[2], m[3])
			text = text[len(m[0]):]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\x1b': // cut in two: the rest comes next
			more, ok := <-s.output
			if !ok {
				return
			}
			s.seen.WriteString(more)
			text = "\x1b" + text + more
		case '\r':
			s.col = 0
		case '\n':
			s.row++
		default:
			s.put(r)
		}
	}
}

func (s *screen) put(r rune) {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	for len(s.lines[s.row]) <= s.col {
		s.lines[s.row] = append(s.lines[s.row], ' ')
	}
	s.lines[s.row][s.col] = r
	s.col++
	if s.col > int(s.size.Cols) || s.row >= 30 {
		s.Errorf("%q is drawn at line %d, column %d of a terminal of %dx%d", r, s.row, s.col, s.size.Cols, s.size.Rows)
	}
}

func (s *screen) control(private bool, parameter, final string) {
	switch {
	case private || final == "m":
	case final == "H" && parameter == "":
		s.row, s.col = 0, 0
	case final == "K" && parameter == "":
		if s.row < len(s.lines) {
			s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
		}
	case final == "J" && parameter == "":
		s.lines = s.lines[:min(s.row+1, len(s.lines))]
	default:
		s.Fatalf("this terminal does not know the sequence %q", parameter+final)
	}
}
