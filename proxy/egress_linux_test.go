package proxy

import (
	"context"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// Every socket is closed by reset, and the kernel's delivery time is the attempt's remaining time, anew on each send; so is that
// to a proxy, under whatever TLS.
func TestEgressSocketOptions(t *testing.T) {
	socketKeepsOptions(t, nil)
	plain := tunneltest.New(t, tunneltest.Config{})
	socketKeepsOptions(t, &tunnel.Proxy{URL: plain.URL()})
	overTLS, roots := tlsProxy(t, tunneltest.Config{})
	socketKeepsOptions(t, &tunnel.Proxy{URL: overTLS.URL(), RootCAs: roots})
}

func socketKeepsOptions(t *testing.T, via *tunnel.Proxy) {
	t.Helper()
	g := newTLSWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	var socket *net.TCPConn
	e := wireEgress(t, g, func(c *EgressConfig) {
		c.Via = via
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				socket = conn.(*net.TCPConn)
			}
			return conn, err
		}
	})
	for i, d := range []time.Duration{20 * time.Second, 60 * time.Second, 30 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		x := e.Send(ctx, wirePost("x"), func() error {
			linger, ms := socketOptions(t, socket)
			if linger.Onoff != 1 || linger.Linger != 0 {
				t.Errorf("SO_LINGER %+v, want on, 0", linger)
			}
			if left := d.Milliseconds(); int64(ms) > left || int64(ms) < left-10_000 {
				t.Errorf("TCP_USER_TIMEOUT %d ms, want the %d ms left", ms, left)
			}
			return nil
		})
		cancel()
		if x.Answer == nil || x.Reused != (i > 0) {
			t.Fatal(x.Cause, x.Err, x.Reused)
		}
	}
	g.count("", 3)
}

func socketOptions(t *testing.T, c *net.TCPConn) (linger unix.Linger, userTimeout int) {
	t.Helper()
	rc, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var e1, e2 error
	err = rc.Control(func(fd uintptr) {
		linger, e1 = getLinger(int(fd))
		userTimeout, e2 = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	if err != nil || e1 != nil || e2 != nil {
		t.Fatal(err, e1, e2)
	}
	return linger, userTimeout
}

// A gate that takes its time does not lengthen the kernel's.
func TestEgressSlowGate(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool { <-c.g.stop; return false })
	var socket *net.TCPConn
	e := wireEgress(t, g, func(c *EgressConfig) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			socket, _ = conn.(*net.TCPConn)
			return conn, err
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	var before, after int
	gated := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Send(ctx, wirePost("x"), func() error {
			_, before = socketOptions(t, socket)
			time.Sleep(50 * time.Millisecond)
			close(gated)
			return nil
		})
	}()
	<-gated
	wireEventually(t, "the request arrives", func() bool { return len(g.sends("")) == 1 })
	_, after = socketOptions(t, socket)
	cancel()
	<-done
	if after > before-50 {
		t.Errorf("TCP_USER_TIMEOUT %d ms before the gate, %d ms at the first byte", before, after)
	}
}

// A full backlog drops SYNs as a black hole does.
func TestEgressFullBacklog(t *testing.T) {
	wireNoLeaks(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*unix.SockaddrInet4).Port}
	full := false
	for range 20 {
		c, err := net.DialTimeout("tcp", addr.String(), 300*time.Millisecond)
		if full = err != nil; full {
			break
		}
		defer c.Close()
	}
	if !full {
		t.Fatal("the backlog never filled")
	}
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	u := g.url()
	u.Host = addr.String()
	x := sendWithin(t, wireEgress(t, g, func(c *EgressConfig) { c.Base = u }), wirePost("x"), 300*time.Millisecond)
	if x.Cause != CauseTimeout || x.Wrote {
		t.Errorf("cause %q (%v), wrote %t; want a time-out with zero bytes", x.Cause, x.Err, x.Wrote)
	}
}

// getLinger reads SO_LINGER, for which x/sys has no function.
func getLinger(fd int) (l unix.Linger, err error) {
	size := uint32(unsafe.Sizeof(l))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&l)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return l, errno
	}
	return l, nil
}
