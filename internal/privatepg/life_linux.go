package privatepg

import "syscall"

// bindLife asks the kernel to shut Postgres down when this process ends without having done so.
func bindLife(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
