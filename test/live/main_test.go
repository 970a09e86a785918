package live

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// binary is the path of the binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "databus-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = harness.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// size is a test's size: small, unless the environment asks for another.
func size(t *testing.T, variable string, small int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number from 1", variable, text)
	}
	return n
}

// startBroker runs a broker on a directory of its own.
func startBroker(t *testing.T) *harness.Service {
	t.Helper()
	return harness.RunService(t, binary, "broker", "data_dirs="+t.TempDir())
}

// startAgent runs an agent of a broker's.
func startAgent(t *testing.T, brokerAddr string, settings ...string) *harness.Service {
	t.Helper()
	return harness.RunService(t, binary, "agent", append([]string{"broker.grpc_addr=" + brokerAddr, "data_dir=" + t.TempDir()}, settings...)...)
}
