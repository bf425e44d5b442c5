package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// binary is the program under test, built once from this checkout.
var binary string

// raceExit is the program's exit code when the race detector saw something; it ends the process at once.
const raceExit = 66

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// together is how many tests run at a time: they wait for leases, deadlines and sweeps more than they work.
const together = "4"

func run(m *testing.M) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) { // nobody chose another
		f.Value.Set(together)
	}
	dir, err := os.MkdirTemp("", "fence-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "fence-sidecar")
	args := []string{"build", "-o", binary}
	if raceBuild {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../cmd/fence-sidecar")...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "e2e: the program cannot be built, nothing was tested: %v\n%s", err, out)
		return 1
	}
	code := pgtest.Run(m)
	if left := running.list(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "e2e: processes are left over: %v\n", left)
		return 1
	}
	return code
}

// running are the processes that were started and not yet waited for.
var running processes

type processes struct {
	mu   sync.Mutex
	pids map[int]string
}

func (p *processes) add(pid int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pids == nil {
		p.pids = map[int]string{}
	}
	p.pids[pid] = what
}

func (p *processes) remove(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pids, pid)
}

func (p *processes) list() (left []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, what := range p.pids {
		left = append(left, fmt.Sprintf("%d (%s)", pid, what))
	}
	return left
}
