package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// wireGateway is a gateway that counts at its socket: each request head that it read is a send, whatever it answers.
type wireGateway struct {
	t      *testing.T
	ln     net.Listener
	roots  *x509.CertPool
	answer func(g *wireCall) bool // true: read another request from the connection
	stop   chan struct{}          // closed when the test ends

	mu    sync.Mutex
	calls []*wireCall
	conns int
	bytes int
	open  map[net.Conn]bool
	wg    sync.WaitGroup
}

// wireCall is one request as the gateway read it.
type wireCall struct {
	g    *wireGateway
	conn net.Conn // above TLS
	tcp  *net.TCPConn
	nth  int // connection number, from 1

	Line  string
	Lines []string // header lines
	Body  string
}

func (c *wireCall) method() string { m, _, _ := strings.Cut(c.Line, " "); return m }

func (c *wireCall) has(name string) bool {
	return slices.ContainsFunc(c.Lines, func(l string) bool {
		return strings.HasPrefix(strings.ToLower(l), strings.ToLower(name)+":")
	})
}

func (c *wireCall) say(format string, a ...any) { fmt.Fprintf(c.conn, format, a...) }

// ok answers 200 with a length and keeps the connection.
func (c *wireCall) ok(body string) bool {
	c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return true
}

func newWireGateway(t *testing.T, answer func(*wireCall) bool) *wireGateway {
	t.Helper()
	return newWireGatewayOn(t, answer, nil)
}

// newTLSWireGateway is newWireGateway over TLS. protos are its ALPN protocols.
func newTLSWireGateway(t *testing.T, answer func(*wireCall) bool, protos ...string) *wireGateway {
	t.Helper()
	s := httptest.NewTLSServer(nil) // for its certificate
	s.Close()
	g := newWireGatewayOn(t, answer, &tls.Config{Certificates: s.TLS.Certificates, NextProtos: protos})
	g.roots = x509.NewCertPool()
	g.roots.AddCert(s.Certificate())
	return g
}

func newWireGatewayOn(t *testing.T, answer func(*wireCall) bool, cfg *tls.Config) *wireGateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg != nil {
		ln = tlsAcceptor{ln, cfg}
	}
	g := &wireGateway{t: t, ln: ln, answer: answer, stop: make(chan struct{}), open: map[net.Conn]bool{}}
	g.wg.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

type tlsAcceptor struct {
	net.Listener
	cfg *tls.Config
}

type tlsServerConn struct {
	*tls.Conn
	tcp  *net.TCPConn
	cork *corkConn
}

// corkConn can hold back what is written, so that several TLS records leave in one piece.
type corkConn struct {
	net.Conn
	corked bool
	held   []byte
}

func (c *corkConn) Write(b []byte) (int, error) {
	if c.corked {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *corkConn) uncork() {
	c.corked = false
	c.SetWriteDeadline(time.Time{}) // the TLS goodbye sets one
	c.Conn.Write(c.held)
	c.held = nil
}

func (a tlsAcceptor) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	cork := &corkConn{Conn: c}
	return tlsServerConn{tls.Server(cork, a.cfg), c.(*net.TCPConn), cork}, nil
}

func (g *wireGateway) accept() {
	for {
		c, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		g.conns++
		n := g.conns
		g.open[c] = true
		g.mu.Unlock()
		g.wg.Go(func() { g.serve(c, n) })
	}
}

func (g *wireGateway) serve(c net.Conn, nth int) {
	defer c.Close()
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		tcp = c.(tlsServerConn).tcp
	}
	br := bufio.NewReader(countReader{c, g})
	for {
		call := &wireCall{g: g, conn: c, tcp: tcp, nth: nth}
		if !call.read(br) {
			return
		}
		if !g.answer(call) {
			return
		}
	}
}

// read reads one request; it is counted as soon as its head is whole.
func (c *wireCall) read(br *bufio.Reader) bool {
	length := 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return false
		}
		line = strings.TrimSuffix(line, "\r\n")
		if c.Line == "" {
			c.Line = line
			continue
		}
		if line == "" {
			break
		}
		c.Lines = append(c.Lines, line)
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(v)
		}
	}
	c.g.mu.Lock()
	c.g.calls = append(c.g.calls, c)
	c.g.mu.Unlock()
	if c.has("X-Unread") {
		return true
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(br, body); err != nil {
		return false
	}
	c.Body = string(body)
	return true
}

type countReader struct {
	net.Conn
	g *wireGateway
}

func (r countReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.g.mu.Lock()
	r.g.bytes += n
	r.g.mu.Unlock()
	return n, err
}

// sends returns the requests of a method ("": all) that arrived.
func (g *wireGateway) sends(method string) []*wireCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	var cs []*wireCall
	for _, c := range g.calls {
		if method == "" || c.method() == method {
			cs = append(cs, c)
		}
	}
	return cs
}

// count fails the test unless exactly n requests of the method arrived.
func (g *wireGateway) count(method string, n int) {
	g.t.Helper()
	if got := len(g.sends(method)); got != n {
		g.t.Errorf("the gateway got %d %s, want %d", got, method, n)
	}
}

func (g *wireGateway) received() (conns, bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.conns, g.bytes
}

func (g *wireGateway) addr() string { return g.ln.Addr().String() }

func (g *wireGateway) url() *url.URL {
	scheme := "http"
	if g.roots != nil {
		scheme = "https"
	}
	return &url.URL{Scheme: scheme, Host: g.addr()}
}

func (g *wireGateway) close() {
	select {
	case <-g.stop:
		return
	default:
	}
	close(g.stop)
	g.ln.Close()
	g.mu.Lock()
	for c := range g.open {
		if tc, ok := c.(tlsServerConn); ok {
			tc.tcp.Close()
			continue
		}
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// wireEgress is an Egress for g.
func wireEgress(t *testing.T, g *wireGateway, change ...func(*EgressConfig)) *Egress {
	t.Helper()
	cfg := EgressConfig{Base: g.url(), RootCAs: g.roots}
	for _, f := range change {
		f(&cfg)
	}
	e, err := NewEgress(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// wireSend sends with a generous deadline.
func wireSend(t *testing.T, e *Egress, out Outbound) Exchange {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return e.Send(ctx, out, nil)
}

// wirePost is a charge as an app might send it, with the header that makes net/http repeat.
func wirePost(body string) Outbound {
	return Outbound{
		Method: "POST", Target: "/v1/charges", Body: []byte(body), HadLength: true,
		Header: []claims.Field{{Name: "Idempotency-Key", Value: "k1"}, {Name: "Content-Type", Value: "text/plain"}},
	}
}

// wireNoLeaks fails the test if it leaves goroutines behind. Call it first.
func wireNoLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(10 * time.Second)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines before the test, %d after it\n%s", before, runtime.NumGoroutine(),
					buf[:runtime.Stack(buf, true)])
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
}

// wireEventually polls until cond holds.
func wireEventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never happened: " + what)
		}
	}
}
