package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config is how a sandbox is set up. The zero value is a plain HTTP gateway on the system's clock.
type Config struct {
	// Clock dates objects, keys and the Date header; nil: time.Now.
	Clock func() time.Time
	// Addr is where Start listens; default 127.0.0.1:0.
	Addr string
	// TLS serves HTTPS with these certificates (see NewCertificate); nil: plain HTTP.
	TLS *tls.Config
	// HTTP2 offers h2 by ALPN, to show who takes it. HTTPS only.
	HTTP2 bool
	// SearchLag is how old an object must be for search to show it; default 30s. Negative: none.
	SearchLag time.Duration
	// KeyRetention is how long keys are kept; default: the profile's, 24h for most.
	KeyRetention time.Duration
	// Profile is the gateway that is played, one of Profiles; default stripe.
	Profile string
	// Hooks are told of movements of money.
	Hooks []Hook
}

// Server is a sandbox. It is safe for concurrent use.
type Server struct {
	cfg  Config
	p    *profile
	done chan struct{} // closed by Close
	wg   sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced with every change
	conns      map[net.Conn]struct{}
	connCount  int
	listeners  []net.Listener
	faults     []*Fault
	headerUses map[string]int
	holds      map[string]*hold
	leases     leases
	ledger     []Operation
	sends      []*Send
	keys       map[string]*entry
	objects    map[string]*object
	order      []*object
	serial     int
	era        int // how often everything was forgotten
	hooks      []Hook
	told       int
	closed     bool
}

// Open is New with the error of an unknown profile.
func Open(cfg Config) (*Server, error) {
	if _, err := cfg.profile(); err != nil {
		return nil, err
	}
	return New(cfg), nil
}

// New makes a sandbox that does not listen yet. It panics on an unknown profile.
func New(cfg Config) *Server {
	p, err := cfg.profile()
	if err != nil {
		panic(err.Error())
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.SearchLag == 0 {
		cfg.SearchLag = 30 * time.Second
	}
	if cfg.KeyRetention == 0 {
		cfg.KeyRetention = cmp.Or(p.retention, 24*time.Hour)
	}
	s := &Server{cfg: cfg, p: p, hooks: slices.Clone(cfg.Hooks), done: make(chan struct{}), changed: make(chan struct{}), conns: map[net.Conn]struct{}{}, holds: map[string]*hold{}}
	s.Reset()
	return s
}

func (s *Server) now() time.Time { return s.cfg.Clock() }

// Start listens and serves until Close or the context's end, and returns the address.
func (s *Server) Start(ctx context.Context) (net.Addr, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil, net.ErrClosed
	}
	s.listeners = append(s.listeners, l)
	s.wg.Go(func() { s.Serve(l) })
	s.mu.Unlock()
	context.AfterFunc(ctx, func() { s.Close() })
	return l.Addr(), nil
}

// Serve accepts connections from a listener until it is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		s.wg.Go(func() { s.ServeConn(nc) })
	}
}

// URL is the base URL for an address that Start returned.
func (s *Server) URL(addr net.Addr) string {
	if s.cfg.TLS != nil {
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Close ends every listener, connection, hold and hang, and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
		for _, l := range s.listeners {
			l.Close()
		}
		for nc := range s.conns {
			nc.Close()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// CloseIdle closes every connection now, busy ones too, as a gateway does that restarts.
func (s *Server) CloseIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.conns {
		nc.Close()
	}
}

func (s *Server) track(nc net.Conn) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false
	}
	s.conns[nc] = struct{}{}
	s.connCount++
	return s.connCount, true
}

func (s *Server) untrack(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

// Conns is how many connections were accepted so far.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connCount
}

// ServeConn serves one connection until it ends; with Config.TLS it makes the handshake first.
func (s *Server) ServeConn(nc net.Conn) {
	n, ok := s.track(nc)
	defer nc.Close()
	if !ok {
		return
	}
	defer s.untrack(nc)
	c := &conn{s: s, nc: nc, n: n, br: bufio.NewReaderSize(nc, maxHead)}
	if s.cfg.TLS != nil {
		t := tls.Server(nc, s.tlsConfig())
		if err := t.Handshake(); err != nil {
			return
		}
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			s.serveH2(t)
			return
		}
		c.nc, c.br = t, bufio.NewReaderSize(t, maxHead)
	}
	c.loop()
}

func (s *Server) tlsConfig() *tls.Config {
	cfg := s.cfg.TLS.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	if s.cfg.HTTP2 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return cfg
}

// serveH2 lets net/http speak HTTP/2 on a connection that negotiated it.
func (s *Server) serveH2(t *tls.Conn) {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	l := &oneConn{conn: t, closed: make(chan struct{})}
	srv := &http.Server{Handler: s, Protocols: p, ConnState: func(_ net.Conn, st http.ConnState) {
		if st == http.StateClosed || st == http.StateHijacked {
			l.Close()
		}
	}}
	if err := srv.Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Close()
	}
}

// oneConn is a listener of one connection: Accept gives it, then blocks until it has ended.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
	given  bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// ServeHTTP makes the sandbox an http.Handler. An HTTP/1 connection is hijacked so that every fault works, and closed
// after the answer; on HTTP/2 the faults of the wire end the stream.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &request{method: hr.Method, target: hr.RequestURI, header: hr.Header, proto: hr.Proto}
	for name, vs := range hr.Header {
		for _, v := range vs {
			r.lines = append(r.lines, Line{name, v})
		}
	}
	c := &conn{s: s}
	if hr.ProtoMajor == 1 {
		hr.Header.Set("Connection", "close")
	}
	r.read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(hr.Body, maxBody)) }
	c.take = func() bool {
		h, ok := w.(http.Hijacker)
		if !ok || hr.ProtoMajor != 1 {
			return false
		}
		nc, rw, err := h.Hijack()
		if err != nil {
			return false
		}
		c.nc, c.br = nc, rw.Reader
		return true
	}
	c.plain = w
	c.handle(r)
	if c.nc != nil {
		c.nc.Close()
	}
}
