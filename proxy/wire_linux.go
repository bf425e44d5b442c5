package proxy

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitDelivery sets TCP_USER_TIMEOUT (tcp(7), milliseconds): the kernel drops what the peer has not acknowledged within
// d, also while this process is stopped and cannot close the socket itself. The kernel counts from the first
// retransmission, so it gives up one retransmission time-out (200 ms and more) after d: proxy/testnet measures it.
// 0 gives the system's own time back.
func limitDelivery(c net.Conn, d time.Duration) error {
	sc, ok := c.(syscall.Conn)
	if _, tcp := c.LocalAddr().(*net.TCPAddr); !ok || !tcp {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	ms := int(d / time.Millisecond)
	if d > 0 {
		ms = max(ms, 1) // 0 would mean: no limit of ours
	}
	var set error
	if err := rc.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	}); err != nil {
		return err
	}
	return set
}
