//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// account is whom a process runs as.
type account struct{ uid, gid int }

// unprivileged is the account for servers, which refuse to run as root; nil for anybody else.
func unprivileged() (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		return &account{uid, gid}, errors.Join(err1, err2)
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: run the tests as another user")
}

// attributes put a process in a group of its own, so that an interrupt at the terminal is left to the watchdog.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// signals are what PostgreSQL understands by the modes of stopping.
var signals = map[Mode]os.Signal{Fast: syscall.SIGINT, Smart: syscall.SIGTERM, Immediate: syscall.SIGQUIT}

// suspend stops a process and all that it started, and comes back when they stand still; the oldest first, so that nothing new
// is born meanwhile.
func suspend(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := halt(ctx, pid); err != nil {
		return err
	}
	kin, err := descendants(pid)
	for _, k := range kin {
		err = errors.Join(err, halt(ctx, k))
	}
	return err
}

func halt(ctx context.Context, pid int) error {
	if err := alive(syscall.Kill(pid, syscall.SIGSTOP)); err != nil {
		return err
	}
	return until(ctx, pid, func(state byte) bool { return state == 'T' || dead(state) })
}

// until waits for a state of a process.
func until(ctx context.Context, pid int, ok func(state byte) bool) error {
	for !ok(state(pid)) {
		if ctx.Err() != nil {
			return fmt.Errorf("process %d is in state %c: %w", pid, state(pid), context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// dead also holds for one that nobody has waited for yet: it has let go of everything.
func dead(state byte) bool { return state == 0 || state == 'Z' || state == 'X' }

func resume(pid int) error {
	kin, err := descendants(pid)
	for _, k := range append(kin, pid) {
		err = errors.Join(err, alive(syscall.Kill(k, syscall.SIGCONT)))
	}
	return err
}

// slay kills a process and all that it started, and comes back when they are gone.
func slay(ctx context.Context, p *process) error {
	if p.over() {
		return nil
	}
	if err := halt(ctx, p.pid()); err != nil {
		return err
	}
	kin, err := descendants(p.pid())
	for _, k := range append(kin, p.pid()) {
		err = errors.Join(err, alive(syscall.Kill(k, syscall.SIGKILL)))
	}
	err = errors.Join(err, p.wait(ctx))
	for _, k := range kin {
		err = errors.Join(err, until(ctx, k, dead))
	}
	return err
}

// alive forgives that a process was gone already.
func alive(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
