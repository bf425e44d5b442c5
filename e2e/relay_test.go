package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay stands before a gateway. While it holds, it accepts connections and passes nothing on: over TLS a sender then
// waits in its handshake, with its claim written and no byte of its request sent.
type relay struct {
	ln   net.Listener
	to   string
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	gate     chan struct{} // nil: open
	accepted int
	conns    []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, to: to, done: make(chan struct{})}
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *relay) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.accepted++
		gate := r.gate
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		r.wg.Go(func() { r.pass(c, gate) })
	}
}

func (r *relay) pass(c net.Conn, gate chan struct{}) {
	defer c.Close()
	if gate != nil {
		select {
		case <-gate:
		case <-r.done:
			return
		}
	}
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	r.conns = append(r.conns, up)
	r.mu.Unlock()
	r.wg.Go(func() {
		io.Copy(up, c)
		up.(*net.TCPConn).CloseWrite()
	})
	io.Copy(c, up)
}

// hold stops what connects from now on.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

// release lets everything pass.
func (r *relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gate)
	r.gate = nil
}

func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

func (r *relay) close() {
	close(r.done)
	r.ln.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
