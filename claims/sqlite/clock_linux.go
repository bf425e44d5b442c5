package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// systemIdentity names what CLOCK_BOOTTIME counts from: the boot, and the offset of this process's time namespace
// (time_namespaces(7)).
func systemIdentity() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("sqlite store: boot id: %w", err)
	}
	offset := "0 0"
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // absent: a kernel without time namespaces
		return "", fmt.Errorf("sqlite store: time namespace: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" {
			offset = f[1] + " " + f[2]
		}
	}
	return strings.TrimSpace(string(boot)) + "/" + offset, nil
}
