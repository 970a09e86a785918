package harness

import "syscall"

// dieWithParent has the kernel kill the suite when the test's process goes, so that a test that times out or crashes
// leaves nothing behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
