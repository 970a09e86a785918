//go:build !linux

package harness

import "syscall"

// dieWithParent asks for nothing: only Linux can tie a process's life to its parent's.
func dieWithParent() *syscall.SysProcAttr { return nil }
