package privatepg

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/databus-suite/databus/internal/errs"
)

// account is whom Postgres runs as. It refuses to run as root, so under root it becomes the first of these that exists.
type account struct {
	name     string
	uid, gid int
	switches bool
}

var candidates = []string{"postgres", "nobody"}

func findAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range candidates {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{name: name, uid: uid, gid: gid, switches: true}, nil
		}
	}
	return account{}, errs.New(errs.Precondition, "POSTGRES_ACCOUNT", "Postgres does not run as root, and there is no user postgres or nobody").
		WithNext("start as another user, or name another server with --postgres URL")
}

// own makes a directory that only the account may enter.
func (a account) own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if !a.switches {
		return nil
	}
	return os.Chown(dir, a.uid, a.gid)
}

// reaches checks that the account may pass through every directory above dir, since Postgres itself would only say "permission
// denied".
func (a account) reaches(dir string) error {
	if !a.switches {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 && !a.holds(info) {
			return errs.New(errs.Precondition, "POSTGRES_DIRECTORY", "user %s, whom Postgres runs as, may not enter %s", a.name, parent).
				WithNext("choose a data directory outside of it, `chmod o+x %s`, or start as another user than root", parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func (a account) holds(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == a.uid && info.Mode().Perm()&0o100 != 0
}

// command prepares a program to run as the account, in a process group of its own: Ctrl-C on the terminal must reach it only
// through us, after the services that use it have stopped.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.switches {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}
