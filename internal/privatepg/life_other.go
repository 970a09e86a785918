//go:build !linux

package privatepg

import "syscall"

// bindLife does nothing: a server that is left behind is stopped by the next start.
func bindLife(*syscall.SysProcAttr) {}
