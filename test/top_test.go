//go:build linux

package test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/test/harness"
)

// TestChannelTop looks at the live table on a terminal: it draws, fits the window, follows its size, and gives the terminal back as it
// was, however it is left.
func TestChannelTop(t *testing.T) {
	t.Parallel()
	suite := harness.Run(t, binary)
	for i := range 12 {
		must(t, suite.CreateChannel(t.Context(), http.DefaultClient, fmt.Sprintf("channel-%02d", i), ""))
	}
	for name, leave := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			s := startOnScreen(t, 160, 30, "channel", "top", "--interval", "100ms", "--addr", suite.URL(harness.BrokerHTTP))
			s.await("CHANNEL AGENTS REVISION MSG/S .* CIRCUIT", "channel-00 ", "channel-11 ")
			s.resize(80, 8)
			s.await("^..:..:.., 12 channels", "^CHANNEL .* CIRCUIT$", "^and 8 more$")
			s.resize(160, 30)
			s.await("REVISION", "channel-11 ")
			s.leave(leave)
		})
	}
	t.Run("SIGTERM", func(t *testing.T) {
		s := startOnScreen(t, 160, 30, "channel", "top", "--addr", suite.URL(harness.BrokerHTTP))
		s.await("channel-11 ")
		must(t, s.cmd.Process.Signal(unix.SIGTERM))
		s.leave("")
	})
	t.Run("no terminal", func(t *testing.T) {
		for _, format := range []string{"table", "json"} {
			out, err := exec.CommandContext(t.Context(), binary, "channel", "top", "-n", "2", "--interval", "100ms", "-o", format,
				"--addr", suite.URL(harness.BrokerHTTP)).Output()
			if err != nil || strings.Contains(string(out), "\x1b") || strings.Count(string(out), "channel-07") != 2 {
				t.Errorf("-o %s: %v\n%q", format, err, out)
			}
		}
	})
	t.Run("broker away", func(t *testing.T) {
		s := startOnScreen(t, 160, 30, "channel", "top", "--interval", "100ms", "--addr", suite.URL(harness.BrokerHTTP))
		s.await("channel-11 ")
		must(t, suite.Kill())
		s.await("12 channels +the broker does not answer now: ", "channel-11 ")
		s.leave("q")
	})
}
