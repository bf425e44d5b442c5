package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
)

// Limits that apply where nothing else is configured.
const (
	maxIdleTime        = 5 * time.Second
	defaultMaxIdle     = 32
	defaultAnswerLimit = 8 << 20   // bytes
	maxAnswerHead      = 256 << 10 // bytes of one head
	maxInformational   = 10        // 1xx answers before the final one
)

// Causes say in one word why there is no answer. Where Exchange.Wrote is false, each of them proves zero bytes.
const (
	CauseRequest     = "request"      // the request cannot be written as one request
	CauseDial        = "dial"         // TCP connect failed
	CauseDNS         = "dns"          // the name did not resolve
	CauseTLS         = "tls"          // the handshake failed, or the gateway ended it by an alert
	CauseProxy       = "proxy"        // the egress proxy could not be reached, or opened no tunnel
	CauseGate        = "gate"         // the gate refused
	CauseWrite       = "write"        // writing failed, and no answer was there to read
	CauseTimeout     = "timeout"      // the attempt's context ended, at whatever step
	CauseCut         = "cut"          // the connection ended inside the answer's head, or before it
	CauseTruncated   = "truncated"    // it ended inside the body
	CauseCloseFramed = "close-framed" // only the connection's end would tell the body's
	CauseOversize    = "oversize"     // the answer is over its limit
	CauseMalformed   = "malformed"    // not HTTP/1
	CauseUpgrade     = "upgrade"      // 101 Switching Protocols
)

// ErrNoDeadline refuses a send that nothing would end.
var ErrNoDeadline = errors.New("the attempt has no deadline")

// EgressConfig says which gateway an Egress talks to and how.
type EgressConfig struct {
	// Base is http or https, a host with an optional port, and an optional path put in front of every target as it is
	// (without its last slash).
	Base *url.URL
	// RootCAs are the certificate authorities of an https Base. nil: the system's.
	RootCAs *x509.CertPool
	// Certificate returns the client certificate that an https Base may ask for. nil: none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Via is the proxy through which every connection is made, by CONNECT, for a plain Base too. nil: none; no proxy is taken
	// from the environment.
	Via *tunnel.Proxy
	// IdleTimeout is how long an unused connection may be used again. Default and maximum: 5 s.
	IdleTimeout time.Duration
	// MaxIdle is how many unused connections are kept. Default 32; negative: none.
	MaxIdle int
	// AnswerLimit is the largest answer body in bytes. Default 8 MiB.
	AnswerLimit int64
	// Dial makes connections; it must end with its context. nil: a net.Dialer. A connection that is no TCP socket, or
	// hides it, gets no socket options and is never used twice.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Egress sends calls to one gateway. It is the only place that does: one Send is at most one request on the wire, nothing
// below it repeats, follows or rewrites. It is safe for concurrent use.
type Egress struct {
	base        url.URL
	addr        string
	tls         *tls.Config   // nil: plain
	via         *tunnel.Proxy // nil: none
	answerLimit int64
	dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	pool        pool
}

// Outbound is one request, ready to be framed.
type Outbound struct {
	Method string
	Target string // raw request target in origin form, or "*"; passed byte for byte
	Host   string // Host line; "": the host of Base
	// Header has the lines in order, case kept. Lines that belong to a connection, and Host, Content-Length and Expect,
	// are not passed on.
	Header []claims.Field
	Body   []byte
	// Rest are RestLength further bytes of the body, read while they are sent. Not for Send.
	Rest       io.Reader
	RestLength int64
	HadLength  bool // the app's request said a length, so an empty body is said too
	Fresh      bool // use a new connection
	// AllowCloseFramed takes a body that ends with the connection for complete: only for gateways known to do that.
	AllowCloseFramed bool
	AnswerLimit      int64 // bytes; 0: the Egress's
}

// Timings are durations since the start of Send; 0 where the step was not reached, or not needed.
type Timings struct {
	Connected time.Duration // TCP
	Handshake time.Duration // TLS
	Gated     time.Duration // the gate agreed
	Head      time.Duration // the answer's head was read
	Total     time.Duration
}

// Exchange is what came of one Send.
type Exchange struct {
	// Wrote says that a byte of the request was passed, or perhaps passed, to Write above TLS. false proves zero bytes.
	Wrote   bool
	Answer  *claims.Answer // complete answers only
	Cause   string         // "" with an answer, else one of the causes
	Err     error
	Reused  bool // the connection had been used before
	Timings Timings
}

// SendError is the error of Stream.
type SendError struct {
	Cause string
	Wrote bool
	Err   error
}

func (e *SendError) Error() string { return fmt.Sprintf("send: %s: %v", e.Cause, e.Err) }

// Unwrap returns what went wrong.
func (e *SendError) Unwrap() error { return e.Err }

// NewEgress checks cfg. Nothing is dialled before the first Send.
func NewEgress(cfg EgressConfig) (*Egress, error) {
	u := cfg.Base
	switch {
	case u == nil:
		return nil, errors.New("base URL is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("base URL has scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("base URL has no host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("base URL has a user, query or fragment; only scheme, host and path are allowed")
	case badByte(u.EscapedPath()) >= 0:
		return nil, errors.New("base URL's path has a space or control character")
	}
	if cfg.Via != nil {
		if err := cfg.Via.Check(); err != nil {
			return nil, err
		}
	}
	e := &Egress{base: *u, answerLimit: cfg.AnswerLimit, dial: cfg.Dial, via: cfg.Via}
	port := u.Port()
	if u.Scheme == "https" {
		e.tls = &tls.Config{
			RootCAs:    cfg.RootCAs,
			ServerName: u.Hostname(),
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, // HTTP/2 clients repeat by themselves

			GetClientCertificate: cfg.Certificate,
		}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	e.addr = net.JoinHostPort(u.Hostname(), port)
	if e.answerLimit <= 0 {
		e.answerLimit = defaultAnswerLimit
	}
	if e.dial == nil {
		d := &net.Dialer{}
		d.SetMultipathTCP(false) // its socket options are not those of TCP
		e.dial = d.DialContext
	}
	e.pool.life = maxIdleTime
	if cfg.IdleTimeout > 0 {
		e.pool.life = min(cfg.IdleTimeout, maxIdleTime)
	}
	e.pool.size = defaultMaxIdle
	if cfg.MaxIdle != 0 {
		e.pool.size = max(cfg.MaxIdle, 0)
	}
	return e, nil
}

// Close drops the idle connections. Sends under way go on; their connections are closed after them.
func (e *Egress) Close() { e.pool.close() }

// connect returns an idle connection or makes a new one, with its handshake done.
func (e *Egress) connect(ctx context.Context, a *attempt) (cause string, err error) {
	if !a.out.Fresh {
		if c := e.pool.take(); c != nil {
			a.own(ctx, c)
			a.ex.Reused = true
			return "", nil
		}
	}
	socket, cause, err := e.dialed(ctx)
	if err != nil {
		return cause, err
	}
	a.ex.Timings.Connected = time.Since(a.start)
	raw := &rawConn{Conn: socket}
	c := &conn{socket: socket, raw: raw, under: raw, top: raw}
	a.own(ctx, c)
	// A close must be a reset: bytes still in the kernel would otherwise be delivered after we gave up.
	if l, ok := socket.(interface{ SetLinger(sec int) error }); ok {
		if err := l.SetLinger(0); err != nil {
			return CauseDial, fmt.Errorf("SO_LINGER: %w", err)
		}
	}
	if e.via != nil {
		inside, err := e.via.Open(ctx, raw, e.addr)
		if err != nil {
			return CauseProxy, err
		}
		if inside != raw { // TLS to the proxy
			c.under = &rawConn{Conn: inside}
		}
		c.top = c.under
	}
	if e.tls != nil {
		t := tls.Client(c.under, e.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			return CauseTLS, err
		}
		c.top = t
		a.ex.Timings.Handshake = time.Since(a.start)
	}
	c.br = bufio.NewReader(c.top)
	return "", nil
}

// dialed makes the TCP connection: to the gateway, or to the proxy.
func (e *Egress) dialed(ctx context.Context) (socket net.Conn, cause string, err error) {
	if e.via != nil {
		if socket, err = e.dial(ctx, "tcp", e.via.Addr()); err != nil {
			return nil, CauseProxy, e.via.Fail(err)
		}
		return socket, "", nil
	}
	if socket, err = e.dial(ctx, "tcp", e.addr); err == nil {
		return socket, "", nil
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return nil, CauseDNS, err
	}
	return nil, CauseDial, err
}

// limitOf is the answer limit of out.
func (e *Egress) limitOf(out *Outbound) int64 {
	if out.AnswerLimit > 0 {
		return out.AnswerLimit
	}
	return e.answerLimit
}
