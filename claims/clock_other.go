//go:build !linux

package claims

import "time"

// BootTime stands in with the monotonic clock where the system has no CLOCK_BOOTTIME: a suspend is then noticed by the
// wall clock alone.
func BootTime() time.Duration { return time.Since(processStart) }
