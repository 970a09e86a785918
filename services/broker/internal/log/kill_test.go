package log

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// killDir tells the test binary that it is the process to be killed.
const killDir = "DATABUS_TEST_KILL_DIR"

// TestKilled is the process that TestKill kills: eight producers on sixteen partitions, one line for each answer.
func TestKilled(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("run by TestKill")
	}
	l, err := Open(t.Context(), Config{Dirs: []string{dir}, CheckpointBytes: 64 << 10, JournalBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				p, _ := l.Partition("orders", int32((w+i)%16))
				v := fmt.Sprintf("%d.%d.%d", os.Getpid(), w, i)
				r, err := p.Append(context.Background(), batch(1, v, v+"b"), AppendOptions{})
				if err != nil {
					continue
				}
				mu.Lock()
				fmt.Printf("acked %d %d %s\n", p.Index(), r.BaseOffset, v)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// TestKill kills the process at random moments under load, and looks for every record that it had acknowledged.
func TestKill(t *testing.T) {
	t.Parallel()
	if os.Getenv(killDir) != "" {
		t.Skip("this is the process to be killed")
	}
	const partitions = 16
	dir := t.TempDir()
	pcfg := PartitionConfig{SegmentBytes: 100 << 10}
	rng := rand.New(rand.NewPCG(*seed, 77))
	l := testLog(t, Config{Dirs: []string{dir}})
	verify(t, l, nil, partitions, pcfg)
	acked := make(map[int32]map[int64]string)
	for round := range max(*rounds/4, 2) {
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 30 + rng.IntN(400)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var n int32
			var offset int64
			var v string
			if !strings.HasPrefix(lines.Text(), "acked ") {
				continue
			}
			if c, _ := fmt.Sscanf(lines.Text(), "acked %d %d %s", &n, &offset, &v); c != 3 {
				continue // the line that the kill cut
			}
			if acked[n] == nil {
				acked[n] = make(map[int64]string)
			}
			acked[n][offset] = v
		}
		_ = cmd.Wait()
		if left > 0 {
			t.Fatalf("round %d: the process ended by itself", round)
		}
		l = testLog(t, Config{Dirs: []string{dir}})
		verify(t, l, acked, partitions, pcfg)
	}
}
