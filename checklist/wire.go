package checklist

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
)

// maxInterim is how many 1xx answers are read before the final one.
const maxInterim = 10

// wire writes requests and reads answers. Every request has a connection of its own; nothing is sent twice, followed or reused, so
// that whatever arrives more often than it was sent was repeated on the way.
type wire struct {
	base  *url.URL
	tls   *tls.Config   // nil: plain
	via   *tunnel.Proxy // nil: none
	limit int64         // bytes of an answer's body
}

// message is one request, ready to be written.
type message struct {
	method, target string
	header         []claims.Field
	body           []byte
}

// newWire reaches a gateway as its declaration says: own roots, client certificate, egress proxy.
func newWire(g *gateways.Gateway, base *url.URL) (*wire, error) {
	w := &wire{base: base, limit: max(g.AnswerLimit, 1<<20)}
	if e := g.EgressProxy; e != nil {
		u, err := url.Parse(e.URL)
		if err != nil {
			return nil, errors.New("egressProxy.url cannot be read")
		}
		w.via = &tunnel.Proxy{URL: u}
		if !e.Credential.IsZero() {
			w.via.Credential = e.Credential.Value
		}
		if w.via.RootCAs, err = gateways.LoadRoots(e.CABundle); err != nil {
			return nil, err
		}
	}
	if base.Scheme != "https" {
		return w, nil
	}
	w.tls = &tls.Config{ServerName: base.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	var err error
	if w.tls.RootCAs, err = gateways.LoadRoots(g.CABundle); err != nil {
		return nil, err
	}
	if g.ClientCert != "" {
		c, err := tls.LoadX509KeyPair(g.ClientCert, g.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("clientCert: %w", err)
		}
		w.tls.Certificates = []tls.Certificate{c}
	}
	return w, nil
}

// open makes a connection.
func (w *wire) open(ctx context.Context) (net.Conn, error) {
	port := w.base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[w.base.Scheme]
	}
	addr := net.JoinHostPort(w.base.Hostname(), port)
	to := addr
	if w.via != nil {
		to = w.via.Addr()
	}
	bottom, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	conn := bottom
	if w.via != nil {
		if conn, err = w.via.Open(ctx, bottom, addr); err != nil {
			bottom.Close()
			return nil, err
		}
	}
	if w.tls == nil {
		return conn, nil
	}
	t := tls.Client(conn, w.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		bottom.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// bytes spells a message. Lines of framing are written here alone.
func (m message) bytes(host string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", m.method, m.target, host)
	for _, f := range m.header {
		switch http.CanonicalHeaderKey(f.Name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding":
			continue
		}
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, strings.NewReplacer("\r", " ", "\n", " ").Replace(f.Value))
	}
	b.WriteString("Accept-Encoding: identity\r\nConnection: close\r\n")
	if !gateways.Safe(m.method) {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(m.body))
	}
	b.WriteString("\r\n")
	b.Write(m.body)
	return b.Bytes()
}

// send writes a message once and reads the answer. ctx bounds both.
func (w *wire) send(ctx context.Context, m message) (*claims.Answer, error) {
	as, errs := w.volley(ctx, m, 1)
	return as[0], errs[0]
}

// volley writes a message n times, on n connections of their own. Each connection gets everything but the last byte; then all last
// bytes are written at once, so that the requests are complete at the same moment.
func (w *wire) volley(ctx context.Context, m message, n int) ([]*claims.Answer, []error) {
	answers, errs := make([]*claims.Answer, n), make([]error, n)
	text := m.bytes(w.base.Host)
	var ready, all sync.WaitGroup
	shot := make(chan struct{})
	ready.Add(n)
	for i := range n {
		all.Go(func() {
			answers[i], errs[i] = w.shoot(ctx, m.method, text, ready.Done, shot)
		})
	}
	ready.Wait()
	close(shot)
	all.Wait()
	return answers, errs
}

// shoot sends on one connection. ready is called when all but the last byte is out, or nothing will come of it.
func (w *wire) shoot(ctx context.Context, method string, text []byte, ready func(), shot <-chan struct{}) (*claims.Answer, error) {
	conn, err := w.open(ctx)
	if err != nil {
		ready()
		return nil, fmt.Errorf("not sent: %w", err)
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	last := len(text) - 1
	_, err = conn.Write(text[:last])
	ready()
	if err != nil {
		return nil, fmt.Errorf("not sent whole: %w", err)
	}
	<-shot
	if _, err := conn.Write(text[last:]); err != nil {
		return nil, fmt.Errorf("perhaps not sent whole: %w", err)
	}
	return w.read(bufio.NewReader(conn), method)
}

// read reads a complete answer.
func (w *wire) read(br *bufio.Reader, method string) (*claims.Answer, error) {
	for range maxInterim {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return nil, fmt.Errorf("no answer: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, w.limit+1))
		res.Body.Close()
		switch {
		case err != nil:
			return nil, fmt.Errorf("the answer was cut off: %w", err)
		case int64(len(body)) > w.limit:
			return nil, errors.New("the answer is over its limit")
		case res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols:
			continue
		}
		a := &claims.Answer{Status: res.StatusCode, Body: body}
		for name, vs := range res.Header {
			for _, v := range vs {
				a.Header = append(a.Header, claims.Field{Name: name, Value: v})
			}
		}
		return a, nil
	}
	return nil, errors.New("no final answer")
}
