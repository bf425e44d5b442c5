package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// rig is a running sandbox with a client that never resends.
type rig struct {
	t    *testing.T
	s    *sandbox.Server
	addr string
	base string
	pool *tls.Config
}

func start(t *testing.T, cfg sandbox.Config) *rig {
	t.Helper()
	s := sandbox.New(cfg)
	addr, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{t: t, s: s, addr: addr.String(), base: s.URL(addr)}
}

func startTLS(t *testing.T, cfg sandbox.Config) *rig {
	t.Helper()
	cert, err := sandbox.NewCertificate(time.Now(), "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLS = cert.TLS()
	r := start(t, cfg)
	r.pool = &tls.Config{RootCAs: cert.Pool(), ServerName: "localhost"}
	return r
}

// dial opens a raw connection, with TLS where the sandbox has it.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if r.pool == nil {
		return c
	}
	t := tls.Client(c, r.pool)
	if err := t.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return t
}

const charge = "amount=1000&currency=eur&confirm=true&payment_method=pm_card_visa&metadata[fence_ref]=ref-1"

// raw is a request's text.
func raw(method, target, key, fault, body string) string {
	var b strings.Builder
	b.WriteString(method + " " + target + " HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer sk_test_1\r\n")
	if key != "" {
		b.WriteString("Idempotency-Key: " + key + "\r\n")
	}
	if fault != "" {
		b.WriteString("Sandbox-Fault: " + fault + "\r\n")
	}
	if method == "POST" {
		b.WriteString("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ")
		b.WriteString(itoa(len(body)))
		b.WriteString("\r\n")
	}
	return b.String() + "\r\n" + body
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// reply is what came back on a raw connection.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // of the body, or of the head
	length int64
}

func (p reply) object() map[string]any {
	var m map[string]any
	json.Unmarshal(p.body, &m)
	return m
}

func exchange(c net.Conn, text string) reply {
	if _, err := io.WriteString(c, text); err != nil {
		return reply{err: err}
	}
	return read(bufio.NewReader(c))
}

func read(br *bufio.Reader) reply {
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: b, err: err, length: res.ContentLength}
}

// send opens a connection for one request.
func (r *rig) send(method, target, key, fault, body string) reply {
	r.t.Helper()
	return exchange(r.dial(), raw(method, target, key, fault, body))
}

func (r *rig) charge(key, fault string) reply {
	r.t.Helper()
	return r.send("POST", "/v1/payment_intents", key, fault, charge)
}

func (r *rig) get(target string) map[string]any {
	r.t.Helper()
	p := r.send("GET", target, "", "", "")
	if p.err != nil || p.status != 200 {
		r.t.Fatalf("GET %s: %d %v %s", target, p.status, p.err, p.body)
	}
	return p.object()
}

func (r *rig) executed(key string, want int) {
	r.t.Helper()
	if got := r.s.Executed(key); got != want {
		r.t.Errorf("executed under %s: %d, want %d", key, got, want)
	}
}

// control calls the control API.
func (r *rig) control(method, path, body string) (int, []byte) {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(r.t.Context(), method, r.base+"/_sandbox/"+path, strings.NewReader(body))
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: r.pool}
	res, err := tr.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, bytes.TrimSpace(b)
}

func form(kv ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(kv); i += 2 {
		v.Add(kv[i], kv[i+1])
	}
	return v.Encode()
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
