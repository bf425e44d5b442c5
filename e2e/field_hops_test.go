package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports about what stands between the app and the gateway.

// signedLines is the app's signature over header lines that proxies like to change, as its value of X-Signature.
func signedLines(host, target, body string, lines []string) string {
	var text strings.Builder
	text.WriteString("host: " + host)
	for _, name := range []string{"Accept-Encoding", "Content-Type", "Date", "Digest"} {
		for _, l := range lines {
			if n, v, _ := strings.Cut(l, ":"); n == name {
				text.WriteString("\n" + strings.ToLower(n) + ":" + v)
			}
		}
	}
	return sign("POST", target, text.String()+"\n\n"+body)
}

// TestR30SignedHeadersUnchanged: what the app signed for the gateway's host name arrives as it was signed, and nothing that
// proxies add is added: the gateway finds the signature valid.
func TestR30SignedHeadersUnchanged(t *testing.T) {
	names := make(chan string, 10) // by which TLS asked for the gateway
	g, ca := newRawTLS(t, func(c *rawCall) verdict {
		names <- c.conn.(*tls.Conn).ConnectionState().ServerName
		if c.header("X-Signature") != signedLines(c.header("Host"), c.target(), c.body, c.lines) {
			return c.reply(401, "", "bad signature")
		}
		return behave
	})
	_, port, _ := net.SplitHostPort(g.ln.Addr().String())
	host := net.JoinHostPort("localhost", port)
	u := rawUse(g)
	u.url, u.ca = "https://"+host, ca
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	for i, c := range []struct{ listener, prefix, host string }{
		{"raw", "", a.at("raw")},                     // as an SDK whose base URL is the sidecar's
		{"raw", "", host},                            // as one that keeps the gateway's name
		{"any gateway", "/raw", a.at("any gateway")}, // the gateway by its path
	} {
		const target = "/v1/anything?b=%2F&a=1"
		end := []string{ // what the gateway must see, in this order
			"Accept-Encoding: identity", "Content-Type: application/json; charset=utf-8", "Date: Sun, 06 Nov 1994 08:49:37 GMT",
			"Digest: SHA-256=X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=", "X-Twice: 1", "x-TWICE:  2 ", "Authorization: Bearer " + secret,
		}
		body := `{"amount": 4990}`
		end = append(end, "X-Signature: "+signedLines(host, target, body, end))
		got := send(a.at(c.listener), request{target: c.prefix + target, body: body, lines: slices.Concat(
			[]string{"Host: " + c.host, fmt.Sprintf("Fence-Key: k%d", i), "Prefer: wait=0", "TE: trailers", "Keep-Alive: timeout=5"}, end)})
		got.want(t, 200, "")
		got.wantResult(t, "succeeded", "sent")
		g.wantSends(i + 1)
		if t.Failed() {
			return
		}
		c := g.sends("")[i]
		var seen, theirs []string
		for _, l := range c.lines {
			switch n, _, _ := strings.Cut(l, ":"); n {
			case "Host", "Content-Length", "Idempotency-Key": // the framing, and the place of the key
				theirs = append(theirs, l)
			default:
				seen = append(seen, l)
			}
		}
		end[5] = "x-TWICE: 2" // blanks around a value are not part of it (RFC 9110 section 5.5)
		if !slices.Equal(seen, end) {
			t.Errorf("the gateway saw\n%q\nwant\n%q", seen, end)
		}
		if len(theirs) != 3 || c.header("Host") != host || c.header("Content-Length") != fmt.Sprint(len(body)) || len(c.header("Idempotency-Key")) < 32 {
			t.Errorf("the fence's own lines: %q", theirs)
		}
		if name := <-names; name != "localhost" {
			t.Errorf("TLS asked for %q", name)
		}
	}
}

// hop is a proxy of a mesh: it repeats a POST that was answered by a status of its list, or not in time, up to twice more,
// each time at the next of its targets.
type hop struct {
	ln       net.Listener
	to       []string
	statuses []int
	limit    time.Duration // for one try

	mu    sync.Mutex
	tries int
	wg    sync.WaitGroup
}

func newHop(t *testing.T, limit time.Duration, statuses []int, to ...string) *hop {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hop{ln: ln, to: to, statuses: statuses, limit: limit}
	h.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h.wg.Go(func() { h.serve(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); h.wg.Wait() })
	return h
}

func (h *hop) addr() string { return h.ln.Addr().String() }

func (h *hop) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// serve passes one request on, and the answer of the last try back.
func (h *hop) serve(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	var raw bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(in, &raw)))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil { // it has a Content-Length
		return
	}
	var p reply
	for n := range 3 {
		h.mu.Lock()
		h.tries++
		to := h.to[(h.tries-1)%len(h.to)]
		h.mu.Unlock()
		p = h.try(to, raw.Bytes())
		if req.Method != http.MethodPost || p.err == nil && !slices.Contains(h.statuses, p.status) || n == 2 {
			break
		}
	}
	if p.err != nil {
		fmt.Fprint(c, "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\n%s\r\n\r\n%s", p.status, http.StatusText(p.status), strings.Join(p.lines, "\r\n"), p.body)
}

// try is one try; when it takes too long its connection is closed.
func (h *hop) try(to string, raw []byte) reply {
	c, err := net.DialTimeout("tcp", to, h.limit)
	if err != nil {
		return reply{err: err}
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(h.limit))
	if _, err := c.Write(raw); err != nil {
		return reply{err: err}
	}
	return readReply(bufio.NewReader(c))
}

// TestR39RetryingHopAboveTheFence: a mesh repeats POSTs on a time limit, on 409 and on 503. Above the fence each repeat is a
// duplicate, whichever sidecar it comes to: the gateway gets one send.
func TestR39RetryingHopAboveTheFence(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		token := s.a.acquire("order", minute)
		h := newHop(t, 700*time.Millisecond, []int{409, 503}, s.a.at("stripe"), s.b.at("stripe"))

		inject(t, s.gateway, sandbox.Fault{Name: "hold-after", Arg: "slow", Route: "POST /v1/**"})
		slow := charge("slow", "Prefer: wait=0").under(token)
		busy := send(h.addr(), slow)
		if n := h.count(); n != 3 {
			t.Errorf("the hop tried %d times, want 3: nothing was tested", n)
		}
		busy.want(t, 409, "in-flight")
		busy.wantResult(t, "unknown", "refused")
		s.gateway.Release("slow")
		got, err := insistAt(slow, h.addr())
		if err != nil {
			t.Fatal(err)
		}
		got.wantResult(t, "succeeded", "replayed")
		s.wantSends(1)

		// The answer is lost above the fence.
		before := h.count()
		lossy := newHop(t, 10*time.Second, nil, cutting(t, s.a.at("stripe")), s.b.at("stripe"))
		again := send(lossy.addr(), charge("lost").under(token))
		again.want(t, 200, "")
		if res := again.header("Fence-Result"); res != "replayed" && res != "reconciled" || lossy.count() != 2 || h.count() != before {
			t.Errorf("after %d tries the app is told: %s", lossy.count(), again)
		}
		s.wantSends(2)
		for _, key := range []string{"slow", "lost"} {
			if rec := s.record(key); rec.State != claims.StateSucceeded || rec.Attempt != 1 || s.gateway.Executed(rec.Facts.GatewayKey) != 1 {
				t.Errorf("call %s: %s after attempt %d", key, rec.State, rec.Attempt)
			}
		}
	})
}

// cutting passes requests on and closes the connection instead of answering; it returns its address.
func cutting(t *testing.T, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err == nil {
				wg.Go(func() { io.Copy(up, c) })
				readReply(bufio.NewReader(up))
				up.Close()
			}
			c.Close()
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

// TestR39RetryingHopBelowTheFence: below the fence the mesh gets one send of ours and makes more of it; all have the same key,
// so that a gateway which honours keys charges once. One that does not charges for each, which no fence can see.
func TestR39RetryingHopBelowTheFence(t *testing.T) {
	t.Parallel()
	for name, honours := range map[string]bool{"keys are honoured": true, "keys are ignored": false} {
		t.Run(name, func(t *testing.T) {
			g := newRaw(t, func(c *rawCall) verdict {
				if c.method() == http.MethodGet {
					return behave
				}
				if !honours {
					c.lines = slices.DeleteFunc(c.lines, func(l string) bool { return strings.HasPrefix(l, "Idempotency-Key:") })
					c.lines = append(c.lines, fmt.Sprintf("Idempotency-Key: %d", c.nth))
				}
				if c.book(); len(c.g.sends("")) == 1 {
					return c.reply(503, "", "no healthy upstream")
				}
				return behave
			})
			h := newHop(t, 10*time.Second, []int{503}, g.ln.Addr().String())
			u := rawUse(g)
			u.url = "http://" + h.addr()
			w := rawWorld(t, settings{gateway: []use{u}})
			got := send(w.start("A").at("raw"), charge("k"))
			got.want(t, 200, "")
			got.wantResult(t, "succeeded", "sent")
			if n := h.count(); n != 2 {
				t.Errorf("the hop made %d tries of our one send, want 2", n)
			}
			g.wantSends(2)
			if rec := w.record("k"); rec.Attempt != 1 {
				t.Errorf("the record knows of %d attempts, want 1", rec.Attempt)
			}
			sends := g.sends("")
			if same := sends[0].header("Idempotency-Key") == sends[1].header("Idempotency-Key"); honours && !same {
				t.Error("the two have different keys")
			}
			if want := map[bool]int{true: 1, false: 2}[honours]; len(g.executed()) != want {
				t.Errorf("executed %d, want %d", len(g.executed()), want)
			}
		})
	}
}
