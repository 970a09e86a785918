package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/databus-suite/databus/services/broker"
	"github.com/databus-suite/databus/services/databus"
)

// child is a `databus` process of its own.
type child struct {
	cmd    *exec.Cmd
	stdout io.ReadCloser

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(b)
}

func (c *child) errText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// startChild starts this test binary as databus. It is killed when the test ends.
func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), self, args...)}
	c.cmd.Env = append(os.Environ(), asDatabus+"=1")
	c.cmd.Stderr = c
	if c.stdout, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended already
		_ = c.cmd.Wait()
		if t.Failed() {
			t.Logf("databus %s said:\n%s", strings.Join(args, " "), c.errText())
		}
	})
	return c
}

// untilReady reads standard output up to the line that starts with ready.
func (c *child) untilReady() (lines []string, err error) {
	in := bufio.NewScanner(c.stdout)
	for in.Scan() {
		lines = append(lines, in.Text())
		if strings.HasPrefix(in.Text(), "ready") {
			go func() { _, _ = io.Copy(io.Discard, c.stdout) }() // so that it never blocks
			return lines, nil
		}
	}
	return lines, fmt.Errorf("databus ended before it was ready: %w", errors.Join(in.Err(), errors.New(c.errText())))
}

// exitCode waits for the process to end.
func (c *child) exitCode() int {
	_, _ = io.Copy(io.Discard, c.stdout)
	_ = c.cmd.Wait() // the exit code says it all
	return c.cmd.ProcessState.ExitCode()
}

// freeOffset finds a port offset whose ports were free a moment ago.
func freeOffset(t *testing.T) int {
	t.Helper()
	defaults := []string{broker.DefaultHTTPAddr, broker.DefaultGRPCAddr, databus.DefaultHTTPAddr, databus.DefaultGRPCAddr}
	for range 100 {
		offset, free := 2000+rand.IntN(20_000), true
		for _, addr := range defaults {
			moved, err := move(addr, offset)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", moved)
			if err != nil {
				free = false
				continue
			}
			_ = l.Close() // it was only asked for
		}
		if free {
			return offset
		}
	}
	t.Fatal("found no free ports")
	return 0
}

// startDev starts a suite on dir. Where somebody was faster to take a port, it tries other ones.
func startDev(t *testing.T, dir string, args ...string) (c *child, offset int, lines []string) {
	t.Helper()
	for range 5 {
		offset = freeOffset(t)
		c = startChild(t, append([]string{"dev", "--data", dir, "--port-offset", fmt.Sprint(offset)}, args...)...)
		lines, err := c.untilReady()
		if err == nil {
			return c, offset, lines
		}
		if !strings.Contains(c.errText(), "port is in use") {
			t.Fatal(err)
		}
	}
	t.Fatal("every port offset was taken")
	return nil, 0, nil
}

func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, offset, lines := startDev(t, dir)
	brokerAddr, err := move(broker.DefaultHTTPAddr, offset)
	if err != nil {
		t.Fatal(err)
	}
	agentAddr, err := move(databus.DefaultHTTPAddr, offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{brokerAddr, agentAddr} {
		if !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("what is printed before ready does not name %s: %q", want, lines)
		}
	}

	t.Run("a second one on the same directory is refused", func(t *testing.T) {
		second := startChild(t, "dev", "--data", dir, "--port-offset", fmt.Sprint(freeOffset(t)))
		if code := second.exitCode(); code != exitConflict {
			t.Errorf("exit code %d, want %d", code, exitConflict)
		}
		for _, want := range []string{dir, fmt.Sprint(dev.cmd.Process.Pid), "--data", "--port-offset"} {
			if !strings.Contains(second.errText(), want) {
				t.Errorf("%q does not say %q", second.errText(), want)
			}
		}
	})
	t.Run("one on the same ports says which and how to change them", func(t *testing.T) {
		second := startChild(t, "dev", "--data", t.TempDir(), "--port-offset", fmt.Sprint(offset))
		if code := second.exitCode(); code != exitUnavailable {
			t.Errorf("exit code %d, want %d", code, exitUnavailable)
		}
		for _, want := range []string{brokerAddr, "broker", "--port-offset"} {
			if !strings.Contains(second.errText(), want) {
				t.Errorf("%q does not say %q", second.errText(), want)
			}
		}
	})
	t.Run("publish and read", func(t *testing.T) { publishAndRead(t, brokerAddr, agentAddr) })
	t.Run("every verb", func(t *testing.T) { everyVerb(t, brokerAddr) })
	t.Run("follow ends with the signal's code", func(t *testing.T) {
		follow := startChild(t, "read", "orders", "--follow", "--offset", "earliest", "-o", "value", "--addr", brokerAddr)
		line, err := bufio.NewReader(follow.stdout).ReadString('\n')
		if err != nil || line == "\n" {
			t.Fatalf("read %q, %v", line, err)
		}
		if err := follow.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := follow.exitCode(); code != 128+int(syscall.SIGINT) || follow.errText() != "" {
			t.Errorf("exit code %d and %q, want 130 and nothing", code, follow.errText())
		}
	})

	if err := dev.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := dev.exitCode(); code != exitOK || dev.errText() != "" {
		t.Errorf("SIGTERM: exit code %d and %q, want 0 and nothing", code, dev.errText())
	}
}

// publishAndRead publishes in every format and reads in every format.
func publishAndRead(t *testing.T, brokerAddr, agentAddr string) {
	mustRun(t, "", "channel", "create", "orders", "--key-path", "$.user", "--addr", brokerAddr)
	mustRun(t, "", "publish", "orders", `{"user":"u1","n":1.0}`, `{"user":"u1","n":2}`, "--addr", agentAddr)
	mustRun(t, "{\"user\":\"u1\",\"n\":3}\n\n{\"user\":\"u1\",\"n\":4}\n", "publish", "orders", "--ndjson", "--addr", agentAddr)
	mustRun(t, `{"key":"u1","value":{"n":5},"headers":{"a":"b"}}`, "publish", "orders", "--envelope", "--addr", agentAddr)
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, []byte("two\nlines\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "", "publish", "orders", "--raw", "--key", "u1", "--file", file, "--addr", agentAddr)
	mustRun(t, "u1:last\n", "publish", "orders", "--key-separator", ":", "--addr", agentAddr)

	got := mustRun(t, "", "read", "orders", "--format", `%k %v|`, "--addr", brokerAddr)
	want := `u1 {"user":"u1","n":1.0}|u1 {"user":"u1","n":2}|u1 {"user":"u1","n":3}|u1 {"user":"u1","n":4}|u1 {"n":5}|u1 two` + "\nlines\n|u1 last|"
	if got != want {
		t.Errorf("read back %q, want %q", got, want)
	}
	if got := mustRun(t, "", "read", "orders", "--offset", "-1", "-o", "value", "--addr", brokerAddr); got != "last\n" {
		t.Errorf("the last value is %q", got)
	}
	if got := mustRun(t, "", "read", "orders", "--since", "1h", "--limit", "1", "-o", "json", "--addr", brokerAddr); !strings.Contains(got, `"value":{"user":"u1","n":1.0}`) {
		t.Errorf("the first JSON line is %q", got)
	}

	envelopes := mustRun(t, "", "read", "orders", "-o", "envelope", "--addr", brokerAddr)
	mustRun(t, "", "channel", "create", "copy", "--addr", brokerAddr)
	mustRun(t, envelopes, "publish", "copy", "--envelope", "--addr", agentAddr)
	if got := mustRun(t, "", "read", "copy", "--format", `%k %v|`, "--addr", brokerAddr); got != want {
		t.Errorf("the copy holds %q, want %q", got, want)
	}

	code, _, stderr := runFor(t, "{\"n\":1}\n{\"n\":}\n", "publish", "orders", "--ndjson", "--addr", agentAddr)
	if code != exitUsage || !strings.Contains(stderr, "standard input:2: column 6") {
		t.Errorf("malformed JSON: exit code %d, %q", code, stderr)
	}
	code, _, stderr = runFor(t, "", "publish", "nobody", "x", "--addr", agentAddr)
	if code != exitNotFound || !strings.Contains(stderr, "databus channel create nobody") {
		t.Errorf("unknown channel: exit code %d, %q", code, stderr)
	}
	code, _, stderr = runFor(t, "", "read", "orders", "--addr", agentAddr)
	if code != exitUsage || !strings.Contains(stderr, "no broker") {
		t.Errorf("the agent's address for the broker's: exit code %d, %q", code, stderr)
	}
}

// everyVerb runs the rest of the verbs once and looks for what matters in what they print.
func everyVerb(t *testing.T, brokerAddr string) {
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"topic", "create", "t1", "-p", "2", "--retention", "1d"}, "1d"},
		{[]string{"topic", "update", "t1", "-p", "3", "--set", "segmentBytes=1MiB"}, "3"},
		{[]string{"topic", "get", "t1"}, "HIGH WATERMARK"},
		{[]string{"topic", "get", "t1", "-o", "yaml"}, "segmentBytes: \"1048576\""},
		{[]string{"topic", "list", "-o", "json"}, `"name":"t1"`},
		{[]string{"topic", "delete-records", "t1", "-p", "0", "--before", "-1"}, "LOG START"},
		{[]string{"topic", "delete", "t1"}, ""},
		{[]string{"channel", "create", "c1", "--route", `t2=key == "x"`, "--route", "t3"}, "t2,t3"},
		{[]string{"channel", "update", "c1", "--linger", "7ms", "--dry-run"}, "batch.linger"},
		{[]string{"channel", "update", "c1", "--linger", "7ms"}, "c1"},
		{[]string{"channel", "history", "c1"}, "batch.linger"},
		{[]string{"channel", "diff", "c1"}, "7ms"},
		{[]string{"channel", "rollback", "c1", "1"}, "c1"},
		{[]string{"channel", "update", "c1", "--codec", "lz4", "--canary", "zone=a"}, "canary"},
		{[]string{"channel", "get", "c1"}, "LZ4"},
		{[]string{"channel", "promote", "c1"}, "LZ4"},
		{[]string{"channel", "update", "c1", "--pause"}, "paused"},
		{[]string{"channel", "update", "c1", "--unset", "paused"}, "active"},
		{[]string{"channel", "status", "c1"}, "agent"},
		{[]string{"channel", "list"}, "c1"},
		{[]string{"channel", "delete", "c1"}, ""},
	} {
		if got := mustRun(t, "", append(step.args, "--addr", brokerAddr)...); !strings.Contains(got, step.want) {
			t.Errorf("%s printed %q, want %q in it", strings.Join(step.args, " "), got, step.want)
		}
	}
}

func mustRun(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := runFor(t, stdin, args...)
	if code != exitOK {
		t.Fatalf("databus %s: exit code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func TestDevDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, _, _ := startDev(t, dir, "--demo")
	if err := dev.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := dev.exitCode(); code != exitOK {
		t.Errorf("Ctrl-C during or after the demo: exit code %d, want 0", code)
	}
}

func TestServiceConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, service := range []string{"broker", "agent"} {
		good := write(service+"-good.yaml", "http_addr: 127.0.0.1:0\n")
		if code, stdout, stderr := runFor(t, "", service, "--config", good, "--check-config"); code != exitOK || !strings.Contains(stdout, "valid") {
			t.Errorf("%s: a good config: exit code %d, %q, %q", service, code, stdout, stderr)
		}
		bad := write(service+"-bad.yaml", "http_addr: 127.0.0.1:0\nhtp_addr: x\n")
		code, _, stderr := runFor(t, "", service, "--config", bad, "--check-config")
		if code != exitUsage || !strings.Contains(stderr, bad+":2") || !strings.Contains(stderr, "http_addr") {
			t.Errorf("%s: a bad config: exit code %d, %q", service, code, stderr)
		}
		code, _, stderr = runFor(t, "", service, "--config", filepath.Join(dir, "none.yaml"))
		if code != exitUsage || !strings.Contains(stderr, "none.yaml") {
			t.Errorf("%s: no config: exit code %d, %q", service, code, stderr)
		}
	}
}
