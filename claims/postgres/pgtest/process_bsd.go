//go:build unix && !linux

package pgtest

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// state is a letter of ps(1): T stopped, Z not waited for; 0 if there is no such process.
func state(pid int) byte {
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output() //nolint:errcheck // it fails if there is none
	if text := strings.TrimSpace(string(out)); text != "" {
		return text[0]
	}
	return 0
}

// descendants are all that a process started and what those started.
func descendants(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil {
			parents[child] = parent
		}
	}
	return below(pid, parents), nil
}
