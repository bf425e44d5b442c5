//go:build net

package testnet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// watch is longer than the pause before any retransmission that can still come after these short holes.
const watch = 10 * time.Second

const orderEnv = "FENCE_TESTNET_ORDER"

func TestMain(m *testing.M) {
	if o := os.Getenv(orderEnv); o != "" {
		if err := send(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// send is the sender's process: one send through the egress, with a gate that waits for a line, and then it stays alive.
func send(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	e, err := proxy.NewEgress(proxy.EgressConfig{
		Base: &url.URL{Scheme: "http", Host: gatewayAddr},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return o.weaken(c.(*net.TCPConn)), nil
		},
	})
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	x := e.Send(ctx, proxy.Outbound{Method: "POST", Target: "/v1/charges", Body: []byte("amount=1")}, func() error {
		fmt.Println("gate")
		_, err := in.ReadString('\n')
		return err
	})
	fmt.Printf("done %s wrote=%t\n", x.Cause, x.Wrote)
	io.Copy(io.Discard, in)
	return nil
}

// weaken hides the socket options that the order switches off from the egress.
func (o order) weaken(c *net.TCPConn) net.Conn {
	switch {
	case o.Linger && o.Limit:
		return c
	case o.Linger:
		return lingerOnly{c, c}
	case o.Limit:
		return limitOnly{c, c}
	}
	return struct{ net.Conn }{c}
}

type lingerOnly struct {
	net.Conn
	tcp *net.TCPConn
}

func (c lingerOnly) SetLinger(sec int) error { return c.tcp.SetLinger(sec) }

type limitOnly struct {
	net.Conn
	tcp *net.TCPConn
}

func (c limitOnly) SyscallConn() (syscall.RawConn, error) { return c.tcp.SyscallConn() }

// The sender gives up while its bytes are in the hole.
func TestHoleOutlastsTheAttempt(t *testing.T) {
	for name, o := range map[string]order{
		"guarded":   {Linger: true, Limit: true},
		"unguarded": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o.Timeout = 3 * time.Second
			p := w.start(o)
			w.dig()
			p.write()
			w.swallowed()
			p.expect("done timeout wrote=true")
			w.heal()
			if o.Linger {
				w.nothingArrives(watch)
			} else {
				w.requestArrives() // shown to bite
			}
			if !p.alive() {
				t.Error("the sender's process ended")
			}
		})
	}
}

// The sender is killed while its bytes are in the hole: the kernel closes its socket.
func TestHoleOutlastsTheProcess(t *testing.T) {
	for name, o := range map[string]order{
		"guarded":   {Linger: true, Limit: true},
		"unguarded": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o.Timeout = time.Minute // the kill comes long before
			p := w.start(o)
			w.dig()
			p.write()
			w.swallowed()
			p.signal(syscall.SIGKILL)
			<-p.ended
			w.heal()
			if o.Linger {
				w.nothingArrives(watch)
			} else {
				w.requestArrives()
			}
		})
	}
}

// The sender is stopped while its bytes are in the hole, and the hole heals after the attempt's time. Nobody closes the
// socket; the kernel gives it up. It counts the user time-out from the first retransmission, so about half a second late.
func TestHoleHealsWhileTheSenderIsStopped(t *testing.T) {
	for name, o := range map[string]order{
		"guarded":             {Linger: true, Limit: true},
		"no TCP_USER_TIMEOUT": {Linger: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o.Timeout = 3 * time.Second
			p := w.start(o)
			w.dig()
			p.write()
			start := time.Now()
			w.swallowed()
			p.signal(syscall.SIGSTOP)
			if o.Limit {
				w.eventually("the kernel gives up", func() bool { return w.sockets() == 0 })
				took := time.Since(start)
				t.Logf("the kernel gave up %v after the write; the attempt had at most %v", took, o.Timeout)
				if took > o.Timeout+5*time.Second {
					t.Error("TCP_USER_TIMEOUT did not come with the attempt's end")
				}
			}
			time.Sleep(time.Until(start.Add(2 * o.Timeout))) // the hole lasts well past the attempt
			w.heal()
			if o.Limit {
				w.nothingArrives(watch)
			} else {
				w.requestArrives()
			}
			p.signal(syscall.SIGCONT)
			p.expect("done timeout wrote=true")
		})
	}
}
