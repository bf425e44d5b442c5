package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Field reports about framing, reaching a gateway, and time.

// TestField_R36_expect: the sidecar answers Expect: 100-continue itself and does not pass it on; a body over the limit is
// never asked for.
func TestField_R36_expect(t *testing.T) {
	g := newRaw(t, func(c *rawCall) verdict {
		if c.has("Expect") {
			return c.reply(417, "", "")
		}
		return behave
	})
	u := rawUse(g)
	u.body = 30 << 10
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	head := func(key string, n int) string {
		return fmt.Sprintf("POST /plain/x HTTP/1.1\r\nHost: h\r\nFence-Key: %s\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", key, n)
	}
	t.Run("normal", func(t *testing.T) {
		c, err := dial(a.at("raw"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, head("k", 20<<10))
		br := bufio.NewReader(c)
		interim := ""
		for !strings.HasSuffix(interim, "\r\n\r\n") {
			b, err := br.ReadByte()
			if err != nil {
				t.Fatalf("no 100 came: %q, %v", interim, err)
			}
			interim += string(b)
		}
		if interim != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("want a 100, got %q", interim)
		}
		body := strings.Repeat("b", 20<<10)
		io.WriteString(c, body)
		readReply(br).want(t, 200, "")
		if g.wantSends(1); t.Failed() {
			return
		}
		if s := g.sends("")[0]; s.has("Expect") || s.body != body || s.header("Content-Length") != fmt.Sprint(20<<10) {
			t.Errorf("the request did not pass as it should: %q, %d bytes", s.lines, len(s.body))
		}
	})
	t.Run("tooLarge", func(t *testing.T) {
		c, err := dial(a.at("raw"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, head("k2", 40<<10))
		readReply(bufio.NewReader(c)).want(t, 413, "body-too-large") // a 100 would be read first
		g.wantSends(1)
		if w.state("k2") != claims.None {
			t.Error("a refused call was stored")
		}
	})
}

// TestField_R37_framing: what came with a length goes out with that length; what came in chunks goes out with one.
func TestField_R37_framing(t *testing.T) {
	g := newRaw(t, func(c *rawCall) verdict {
		if c.has("Transfer-Encoding") {
			return c.reply(411, "", "")
		}
		return behave
	})
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a := w.start("A")
	for i, c := range []struct{ name, request, length, body string }{
		{"length", "POST /v1/x HTTP/1.1\r\nContent-Length: 17\r\n%s\r\n12345678901234567", "17", "12345678901234567"},
		{"chunked", "POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n%s\r\n8\r\n12345678\r\n9\r\n901234567\r\n0\r\n\r\n", "17", "12345678901234567"},
		{"empty", "POST /v1/x HTTP/1.1\r\nContent-Length: 0\r\n%s\r\n", "0", ""},
		{"emptyChunked", "POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n%s\r\n0\r\n\r\n", "0", ""},
		{"delete", "DELETE /v1/x HTTP/1.1\r\n%s\r\n", "", ""},
		{"http10", "POST /v1/x HTTP/1.0\r\nContent-Length: 3\r\n%s\r\nabc", "3", "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := fmt.Sprintf(c.request, fmt.Sprintf("Host: h\r\nContent-Type: text/plain\r\nFence-Key: k%d\r\nConnection: close\r\n", i))
			sendRaw(a.at("raw"), []byte(raw)).want(t, 200, "")
			sends := g.sends("")
			if len(sends) != i+1 {
				t.Fatalf("%d sends, want %d", len(sends), i+1)
			}
			s := sends[i]
			if s.has("Transfer-Encoding") || s.header("Content-Length") != c.length || s.has("Content-Length") != (c.length != "") || s.body != c.body {
				t.Errorf("the gateway saw %q and body %q, want length %q and body %q", s.lines, s.body, c.length, c.body)
			}
		})
	}
}

// TestField_R41_unsent: what surely was not sent may be sent again at once; what was perhaps sent may not.
func TestField_R41_unsent(t *testing.T) {
	cut := newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet {
			return behave
		}
		return c.fin()
	})
	unread, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := unread.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { unread.Close(); <-done })
	untrusted, _ := newRawTLS(t, nil)
	_, ca := certificate(t) // another authority
	uses := []use{
		{name: "refused", url: "http://127.0.0.1:1"},
		{name: "dns", url: "http://no..such.host"}, // fails in the resolver, without asking anybody
		{name: "tls", url: untrusted.url(), ca: ca},
		{name: "notls", url: "https://" + unread.Addr().String(), ca: ca},
		{name: "unread", url: "http://" + unread.Addr().String()},
		{name: "cut", url: cut.url()},
	}
	for i := range uses {
		uses[i].file = "raw.yaml"
	}
	w := rawWorld(t, settings{gateway: uses})
	a := w.start("A")
	for name, cause := range map[string]string{"refused": "dial", "dns": "dns", "tls": "tls", "notls": "tls"} {
		r := charge("k-"+name, "Prefer: wait=0")
		for n := 1; n <= 2; n++ {
			got := send(a.at(name), r)
			got.want(t, 502, "not-sent")
			got.wantResult(t, "not-executed", "refused")
			rec := w.record("k-" + name)
			last := rec.Attempts[len(rec.Attempts)-1]
			if rec.State != claims.StateOpen || rec.Attempt != n || last.Cause != cause || last.Wrote || last.Outcome != claims.NotExecuted {
				t.Errorf("%s, try %d: %s, attempt %+v", name, n, rec.State, last)
			}
		}
	}
	for _, name := range []string{"unread", "cut"} {
		r := charge("k-"+name, "Prefer: wait=0")
		for range 2 {
			send(a.at(name), r).want(t, 504, "in-doubt")
		}
		rec := w.record("k-" + name)
		if rec.State != claims.StateUnknown || rec.Attempt != 1 || !rec.Attempts[0].Wrote || rec.Attempts[0].Cause == "" {
			t.Errorf("%s: %s, attempts %+v", name, rec.State, rec.Attempts)
		}
	}
	cut.wantSends(1)
	untrusted.wantSends(0)
}

// blackhole is an address on loopback that answers no SYN: a listener that accepts nothing and whose queue is full.
func blackhole(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = syscall.Listen(int(fd), 0) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	for range 64 {
		c, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second)
		if err != nil {
			return ln.Addr().String()
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue never filled: there is no black hole to test with")
	return ""
}

// TestField_R74_timeouts: the attempt's time covers connect, handshake, head and body; routes have their own.
func TestField_R74_timeouts(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts; nobody shakes hands
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	slow := newRaw(t, func(c *rawCall) verdict {
		after := func(d time.Duration) bool {
			select {
			case <-time.After(d):
				return true
			case <-c.g.stop:
				return false
			}
		}
		switch {
		case c.method() == http.MethodGet:
		case strings.Contains(c.body, "trickle"):
			c.book()
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for after(300 * time.Millisecond) {
				if _, err := io.WriteString(c.conn, "x"); err != nil {
					break
				}
			}
			return hangUp
		case c.target() == "/v1/refunds":
			after(3 * time.Second)
		default:
			after(200 * time.Millisecond)
		}
		return behave
	})
	slow.hide(true)
	_, ca := certificate(t)
	uses := []use{
		{name: "syn", url: "http://" + blackhole(t)},
		{name: "mute", url: "https://" + mute.Addr().String(), ca: ca},
		{name: "slow", url: slow.url(), routes: "{refund: {attemptTimeout: 30s}}"},
	}
	for i := range uses {
		uses[i].file = "raw.yaml"
	}
	w := rawWorld(t, settings{gateway: uses})
	a := w.start("A")
	within := func(p reply) {
		t.Helper()
		if p.took < time.Second || p.took > 20*time.Second {
			t.Errorf("an attempt of 2 s took %s", p.took)
		}
	}
	for _, name := range []string{"syn", "mute"} {
		p := send(a.at(name), charge("k-"+name, "Prefer: wait=0"))
		p.want(t, 502, "not-sent")
		within(p)
		if rec := w.record("k-" + name); rec.State != claims.StateOpen || rec.Attempts[0].Cause != "timeout" || rec.Attempts[0].Wrote {
			t.Errorf("%s: %s, %+v", name, rec.State, rec.Attempts)
		}
	}
	trickle := charge("k-trickle", "Prefer: wait=0")
	trickle.body += "&note=trickle"
	p := send(a.at("slow"), trickle)
	p.want(t, 504, "in-doubt")
	within(p)
	w.wantState("k-trickle", claims.StateUnknown)
	refund := charge("k-refund", "Fence-Undo: none")
	refund.target = "/v1/refunds"
	send(a.at("slow"), refund).wantResult(t, "succeeded", "sent")
	send(a.at("slow"), charge("k-charge")).wantResult(t, "succeeded", "sent")
	slow.wantSends(3)
}
