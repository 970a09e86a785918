package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore sets bit 0 of each of pages whose page of b is in the system's cache (mincore(2), which x/sys has no function for).
func mincore(b, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0]))) //nolint:gosec // the call takes addresses
	if errno != 0 {
		return fmt.Errorf("mincore: %w", errno)
	}
	return nil
}
