//go:build clients

package clients

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

var (
	root, binary string
	httpClient   = &http.Client{}
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "databus-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if root, err = harness.Root(); err == nil {
		binary, err = harness.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// execute runs a command to its good end in a folder, and answers with its standard output.
func execute(t *testing.T, folder string, stdin []byte, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = folder
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q in %s: %v\n%s%s", command, folder, err, out, stderr.Bytes())
	}
	return string(out)
}
