package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// traffic is what a proxy does with bytes.
type traffic int

const (
	flowing traffic = iota
	refused
	swallowed
	stalled
)

// Proxy stands between clients and a server and understands PostgreSQL's protocol 3 without TLS, replication too. It acts
// on whole messages: a message is passed, or not.
type Proxy struct {
	addr string

	mu          sync.Mutex
	changed     *sync.Cond
	target      string
	traffic     traffic
	closed      bool
	listener    net.Listener // nil while refused
	links       map[*link]bool
	catches     []*Catch
	connections int
	commits     int
	work        sync.WaitGroup
}

// NewProxy starts a proxy to a server's address (host:port) on a port of its own. It ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{target: target, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	if err := p.open(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.close)
	return p
}

// open picks a port at the first call, and takes the same one later.
func (p *Proxy) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.listener == nil {
		addr := p.addr
		if addr == "" {
			port, err := freePort()
			if err != nil {
				return err
			}
			addr = fmt.Sprintf("127.0.0.1:%d", port)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil && p.addr != "" {
			return err
		}
		if err == nil {
			p.addr, p.listener = addr, l
			p.work.Go(func() { p.accept(l) })
		}
	}
	return nil
}

func (p *Proxy) close() {
	p.set(refused, func(*link) bool { return true })
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.work.Wait()
}

// Addr is host:port for clients, the same for ever.
func (p *Proxy) Addr() string { return p.addr }

// URL leads to database postgres as superuser postgres, like the server's.
func (p *Proxy) URL() string { return urlAt(p.addr, "postgres") }

// Target sends new connections to another server; those that there are stay where they are. Cut, Target and Heal together
// are a takeover behind one name.
func (p *Proxy) Target(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Connections counts the connections so far whose first message came, without requests to cancel a statement.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connections
}

// Commits counts the COMMIT statements that clients sent so far, those too that did not get through.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Cut closes all connections on both sides and refuses new ones. It returns when that is done.
func (p *Proxy) Cut() { p.set(refused, func(*link) bool { return true }) }

// Blackhole swallows all bytes of both directions, and those of new connections: nothing closes and nobody answers.
func (p *Proxy) Blackhole() { p.set(swallowed, nil) }

// Stall keeps all bytes of both directions back until Heal, which delivers them late, as a network does that comes back.
// It holds for messages read from now on; one that is being written gets through.
func (p *Proxy) Stall() { p.set(stalled, nil) }

// Heal lets everything through again. Connections that lost bytes to the black hole are closed.
func (p *Proxy) Heal() error {
	p.set(flowing, func(l *link) bool { return l.lost })
	return p.open()
}

// set changes the traffic and closes some of the links.
func (p *Proxy) set(t traffic, condemned func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic = t
	if t == refused && p.listener != nil {
		p.listener.Close() //nolint:errcheck // it is gone either way
		p.listener = nil
	}
	for l := range p.links {
		if condemned != nil && condemned(l) {
			l.cut()
		}
	}
	p.changed.Broadcast()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				time.Sleep(time.Millisecond)
				continue
			}
			return
		}
		k := &link{proxy: p, client: conn, gone: make(chan struct{})}
		p.mu.Lock()
		if p.traffic == refused {
			p.mu.Unlock()
			conn.Close() //nolint:errcheck // it is gone either way
			continue
		}
		p.links[k] = true
		p.mu.Unlock()
		p.work.Go(k.serve)
	}
}

// admit says whether a message may pass: it waits while the traffic is stalled, and notes what a black hole took.
func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.traffic == stalled && !p.closed && !l.ended {
		p.changed.Wait()
	}
	if p.traffic == swallowed {
		l.lost = true
		return false
	}
	return !l.ended
}

func (p *Proxy) count(cancel bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !cancel {
		p.connections++
	}
}

// dial connects to the present target.
func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, "tcp", target)
}
