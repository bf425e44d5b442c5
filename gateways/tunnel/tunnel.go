// Package tunnel makes connections through an HTTP proxy, by CONNECT (RFC 9110 section 9.3.6). It knows nothing of calls or
// gateways: whoever uses it speaks TLS to the far end himself, inside the tunnel. Nothing is taken from the environment.
package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxHead    = 16 << 10 // bytes of everything that a proxy may say before the tunnel is open
	maxInterim = 5        // 1xx answers before the final one
)

// Proxy is an HTTP proxy that opens tunnels.
type Proxy struct {
	// URL is http or https, a host and an optional port (80, 443).
	URL *url.URL
	// RootCAs are the certificate authorities of an https proxy. nil: the system's.
	RootCAs *x509.CertPool
	// Credential returns "user:password" for Basic authentication (RFC 7617). It is asked anew for each tunnel, so that a
	// rotated secret counts at once. nil: none.
	Credential func() (string, error)
}

// Error says that a proxy opened no tunnel: nothing that was meant for the far end was passed on.
type Error struct {
	Proxy  string // host and port
	Status int    // the proxy's answer, 0 without a readable one
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("proxy %s: %v", e.Proxy, e.Err) }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Check says what is wrong with a Proxy, nil if nothing is. The error holds no part of the URL but its scheme.
func (p *Proxy) Check() error {
	u := p.URL
	switch {
	case u == nil:
		return errors.New("proxy URL is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("proxy URL has scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return errors.New("proxy URL has no host")
	case u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("proxy URL has a user, path, query or fragment; only scheme, host and port are allowed")
	}
	return nil
}

// Addr is the proxy's own host and port.
func (p *Proxy) Addr() string {
	port := p.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.URL.Scheme]
	}
	return net.JoinHostPort(p.URL.Hostname(), port)
}

// Fail makes an Error of a failure to reach the proxy itself.
func (p *Proxy) Fail(err error) error { return &Error{Proxy: p.Addr(), Err: err} }

// Open asks the proxy at the other end of conn for a tunnel to addr (host:port). The tunnel is conn itself, or TLS above it
// for an https proxy. Open ends with ctx and closes nothing; after an error conn is of no use. Errors are *Error.
func (p *Proxy) Open(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	secret, err := p.secret()
	if err != nil {
		return nil, p.Fail(err)
	}
	release := bound(ctx, conn)
	top, status, err := p.open(ctx, conn, addr, secret)
	if late := release(); err == nil {
		err = late
	}
	if err != nil {
		return nil, &Error{Proxy: p.Addr(), Status: status, Err: err}
	}
	return top, nil
}

func (p *Proxy) open(ctx context.Context, conn net.Conn, addr, secret string) (top net.Conn, status int, err error) {
	top = conn
	if p.URL.Scheme == "https" {
		t := tls.Client(conn, &tls.Config{
			RootCAs: p.RootCAs, ServerName: p.URL.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, 0, fmt.Errorf("TLS: %w", err)
		}
		top = t
	}
	head := "CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\n" + secret + "\r\n"
	if _, err := io.WriteString(top, head); err != nil {
		return nil, 0, err
	}
	status, err = answer(top)
	return top, status, err
}

// secret is the Proxy-Authorization line. No error repeats the secret.
func (p *Proxy) secret() (string, error) {
	if p.Credential == nil {
		return "", nil
	}
	v, err := p.Credential()
	if err != nil {
		return "", fmt.Errorf("credential: %w", err)
	}
	if !strings.Contains(v, ":") || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", errors.New("credential: want user:password, without control characters")
	}
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(v)) + "\r\n", nil
}

// bound ends conn's reads and writes with ctx. release gives conn its freedom back; its error says that ctx ended first.
func bound(ctx context.Context, conn net.Conn) (release func() error) {
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() error {
		if !stop() {
			return context.Cause(ctx)
		}
		return conn.SetDeadline(time.Time{})
	}
}

// answer reads the proxy's answer. A 2xx opens the tunnel, whatever framing its head names; no byte may follow it, as the far
// end has not been spoken to yet.
func answer(r io.Reader) (status int, err error) {
	var got []byte
	buf := make([]byte, 4<<10)
	for interim := 0; ; {
		head, rest, whole := cutHead(got)
		if !whole {
			if len(got) > maxHead {
				return 0, fmt.Errorf("its answer has no end within %d bytes", maxHead)
			}
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if n == 0 && err != nil {
				return 0, cut(err, len(got))
			}
			continue
		}
		if status, err = statusOf(head); err != nil {
			return 0, err
		}
		switch {
		case status/100 == 2 && len(rest) > 0:
			return status, errors.New("it sent bytes behind its answer, before the far end was spoken to")
		case status/100 == 2:
			return status, nil
		case status/100 != 1 || status == 101 || interim == maxInterim:
			return status, fmt.Errorf("it answered %d and opened no tunnel%s", status, hint(status))
		}
		interim++
		got = bytes.Clone(rest)
	}
}

func cut(err error, n int) error {
	if err == io.EOF && n > 0 {
		return errors.New("it closed the connection in the middle of its answer")
	}
	if err == io.EOF {
		return errors.New("it closed the connection without an answer")
	}
	return err
}

// cutHead splits b behind the first empty line.
func cutHead(b []byte) (head, rest []byte, whole bool) {
	for at := 0; ; {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			return nil, b, false
		}
		line := bytes.TrimSuffix(b[at:at+n], []byte("\r"))
		first := at == 0
		at += n + 1
		if len(line) == 0 && !first {
			return b[:at], b[at:], true
		}
	}
}

// statusOf reads a status line of HTTP/1.
func statusOf(head []byte) (int, error) {
	line, _, _ := strings.Cut(string(head), "\n")
	version, rest, _ := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
	code, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(code, 10, 16)
	if version != "HTTP/1.1" && version != "HTTP/1.0" || err != nil || len(code) != 3 || n < 100 || n > 599 {
		return 0, errors.New("its answer is not HTTP/1")
	}
	return int(n), nil
}

// hint says what a status commonly means at a proxy.
func hint(status int) string {
	switch status {
	case 407:
		return ": it wants other credentials"
	case 403, 405:
		return ": its rules do not allow this host and port"
	case 502, 503, 504:
		return ": it cannot reach the host"
	}
	return ""
}
