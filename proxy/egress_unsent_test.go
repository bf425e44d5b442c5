package proxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// sendWithin is one send with a deadline of d that must be kept within seconds.
func sendWithin(t *testing.T, e *Egress, out Outbound, d time.Duration) Exchange {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	x := e.Send(ctx, out, nil)
	if took := time.Since(start); took > d+5*time.Second {
		t.Errorf("the send took %v, its deadline was %v", took, d)
	}
	return x
}

// R41 a–c: failures before the first byte prove that nothing was sent.
func TestEgressProvablyUnsent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent := newWireGateway(t, func(c *wireCall) bool { return true }) // plain: never shakes hands
	noTLS := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	untrusted := newTLSWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	garbage := listenFunc(t, func(c net.Conn) { c.Read(make([]byte, 1)); c.Write([]byte("no TLS here\r\n\r\n")); c.Close() })
	hangUp := listenFunc(t, func(c net.Conn) { c.Close() })
	blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }

	for _, tc := range []struct {
		name, scheme, addr, cause string
		dial                      func(context.Context, string, string) (net.Conn, error)
	}{
		{name: "port refuses", scheme: "http", addr: closed.Addr().String(), cause: CauseDial},
		{name: "name does not resolve", scheme: "http", addr: "gateway.invalid:80", cause: CauseDNS, dial: noSuchHost},
		{name: "SYN lost", scheme: "https", addr: "192.0.2.1:443", cause: CauseTimeout, dial: blackHole},
		{name: "accepted, no handshake", scheme: "https", addr: silent.addr(), cause: CauseTimeout},
		{name: "untrusted certificate", scheme: "https", addr: untrusted.addr(), cause: CauseTLS},
		{name: "no TLS", scheme: "https", addr: garbage, cause: CauseTLS},
		{name: "hangs up in the handshake", scheme: "https", addr: hangUp, cause: CauseTLS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wireNoLeaks(t)
			u := noTLS.url()
			u.Scheme, u.Host = tc.scheme, tc.addr
			e := wireEgress(t, noTLS, func(c *EgressConfig) { c.Base, c.Dial = u, tc.dial })
			d := 10 * time.Second
			if tc.cause == CauseTimeout {
				d = 200 * time.Millisecond
			}
			x := sendWithin(t, e, wirePost("amount=1"), d)
			if x.Cause != tc.cause || x.Wrote || x.Answer != nil || x.Err == nil {
				t.Errorf("cause %q (%v), wrote %t; want %q and zero bytes", x.Cause, x.Err, x.Wrote, tc.cause)
			}
		})
	}
	for _, g := range []*wireGateway{silent, noTLS, untrusted} {
		g.count("", 0)
	}
}

func noSuchHost(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "gateway.invalid", IsNotFound: true}}
}

// listenFunc serves each connection with f.
func listenFunc(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f(c)
		}
	}()
	return ln.Addr().String()
}

// R41 e, R74 c: once a byte is written, no failure proves anything.
func TestEgressTimesOutUnknown(t *testing.T) {
	for name, script := range map[string]func(*wireCall) bool{
		"no answer": func(c *wireCall) bool { <-c.g.stop; return false },
		"slow head": func(c *wireCall) bool { c.trickle("HTTP/1.1 200 OK\r\nX-Slow: "); return false },
		"slow body": func(c *wireCall) bool { c.trickle("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"); return false },
		"slow chunks": func(c *wireCall) bool {
			c.trickle("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFF\r\n")
			return false
		},
	} {
		for _, overTLS := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				wireNoLeaks(t)
				var g *wireGateway
				if overTLS {
					g = newTLSWireGateway(t, script)
				} else {
					g = newWireGateway(t, script)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				want := context.Canceled
				if name == "no answer" {
					want = context.DeadlineExceeded
					ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
				} else {
					go func() {
						wireEventually(t, "the request arrives", func() bool { return len(g.sends("")) == 1 })
						time.AfterFunc(100*time.Millisecond, cancel) // some of the answer is there
					}()
				}
				x := wireEgress(t, g).Send(ctx, wirePost("amount=1"), nil)
				if x.Cause != CauseTimeout || !x.Wrote || x.Answer != nil || !errors.Is(x.Err, want) {
					t.Errorf("cause %q (%v), wrote %t; want a time-out that is unknown", x.Cause, x.Err, x.Wrote)
				}
				g.count("", 1)
			})
		}
	}
}

// trickle writes start and then a byte every few milliseconds until the connection or the test ends.
func (c *wireCall) trickle(start string) {
	c.say("%s", start)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.g.stop:
			return
		case <-tick.C:
			if _, err := c.conn.Write([]byte("x")); err != nil {
				return
			}
		}
	}
}

// The sender that gives up resets the connection: nothing is left in its kernel.
func TestEgressGivesUpByReset(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		gone := make(chan error, 1)
		answer := func(c *wireCall) bool {
			_, err := c.tcp.Read(make([]byte, 1))
			gone <- err
			return false
		}
		var g *wireGateway
		if overTLS {
			g = newTLSWireGateway(t, answer)
		} else {
			g = newWireGateway(t, answer)
		}
		sendWithin(t, wireEgress(t, g), wirePost("amount=1"), 2*time.Second)
		if err := <-gone; err == nil || !strings.Contains(err.Error(), "reset") {
			t.Errorf("TLS %t: the gateway saw %v, want a reset", overTLS, err)
		}
	}
}

// The gate is asked on an established connection, and its refusal is zero bytes at the gateway's socket.
func TestEgressGate(t *testing.T) {
	refusal := errors.New("lease lost")
	for _, tc := range []struct {
		name  string
		gate  func(cancel func()) error
		cause string
		sends int
	}{
		{"agrees", func(func()) error { return nil }, "", 1},
		{"refuses", func(func()) error { return refusal }, CauseGate, 0},
		{"refuses with a time-out", func(func()) error { return context.DeadlineExceeded }, CauseGate, 0},
		{"agrees too late", func(cancel func()) error { cancel(); return nil }, CauseTimeout, 0},
		{"refuses too late", func(cancel func()) error { cancel(); return refusal }, CauseGate, 0},
	} {
		for _, reused := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				wireNoLeaks(t)
				g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
				e := wireEgress(t, g)
				if reused {
					wireSend(t, e, Outbound{Method: "GET", Target: "/"})
				}
				_, before := g.received()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				asked := 0
				x := e.Send(ctx, wirePost("amount=1"), func() error {
					asked++
					wireEventually(t, "the gateway has the connection", func() bool { n, _ := g.received(); return n == 1 })
					return tc.gate(cancel)
				})
				if asked != 1 || x.Cause != tc.cause || x.Wrote != (tc.sends == 1) || x.Reused != reused {
					t.Errorf("asked %d times, cause %q (%v), wrote %t, reused %t", asked, x.Cause, x.Err, x.Wrote, x.Reused)
				}
				g.count("POST", tc.sends)
				g.close() // all that was sent has arrived or never will
				if _, after := g.received(); (after > before) != (tc.sends == 1) {
					t.Errorf("%d bytes at the gateway's socket", after-before)
				}
			})
		}
	}
}

func TestEgressGatePanics(t *testing.T) {
	wireNoLeaks(t)
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	e := wireEgress(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	func() {
		defer func() { recover() }()
		e.Send(ctx, wirePost("x"), func() error { panic("gate") })
	}()
	g.count("", 0)
}

// Wrote does not depend on what Write returns.
func TestEgressFailedWriteMayHaveSent(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool { <-c.g.stop; return false })
	for _, passed := range []bool{false, true} {
		e := wireEgress(t, g, func(c *EgressConfig) {
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return failingWrite{conn, passed}, err
			}
		})
		x := wireSend(t, e, wirePost("amount=1"))
		if !x.Wrote || x.Cause != CauseWrite || x.Answer != nil {
			t.Errorf("passed %t: cause %q (%v), wrote %t; want write, perhaps sent", passed, x.Cause, x.Err, x.Wrote)
		}
	}
}

// failingWrite fails each write, after passing it on or not, and ends the connection.
type failingWrite struct {
	net.Conn
	pass bool
}

func (c failingWrite) Write(b []byte) (int, error) {
	if c.pass {
		c.Conn.Write(b)
	}
	c.Conn.Close()
	return 0, errors.New("write failed")
}

// R74 d: each send has its own deadline on one connection.
func TestEgressDeadlinePerSend(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool {
		if c.has("X-Slow") {
			select {
			case <-time.After(2200 * time.Millisecond): // longer than the first deadline
			case <-c.g.stop:
			}
		}
		return c.ok("")
	})
	e := wireEgress(t, g)
	if x := sendWithin(t, e, wirePost("charge"), 2*time.Second); x.Answer == nil {
		t.Fatal(x.Cause, x.Err)
	}
	slow := wirePost("refund")
	slow.Header = append(slow.Header, claims.Field{Name: "X-Slow", Value: "1"})
	if x := sendWithin(t, e, slow, 10*time.Second); x.Answer == nil || !x.Reused {
		t.Error(x.Cause, x.Err, x.Reused)
	}
	g.count("", 2)
}
