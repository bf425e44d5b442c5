package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// home is the folder of everything that one test binary starts, and the watchdog that clears it up when the binary is gone.
type home struct {
	dir  string
	bin  string   // the server's programs
	user *account // who runs them; nil: ourselves

	watchdog *exec.Cmd
	leash    io.Closer // closed, also by our death, it lets the watchdog loose

	mu   sync.Mutex
	made int
}

var (
	homeMu  sync.Mutex
	theHome *home
)

// base is the home of this test binary, made at the first call.
func base() (*home, error) {
	homeMu.Lock()
	defer homeMu.Unlock()
	if theHome != nil {
		return theHome, nil
	}
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	user, err := unprivileged()
	if err != nil {
		return nil, err
	}
	h := &home{bin: bin, user: user}
	if h.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	if h.dir, err = filepath.EvalSymlinks(h.dir); err != nil {
		return nil, err
	}
	if err := errors.Join(h.own(h.dir), h.watch()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	theHome = h
	return h, nil
}

// script ends every process that works in the folder and removes it. It runs as the servers do, as only their own account
// may always see where they work, and kills, as a stopped process hears nothing else. A killed server leaves a shared memory
// segment, which its lock file names. Without /proc it goes by the command lines.
const script = `
cat >/dev/null
[ -d "$1" ] || exit 0
for try in 1 2 3 4 5 6 7 8 9; do
	found=
	if [ -d /proc/self/cwd ]; then
		for p in /proc/[0-9]*; do
			case "$(readlink "$p/cwd" 2>/dev/null)" in "$1"/*) kill -9 "${p#/proc/}" 2>/dev/null && found=1;; esac
		done
	else
		for p in $(ps -axo pid=,command= | awk -v d="$1/" 'index($0, d) { print $1 }'); do
			[ "$p" != $$ ] && kill -9 "$p" 2>/dev/null && found=1
		done
	fi
	[ -n "$found" ] || break
	sleep 0.1 2>/dev/null || sleep 1
done
for f in "$1"/*/data/postmaster.pid; do
	[ -f "$f" ] && ipcrm -m "$(awk 'NR == 7 { print $2 }' "$f")" 2>/dev/null
done
rm -rf "$1"
`

// watch starts the watchdog. A signal at the parent's death would not do instead: it follows the thread that started the child,
// a stopped server does not hear it, and it removes no folder.
func (h *home) watch() error {
	h.watchdog = exec.Command("/bin/sh", "-c", script, "pgtest-watchdog", h.dir)
	h.watchdog.Dir = "/"
	h.watchdog.SysProcAttr = h.user.attributes()
	leash, err := h.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	h.leash = leash
	return h.watchdog.Start()
}

// leave gives the home up: what still runs in it is killed.
func leave() error {
	homeMu.Lock()
	defer homeMu.Unlock()
	h := theHome
	if h == nil {
		return nil
	}
	theHome = nil
	err := h.leash.Close()
	return errors.Join(err, h.watchdog.Wait())
}

// folder makes a folder that belongs to the servers' account.
func (h *home) folder(kind string) (string, error) {
	h.mu.Lock()
	h.made++
	dir := filepath.Join(h.dir, fmt.Sprintf("%s%d", kind, h.made))
	h.mu.Unlock()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, h.own(dir)
}

func (h *home) own(path string) error {
	if h.user == nil {
		return nil
	}
	return os.Chown(path, h.user.uid, h.user.gid)
}

// write makes a file that belongs to the servers' account.
func (h *home) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return h.own(path)
}

func (h *home) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir // within the home, or the watchdog would not find it
	cmd.Env = []string{"HOME=" + dir, "PATH=" + h.bin + ":/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = h.user.attributes()
	return cmd
}

// run runs one of the server's programs to its end.
func (h *home) run(ctx context.Context, dir, name string, args ...string) error {
	out, err := h.command(ctx, dir, filepath.Join(h.bin, name), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
