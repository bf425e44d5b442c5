// Package tunneltest has an HTTP proxy for tests. It opens tunnels, counts what it passes on, and misbehaves on demand.
package tunneltest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Config says how a Proxy behaves.
type Config struct {
	// Credential is the "user:password" that it demands; "": none.
	Credential string
	// TLS makes it an https proxy.
	TLS *tls.Config
	// Answer, if set, is asked first. true: it did what it wanted with the connection, which is closed.
	Answer func(conn net.Conn, c Connect) bool
}

// Connect is one CONNECT as the proxy read it.
type Connect struct {
	Target string   // host:port
	Lines  []string // the head's lines, the first included
}

// Proxy is a CONNECT proxy on loopback.
type Proxy struct {
	cfg  Config
	ln   net.Listener
	wg   sync.WaitGroup
	up   atomic.Int64
	mu   sync.Mutex
	seen []Connect
	open map[net.Conn]bool
}

// New starts a proxy that ends with the test.
func New(t *testing.T, cfg Config) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{cfg: cfg, ln: ln, open: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is the proxy's address.
func (p *Proxy) URL() *url.URL {
	if p.cfg.TLS != nil {
		return &url.URL{Scheme: "https", Host: p.ln.Addr().String()}
	}
	return &url.URL{Scheme: "http", Host: p.ln.Addr().String()}
}

// Connects are the requests for a tunnel so far.
func (p *Proxy) Connects() []Connect {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Connect(nil), p.seen...)
}

// Forwarded is how many bytes went from clients to far ends, in tunnels.
func (p *Proxy) Forwarded() int { return int(p.up.Load()) }

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(p.track(c)) })
	}
}

func (p *Proxy) track(c net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
	return c
}

func (p *Proxy) serve(tcp net.Conn) {
	defer tcp.Close()
	conn := tcp
	if p.cfg.TLS != nil {
		t := tls.Server(tcp, p.cfg.TLS)
		if t.Handshake() != nil {
			return
		}
		conn = t
	}
	br := bufio.NewReader(conn)
	c, ok := read(br)
	if !ok {
		return
	}
	p.note(c)
	if p.cfg.Answer != nil && p.cfg.Answer(conn, c) {
		return
	}
	if !p.allowed(c) {
		io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n")
		return
	}
	far, err := net.DialTimeout("tcp", c.Target, 10*time.Second)
	if err != nil {
		io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	p.track(far)
	io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.pipe(conn, br, far)
}

// pipe copies both ways until one side ends; then both do.
func (p *Proxy) pipe(conn net.Conn, br *bufio.Reader, far net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(far, io.TeeReader(br, counter{&p.up}))
		far.Close()
	})
	io.Copy(conn, far)
	conn.Close()
	both.Wait()
}

func (p *Proxy) note(c Connect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, c)
}

func (p *Proxy) allowed(c Connect) bool {
	want := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.cfg.Credential))
	if slices.Contains(c.Lines, want) {
		return true
	}
	return p.cfg.Credential == ""
}

func read(br *bufio.Reader) (c Connect, ok bool) {
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return c, false
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			method, rest, _ := strings.Cut(c.Lines[0], " ")
			c.Target, _, _ = strings.Cut(rest, " ")
			return c, method == http.MethodConnect
		}
		c.Lines = append(c.Lines, line)
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
