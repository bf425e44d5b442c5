package proxy

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one connection to the gateway, in the hands of one attempt or idle in the pool.
type conn struct {
	socket net.Conn // as it was dialled
	raw    *rawConn // above socket
	under  *rawConn // raw, or the tunnel in the TLS of an https proxy
	top    net.Conn // under, or TLS above it
	br     *bufio.Reader
	idle   time.Time // since when it is idle
	expiry *time.Timer
}

// close drops the connection. SO_LINGER(on, 0) makes it a reset, so that the kernel throws unsent bytes away. TLS gets no
// close_notify: nothing may be written after the attempt.
func (c *conn) close() { c.socket.Close() }

// drained reports whether nothing is left to read of what has already been taken from the socket: bytes beyond an answer
// would be taken for the answer to the next request.
func (c *conn) drained() bool {
	if c.br.Buffered() > 0 {
		return false
	}
	if c.top == net.Conn(c.raw) { // no TLS anywhere
		return true
	}
	// Decrypted or whole records may sit in the TLS layers. Read them out with the socket shut off.
	c.raw.shut = true
	defer func() { c.raw.shut = false }()
	n, err := c.top.Read(make([]byte, 1))
	return n == 0 && err == error(errShut)
}

// cutShort reports whether the stream ended where TLS would have said goodbye: somebody in between may have cut it.
func (c *conn) cutShort() bool {
	return c.top != net.Conn(c.under) && c.under.ended || c.under != c.raw && c.raw.ended
}

// rawConn is the reading side below a TLS layer. It notes a bare end of the stream, because crypto/tls reports one at a record
// boundary as io.EOF, as if a close_notify had come.
type rawConn struct {
	net.Conn
	ended bool // the stream ended by FIN
	shut  bool // reads do not touch the socket
}

func (c *rawConn) Read(b []byte) (int, error) {
	if c.shut {
		return 0, errShut
	}
	n, err := c.Conn.Read(b)
	c.ended = c.ended || err == io.EOF
	return n, err
}

// errShut is temporary in the sense of crypto/tls: the connection stays usable after it.
var errShut = &shutError{}

type shutError struct{}

func (*shutError) Error() string   { return "the socket is not read now" }
func (*shutError) Timeout() bool   { return true }
func (*shutError) Temporary() bool { return true }

// pool keeps idle connections to one gateway.
type pool struct {
	life time.Duration
	size int

	mu     sync.Mutex
	idle   []*conn // last used last
	closed bool
}

// take returns the idle connection that was used last, or nil. Those that are too old, closed by the gateway or have
// unasked bytes are dropped.
func (p *pool) take() *conn {
	for {
		c := p.pop()
		if c == nil {
			return nil
		}
		if p.fresh(c) && quiet(c.socket) {
			return c
		}
		c.close()
	}
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	c.expiry.Stop()
	return c
}

// fresh asks both the monotonic and the wall clock: only the latter counts while the machine is suspended.
func (p *pool) fresh(c *conn) bool {
	now := time.Now()
	wall := now.Round(0).Sub(c.idle.Round(0))
	return now.Sub(c.idle) < p.life && wall < p.life
}

// put makes c idle, or closes it where there is no room.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.size {
		c.close()
		return
	}
	c.idle = time.Now()
	c.expiry = time.AfterFunc(p.life, func() { p.expire(c) })
	p.idle = append(p.idle, c)
}

// expire closes c if it is still idle.
func (p *pool) expire(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, have := range p.idle {
		if have == c && !p.fresh(c) {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			c.close()
			return
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.expiry.Stop()
		c.close()
	}
	p.idle = nil
}
