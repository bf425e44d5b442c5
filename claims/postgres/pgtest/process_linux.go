package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// stat is the state and the parent of a process; false if there is none.
func stat(pid int) (state byte, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// The name may hold anything, also spaces and parentheses: what counts comes after the last one.
	_, err = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", &state, &parent)
	return state, parent, err == nil
}

// state is a letter of proc(5): T stopped, Z not waited for; 0 if there is no such process.
func state(pid int) byte {
	state, _, ok := stat(pid)
	if !ok {
		return 0
	}
	return state
}

// descendants are all that a process started and what those started.
func descendants(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if _, parent, ok := stat(n); ok {
				parents[n] = parent
			}
		}
	}
	return below(pid, parents), nil
}
