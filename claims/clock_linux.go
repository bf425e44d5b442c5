package claims

import (
	"syscall"
	"time"
	"unsafe"
)

// BootTime is CLOCK_BOOTTIME: time since boot, suspends included.
func BootTime() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("claims: CLOCK_BOOTTIME: " + errno.Error()) // present since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
