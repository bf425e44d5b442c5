package sandbox

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

const (
	maxHead = 64 << 10
	maxBody = 16 << 20
)

// request is one request as it came in.
type request struct {
	method string
	target string // raw
	proto  string
	header http.Header
	lines  []Line
	read   func() ([]byte, error) // reads the body
	body   []byte
	send   *Send
	p      *profile
	era    int // of the server's memory when the request came in
}

func (r *request) key() string { return r.p.keyOf(r) }

func (r *request) path() string {
	p, _, _ := strings.Cut(r.target, "?")
	return p
}

func (r *request) query() string {
	_, q, _ := strings.Cut(r.target, "?")
	return q
}

// account is what scopes keys and objects.
func (r *request) account() string { return r.p.accountOf(r) }

// conn is one connection, or one request that came through net/http.
type conn struct {
	s    *Server
	n    int
	nc   net.Conn
	br   *bufio.Reader
	take func() bool // takes the connection over from net/http
	// plain answers where the connection cannot be taken over.
	plain http.ResponseWriter
}

// loop serves requests until the connection is to be closed.
func (c *conn) loop() {
	for {
		r, err := c.next()
		if err != nil {
			if err != io.EOF {
				c.write(c.s.p.malformed("malformed request"), nil, false)
			}
			return
		}
		if !c.handle(r) {
			return
		}
	}
}

// next reads a head byte by byte as far as its empty line, so that the body stays on the connection.
func (c *conn) next() (*request, error) {
	var head bytes.Buffer
	for head.Len() < maxHead {
		line, err := c.br.ReadSlice('\n')
		head.Write(line)
		if err != nil {
			return nil, io.EOF
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 && head.Len() > 2 {
			break
		}
	}
	hr, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head.Bytes())))
	if err != nil {
		return nil, err
	}
	r := &request{method: hr.Method, target: hr.RequestURI, proto: hr.Proto, header: hr.Header, lines: linesOf(head.Bytes())}
	r.read = func() ([]byte, error) {
		if strings.EqualFold(hr.Header.Get("Expect"), "100-continue") {
			io.WriteString(c.nc, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if len(hr.TransferEncoding) > 0 {
			b, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(c.br), maxBody))
			if err == nil {
				_, err = c.br.ReadSlice('\n') // the empty line after the last chunk; trailers are not expected
			}
			return b, err
		}
		b := make([]byte, min(max(hr.ContentLength, 0), maxBody))
		n, err := io.ReadFull(c.br, b)
		return b[:n], err
	}
	if hr.Close {
		r.header.Set("Connection", "close")
	}
	return r, nil
}

func linesOf(head []byte) (out []Line) {
	for i, l := range strings.Split(string(head), "\r\n") {
		if name, value, ok := strings.Cut(l, ":"); ok && i > 0 {
			out = append(out, Line{name, strings.Trim(value, " \t")})
		}
	}
	return out
}

// handle serves one request; false: the connection is to be closed.
func (c *conn) handle(r *request) (keep bool) {
	r.p, r.era = c.s.p, c.s.memory()
	keep = !strings.EqualFold(r.header.Get("Connection"), "close") && r.proto == "HTTP/1.1"
	if strings.HasPrefix(r.path(), "/_sandbox/") {
		r.body, _ = r.read()
		return c.write(c.s.control(r), nil, keep)
	}
	r.send = c.s.counted(Send{Conn: c.n, Proto: r.proto, Method: r.method, Target: r.target, Key: r.key(), Header: r.lines})
	fs, err := c.s.pick(r)
	if err != nil {
		r.body, _ = r.read()
		return c.write(c.s.p.malformed(err.Error()), nil, keep)
	}
	if f, ok := fs.any("drop", "drop-rst"); ok {
		return c.cut(f.Name == "drop-rst", false)
	}
	body, err := r.read()
	c.s.mu.Lock()
	r.body, r.send.Body = body, body
	r.send.Key = r.key() // it may stand in the body
	c.s.mu.Unlock()
	if err != nil {
		return false // a request that was cut off is not executed
	}
	a, ok := c.s.perform(c, r, fs)
	if !ok {
		return c.cut(false, false)
	}
	return c.write(a, fs, keep)
}

// gone waits until the client has closed or the server ends.
func (c *conn) gone() {
	if c.br == nil && !c.takeOver() {
		<-c.s.done
		return
	}
	left := make(chan struct{})
	c.s.wg.Go(func() {
		defer close(left)
		c.br.Peek(1)
	})
	select {
	case <-left:
	case <-c.s.done:
		c.nc.Close()
		<-left
	}
}

func (c *conn) takeOver() bool {
	return c.nc != nil || c.take != nil && c.take()
}

// cut ends the connection without an answer: by RST, by TLS close_notify, or by FIN.
func (c *conn) cut(reset, notify bool) bool {
	if !c.takeOver() {
		panic(http.ErrAbortHandler)
	}
	raw := c.nc
	if t, ok := raw.(*tls.Conn); ok {
		if notify {
			t.Close()
			return false
		}
		raw = t.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
	}
	raw.Close()
	return false
}

// write sends an answer, with the faults of the wire; false: the connection is closed or to be closed.
func (c *conn) write(a answer, fs active, keep bool) bool {
	if f, ok := fs.any("lose-fin", "lose-rst", "lose-tls"); ok {
		return c.cut(f.Name == "lose-rst", f.Name == "lose-tls")
	}
	a.header = append([]Line{{"Date", ""}}, a.header...)
	a.date(c.s.now(), fs)
	if !c.takeOver() {
		for _, l := range a.header {
			c.plain.Header().Add(l.Name, l.Value)
		}
		c.plain.WriteHeader(a.status)
		c.plain.Write(a.body)
		return false
	}
	raw, whole := a.wire(fs, keep)
	if fs.has("early-hints") {
		io.WriteString(c.nc, "HTTP/1.1 103 Early Hints\r\nLink: </>; rel=preload\r\n\r\n")
	}
	if f, ok := fs["trickle"]; ok {
		for i := range raw {
			if !c.s.sleep(f.time()) {
				return false
			}
			if _, err := c.nc.Write(raw[i : i+1]); err != nil {
				return false
			}
		}
	} else if _, err := c.nc.Write(raw); err != nil {
		return false
	}
	if !whole || fs.has("close-after") {
		return c.cut(false, true)
	}
	return keep
}

// sleep waits; false: the server ends.
func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

func statusLine(status int) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
}
