// Package process reads what a measured process has used.
package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ticks a second of /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// CPU is how much CPU time a process has used since it began, in user and kernel mode, in steps of 10 ms (proc(5)).
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold anything; utime and stime are the 14th and 15th field of the line.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var sum int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// RSS is how many bytes of a process are in memory.
func RSS(pid int) (int64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	var size, resident int64 // in pages (proc(5))
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return resident * int64(os.Getpagesize()), nil
}
