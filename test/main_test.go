package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// binary is the path of the binary under test.
var binary string

// shared is a suite for the tests that neither stop it nor mind each other's channels. It is started at first use.
var shared struct {
	sync.Mutex
	suite *harness.Suite
	err   error
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "databus-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = harness.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if shared.suite != nil {
		if code != 0 {
			fmt.Fprintf(os.Stderr, "the shared databus dev printed last:\n%s\n", shared.suite.Output())
		}
		if err := shared.suite.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// sharedSuite is the suite that tests share. Its directory lies beside the binary and goes with it.
func sharedSuite(t *testing.T) *harness.Suite {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.suite == nil && shared.err == nil {
		shared.suite, shared.err = harness.Open(context.Background(), binary, filepath.Join(filepath.Dir(binary), "data"))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.suite
}
