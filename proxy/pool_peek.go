//go:build linux || darwin || freebsd

package proxy

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet reports whether nothing has come in on an idle socket: no data and no end. It looks at the kernel's queue without
// waiting and without taking anything. A connection that cannot be looked at is not quiet.
func quiet(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var peek error
	err = rc.Control(func(fd uintptr) {
		var b [1]byte
		_, _, peek = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && (errors.Is(peek, unix.EAGAIN) || errors.Is(peek, unix.EWOULDBLOCK))
}
