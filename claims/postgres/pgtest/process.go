package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// process is a child of the test process; somebody always waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it is over
}

// launch starts a command whose output goes to the end of a log.
func launch(cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", p.pid(), context.Cause(ctx))
	}
}

// below are all below one process in the map of parents.
func below(pid int, parents map[int]int) []int {
	found := []int{}
	for next := []int{pid}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		for child, parent := range parents {
			if parent == at && child != at {
				found, next = append(found, child), append(next, child)
			}
		}
	}
	return found
}

// size of a log so far; 0 if there is none yet.
func size(log string) int {
	info, err := os.Stat(log)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// tail is a log from an offset on, at most its last 16 KiB.
func tail(log string, from int) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	return string(text[max(min(from, len(text)), len(text)-16<<10):])
}
