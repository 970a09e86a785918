package spool

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
)

// killEnv names the directory for the test binary when it runs as the process that is killed.
const killEnv = "DATABUS_SPOOL_KILL_DIR"

// TestMain runs the test binary as a process that spools without end, where it is asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		spoolForever(dir)
		return
	}
	os.Exit(m.Run())
}

// spoolForever prints each number once it is spooled.
func spoolForever(dir string) {
	s, err := Open(Config{Dir: dir, FileBytes: 64 << 10})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var t testing.T
	first, err := strconv.Atoi(os.Getenv(killEnv + "_FIRST"))
	if err != nil {
		os.Exit(1)
	}
	for i := first; ; i++ {
		e := Entry{Channel: "c", Topic: "orders", Layout: 1, Batch: batchOf(&t, fmt.Sprint(i))}
		done := make(chan error, 1)
		if err := s.Append(e, func(err error) { done <- err }); err != nil {
			os.Exit(1)
		}
		if <-done == nil {
			fmt.Println(i)
		}
	}
}

// TestKill kills real processes on a real disk.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var acked []string
	first := 0
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), killEnv+"="+dir, fmt.Sprintf("%s_FIRST=%d", killEnv, first))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			i, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(lines.Text())
			}
			acked, first = append(acked, lines.Text()), i+100
			if n == 40+17*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed
	}
	b := newBroker()
	drain(t, open(t, Config{Dir: dir}), b)
	got := slices.DeleteFunc(b.logs[orders], func(v string) bool { return !slices.Contains(acked, v) })
	if !slices.Equal(got, acked) {
		t.Errorf("log and acknowledgements differ\nlog   %v\nacked %v", got, acked)
	}
}
