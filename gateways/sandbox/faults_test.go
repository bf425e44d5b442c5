package sandbox_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestWireFaults: what a raw client sees of each fault, and whether the charge was executed.
func TestWireFaults(t *testing.T) {
	cut := func(p reply) bool { return p.err != nil }
	tests := []struct {
		fault    string
		executed int
		ok       func(p reply) bool
	}{
		{"lose-fin", 1, func(p reply) bool { return errors.Is(p.err, io.ErrUnexpectedEOF) }},
		{"lose-rst", 1, func(p reply) bool { return errors.Is(p.err, syscall.ECONNRESET) }},
		{"error-after", 1, func(p reply) bool { return p.status == 500 }},
		{"error-after=503", 1, func(p reply) bool { return p.status == 503 }},
		{"error-after-unstored", 1, func(p reply) bool { return p.status == 500 }},
		{"error-before", 0, func(p reply) bool { return p.status == 500 }},
		{"balancer", 0, func(p reply) bool { return p.status == 503 && !strings.Contains(string(p.body), `"error"`) }},
		{"error-stored=502", 0, func(p reply) bool { return p.status == 502 }},
		{"drop", 0, cut},
		{"drop-rst", 0, cut},
		{"truncate-length", 1, func(p reply) bool { return p.status == 200 && errors.Is(p.err, io.ErrUnexpectedEOF) }},
		{"truncate-chunked", 1, func(p reply) bool { return p.status == 200 && errors.Is(p.err, io.ErrUnexpectedEOF) }},
		{"close-framed", 1, func(p reply) bool { return p.status == 200 && p.err == nil && p.length < 0 && !json.Valid(p.body) }},
		{"close-framed-whole", 1, func(p reply) bool { return p.status == 200 && p.length < 0 && json.Valid(p.body) }},
		{"truncate-head", 1, cut},
		{"in-use", 0, func(p reply) bool {
			return p.status == 409 && strings.Contains(string(p.body), "idempotency_key_in_use")
		}},
		{"decline=insufficient_funds", 0, func(p reply) bool {
			return p.status == 402 && strings.Contains(string(p.body), `"decline_code": "insufficient_funds"`)
		}},
		{"action", 1, func(p reply) bool { return p.object()["status"] == "requires_action" }},
		{"rate-limit", 0, func(p reply) bool { return p.status == 429 && strings.Contains(string(p.body), "rate_limit") }},
		{"lock-timeout", 0, func(p reply) bool { return p.status == 429 && strings.Contains(string(p.body), "lock_timeout") }},
		{"unauthorized", 0, func(p reply) bool { return p.status == 401 }},
		{"forbidden", 0, func(p reply) bool { return p.status == 403 }},
		{"empty", 1, func(p reply) bool { return p.status == 200 && p.length == 0 }},
		{"no-content", 1, func(p reply) bool { return p.status == 204 }},
		{"null", 1, func(p reply) bool { return string(p.body) == "null" }},
		{"html", 1, func(p reply) bool { return strings.HasPrefix(string(p.body), "<!doctype") }},
		{"redirect=308", 0, func(p reply) bool { return p.status == 308 && p.header.Get("Location") == "/v1/payment_intents" }},
		{"cookies", 1, func(p reply) bool {
			return len(p.header.Values("Set-Cookie")) == 2 && p.header.Get("X-Note") == "caf\xe9"
		}},
		{"no-date", 1, func(p reply) bool { return p.status == 200 && p.header.Get("Date") == "" }},
		{"trickle=1ms", 1, func(p reply) bool { return p.object()["status"] == "succeeded" }},
		{"delay=1ms", 1, func(p reply) bool { return p.object()["status"] == "succeeded" }},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			r := start(t, sandbox.Config{})
			p := r.charge("k", tt.fault)
			if !tt.ok(p) {
				t.Errorf("status %d, error %v, body %s", p.status, p.err, p.body)
			}
			r.executed("k", tt.executed)
			if n := len(r.s.Sends()); n != 1 {
				t.Errorf("sends: %d", n)
			}
		})
	}
}

// tap keeps the bytes that a connection got.
type tap struct {
	net.Conn
	got []byte
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got = append(c.got, b[:n]...)
	return n, err
}

// TestLoseOverTLS: close_notify is an alert record (type 21), which the other two do not send. Go's TLS client reports
// io.EOF either way, so the test looks at the bytes; TLS 1.2 leaves the record's type readable.
func TestLoseOverTLS(t *testing.T) {
	for fault, want := range map[string]string{"lose-tls": "alert EOF", "lose-fin": "EOF", "lose-rst": "reset"} {
		t.Run(fault, func(t *testing.T) {
			r := startTLS(t, sandbox.Config{})
			pool := r.pool.Clone()
			pool.MaxVersion = tls.VersionTLS12
			r.pool = nil
			under := &tap{Conn: r.dial()}
			c := tls.Client(under, pool)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			under.got = nil
			io.WriteString(c, raw("POST", "/v1/payment_intents", "k", fault, charge))
			n, err := c.Read(make([]byte, 1))
			got := ""
			if len(under.got) > 0 && under.got[0] == 21 {
				got = "alert "
			}
			switch {
			case errors.Is(err, syscall.ECONNRESET):
				got += "reset"
			case errors.Is(err, io.EOF):
				got += "EOF"
			}
			if n != 0 || got != want {
				t.Errorf("%d bytes, %q (%v), want %q", n, got, err, want)
			}
			r.executed("k", 1)
		})
	}
}

func TestGzip(t *testing.T) {
	r := start(t, sandbox.Config{})
	p := r.charge("k", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(z)
	if !json.Valid(b) || p.header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(p.header.Get("Digest"), "SHA-256=") {
		t.Errorf("header %v, body %s", p.header, b)
	}
}

func TestEarlyHints(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	io.WriteString(c, raw("POST", "/v1/payment_intents", "k", "early-hints", charge))
	b := make([]byte, 13)
	io.ReadFull(c, b)
	if string(b) != "HTTP/1.1 103 " {
		t.Errorf("first bytes %q", b)
	}
}

func TestCloseAfter(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	p := exchange(c, raw("POST", "/v1/payment_intents", "k", "close-after", charge))
	if p.err != nil || p.header.Get("Connection") != "" {
		t.Errorf("%v %v", p.err, p.header)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the answer: %v", err)
	}
}

// TestHang: the client gives up; before means that nothing ran and the key is free again.
func TestHang(t *testing.T) {
	for fault, executed := range map[string]int{"hang-before": 0, "hang-after": 1} {
		t.Run(fault, func(t *testing.T) {
			r := start(t, sandbox.Config{})
			c := r.dial()
			io.WriteString(c, raw("POST", "/v1/payment_intents", "k", fault, charge))
			if err := r.s.WaitSends(within(t, 10*time.Second), 1); err != nil {
				t.Fatal(err)
			}
			if executed == 1 {
				if err := r.s.WaitExecuted(within(t, 10*time.Second), 1); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			for { // the key of a hung request is in use until the client has gone
				p := r.charge("k", "")
				if p.status == 200 {
					if replayed := p.header.Get("Idempotent-Replayed") == "true"; replayed != (executed == 1) {
						t.Errorf("replayed: %v", replayed)
					}
					break
				}
				if p.status != 409 {
					t.Fatalf("status %d", p.status)
				}
			}
			r.executed("k", 1)
		})
	}
}

// TestDelayOutlivesClient: the gateway charges although nobody listens any more.
func TestDelayOutlivesClient(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	io.WriteString(c, raw("POST", "/v1/payment_intents", "k", "delay=50ms", charge))
	if err := r.s.WaitSends(within(t, 10*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := r.s.WaitExecuted(within(t, 10*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	r.executed("k", 1)
}

func TestHolds(t *testing.T) {
	r := start(t, sandbox.Config{})
	for _, tt := range []struct {
		fault, key string
		executed   int
		repeat     int
	}{{"hold-before=a", "k1", 0, 409}, {"hold-after=b", "k2", 1, 200}} {
		got := make(chan reply, 1)
		c := r.dial()
		go func() { got <- exchange(c, raw("POST", "/v1/payment_intents", tt.key, tt.fault, charge)) }()
		name := strings.TrimPrefix(tt.fault[strings.Index(tt.fault, "="):], "=")
		if status, body := r.control("GET", "holds/"+name, ""); status != 200 {
			t.Fatalf("wait: %d %s", status, body)
		}
		r.executed(tt.key, tt.executed)
		if p := r.charge(tt.key, ""); p.status != tt.repeat {
			t.Errorf("%s: repeat while held: %d", tt.fault, p.status)
		}
		if status, body := r.control("POST", "holds/"+name+"/release", ""); status != 200 || !strings.Contains(string(body), `"released": 1`) {
			t.Errorf("release: %d %s", status, body)
		}
		if p := <-got; p.status != 200 {
			t.Errorf("%s: after release %d", tt.fault, p.status)
		}
		r.executed(tt.key, 1)
	}
}

func TestInjectedFaults(t *testing.T) {
	r := start(t, sandbox.Config{})
	if status, body := r.control("POST", "faults", `{"fault":"error-before","arg":"503","route":"POST /v1/payment_intents","times":2}`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	var got []int
	got = append(got, r.send("POST", "/v1/charges", "c", "", form("amount", "5", "currency", "eur", "source", "tok_visa")).status)
	for range 3 {
		got = append(got, r.charge("k", "").status)
	}
	if want := "[200 503 503 200]"; want != strings.ReplaceAll(string(must(json.Marshal(got))), ",", " ") {
		t.Errorf("statuses %v, want %s", got, want)
	}
	r.s.Inject(sandbox.Fault{Name: "forbidden", Times: -1})
	for range 2 {
		if p := r.charge("k", ""); p.status != 403 {
			t.Errorf("a standing fault wore off: %d", p.status)
		}
	}
	r.control("DELETE", "faults", "")
	if p := r.charge("k", ""); p.status != 200 {
		t.Errorf("after DELETE: %d", p.status)
	}
	for _, bad := range []string{`{"fault":"nope"}`, `{"fault":"delay","arg":"soon"}`, `{"fault":"error-after","arg":"9"}`, `{"x":1}`, `[`} {
		if status, _ := r.control("POST", "faults", bad); status != 400 {
			t.Errorf("%s: %d", bad, status)
		}
	}
	if p := r.charge("k", "nope"); p.status != 400 {
		t.Errorf("unknown fault in the header: %d", p.status)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestHeaderTimes(t *testing.T) {
	r := start(t, sandbox.Config{})
	for i, want := range []int{500, 500, 200} {
		if p := r.charge("k", "error-before;times=2"); p.status != want {
			t.Errorf("request %d: %d, want %d", i+1, p.status, want)
		}
	}
	r.executed("k", 1)
}

func TestKeyFaults(t *testing.T) {
	for _, tt := range []struct {
		fault    string
		executed int
	}{{"", 1}, {"ignore-key", 3}, {"forget", 3}, {"forget=1h", 1}} {
		t.Run(tt.fault, func(t *testing.T) {
			r := start(t, sandbox.Config{})
			for range 3 {
				if p := r.charge("k", tt.fault); p.status != 200 {
					t.Fatal(p.status)
				}
			}
			r.executed("k", tt.executed)
		})
	}
}

func TestLags(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	r := start(t, sandbox.Config{Clock: clock})
	r.s.Inject(sandbox.Fault{Name: "list-lag", Arg: "10s"})
	r.charge("k", "")
	seen := func(target string) int { return len(r.get(target)["data"].([]any)) }
	const search = "/v1/payment_intents/search?query=metadata%5B'fence_ref'%5D%3A'ref-1'"
	want := func(list, found int) {
		t.Helper()
		if l, f := seen("/v1/payment_intents"), seen(search); l != list || f != found {
			t.Errorf("list %d, search %d; want %d, %d", l, f, list, found)
		}
	}
	want(0, 0)
	mu.Lock()
	now = now.Add(11 * time.Second)
	mu.Unlock()
	want(1, 0)
	mu.Lock()
	now = now.Add(20 * time.Second)
	mu.Unlock()
	want(1, 1)
}

// TestSimultaneous: of twenty requests with one key, one executes, and the others get it or 409.
func TestSimultaneous(t *testing.T) {
	r := start(t, sandbox.Config{})
	var wg sync.WaitGroup
	statuses := make(chan int, 20)
	for range 20 {
		c := r.dial()
		wg.Go(func() { statuses <- exchange(c, raw("POST", "/v1/payment_intents", "k", "delay=2ms", charge)).status })
	}
	wg.Wait()
	close(statuses)
	ok := 0
	for s := range statuses {
		if s == 200 {
			ok++
		} else if s != 409 {
			t.Errorf("status %d", s)
		}
	}
	if ok == 0 {
		t.Error("nobody was answered")
	}
	r.executed("k", 1)
	if n := len(r.s.Sends("POST")); n != 20 {
		t.Errorf("sends %d", n)
	}
}

// TestSendsAreRaw: the target and the lines are kept as they came.
func TestSendsAreRaw(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	exchange(c, "POST //v1/%2F..%ff?a=%zz HTTP/1.1\r\nHost: sandbox\r\nx-lower: 1\r\nX-Lower: 2\r\nContent-Length: 0\r\n\r\n")
	s := r.s.Sends()[0]
	if s.Target != "//v1/%2F..%ff?a=%zz" || s.Header[1] != (sandbox.Line{Name: "x-lower", Value: "1"}) || s.Header[2] != (sandbox.Line{Name: "X-Lower", Value: "2"}) {
		t.Errorf("%+v", s)
	}
	if status, b := r.control("GET", "sends", ""); status != 200 || !strings.Contains(string(b), "%2F..%ff") {
		t.Errorf("%d %s", status, b)
	}
	if strings.Contains(string(must(json.Marshal(s))), "x-lower") {
		t.Error("header lines, credentials among them, leave by JSON")
	}
}

func TestLongHeader(t *testing.T) {
	r := start(t, sandbox.Config{})
	long := strings.Repeat("x", 20_000)
	text := strings.Replace(raw("POST", "/v1/payment_intents", "k", "", charge), "Host:", "X-Long: "+long+"\r\nHost:", 1)
	if p := exchange(r.dial(), text); p.status != 200 || r.s.Sends()[0].Header[0].Value != long {
		t.Errorf("%d %v", p.status, p.err)
	}
}

func TestKeepAliveAndChunked(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	text := "POST /v1/payment_intents HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer k\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
	for i := range 3 {
		p := exchange(c, text+"8\r\namount=5\r\nd\r\n&currency=eur\r\n0\r\n\r\n")
		if p.status != 200 {
			t.Fatalf("request %d: %d %v %s", i, p.status, p.err, p.body)
		}
	}
	if r.s.Conns() != 1 || len(r.s.Sends()) != 3 {
		t.Errorf("%d connections, %d sends", r.s.Conns(), len(r.s.Sends()))
	}
}

func TestExpect(t *testing.T) {
	r := start(t, sandbox.Config{})
	c := r.dial()
	head, body, _ := strings.Cut(raw("POST", "/v1/payment_intents", "k", "", charge), "\r\n\r\n")
	io.WriteString(c, head+"\r\nExpect: 100-continue\r\n\r\n")
	b := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if io.ReadFull(c, b); !strings.HasPrefix(string(b), "HTTP/1.1 100") {
		t.Fatalf("%q", b)
	}
	if p := exchange(c, body); p.status != 200 {
		t.Errorf("%d %v", p.status, p.err)
	}
}

// TestHTTP2: a client that takes h2 is seen to have taken it.
func TestHTTP2(t *testing.T) {
	r := startTLS(t, sandbox.Config{HTTP2: true})
	for proto, h2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		tr := &http.Transport{TLSClientConfig: r.pool.Clone(), ForceAttemptHTTP2: h2, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		if h2 {
			tr.TLSNextProto = nil
		}
		req, _ := http.NewRequest("POST", r.base+"/v1/payment_intents", strings.NewReader(charge))
		req.Header.Set("Authorization", "Bearer sk")
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		tr.CloseIdleConnections()
		sends := r.s.Sends()
		if got := sends[len(sends)-1].Proto; res.StatusCode != 200 || got != proto {
			t.Errorf("status %d, proto %s, want %s", res.StatusCode, got, proto)
		}
	}
}

// TestServeConn: any net.Conn will do.
func TestServeConn(t *testing.T) {
	s := sandbox.New(sandbox.Config{})
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); s.ServeConn(b) }()
	if p := exchange(a, raw("POST", "/v1/payment_intents", "k", "", charge)); p.status != 200 {
		t.Errorf("%d %v", p.status, p.err)
	}
	a.Close()
	<-done
	s.Close()
}

// TestFaultTable: every fault of the table can be switched on by its bare name.
func TestFaultTable(t *testing.T) {
	s := sandbox.New(sandbox.Config{})
	for _, f := range sandbox.Faults {
		if f.Meaning == "" {
			t.Errorf("%s: no meaning", f.Name)
		}
		if err := s.Inject(sandbox.Fault{Name: f.Name}); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}
