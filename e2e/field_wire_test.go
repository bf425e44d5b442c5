package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports about what goes over the wire.

// plain is a call of a route that takes any body.
func plain(key, target string) request {
	return request{target: target, lines: []string{"Fence-Key: " + key, "Content-Type: text/plain", "Prefer: wait=0"}, body: "x=1"}
}

// TestField_R22_deadConnection: a kept-alive connection dies under a request, with four more idle ones beside it. One
// send; the app is told that nothing is known; the lookup tells.
func TestField_R22_deadConnection(t *testing.T) {
	const idle = 5
	for _, end := range []string{"FIN", "RST", "close_notify"} {
		t.Run(end, func(t *testing.T) {
			warm := make(chan struct{})
			arrived := make(chan struct{}, idle)
			answer := func(c *rawCall) verdict {
				switch {
				case c.target() == "/v1/charges" && strings.Contains(c.body, "warm"):
					arrived <- struct{}{}
					<-warm
					return behave
				case c.method() == http.MethodGet || len(c.g.sends("")) > idle+1:
					return behave
				}
				c.book()
				switch end {
				case "RST":
					return c.reset()
				case "FIN":
					return c.fin()
				}
				c.conn.Close() // over TLS it says so
				return hangUp
			}
			g, ca := newRawTLS(t, answer)
			if end == "RST" { // a reset is the same below TLS
				g, ca = newRaw(t, answer), ""
			}
			u := rawUse(g)
			u.ca, u.attempt = ca, "20s"
			w := rawWorld(t, settings{gateway: []use{u}})
			a := w.start("A")
			var warming []<-chan reply
			for i := range idle {
				r := charge(fmt.Sprintf("warm%d", i))
				r.body += "&note=warm"
				warming = append(warming, later(a.at("raw"), r))
			}
			for range idle {
				<-arrived
			}
			close(warm)
			for _, c := range warming {
				await(t, c).want(t, 200, "")
			}
			g.hide(true)
			send(a.at("raw"), charge("k", "Prefer: wait=0")).want(t, 504, "in-doubt")
			g.wantSends(idle + 1)
			if t.Failed() {
				return
			}
			if sends := g.sends(""); sends[len(sends)-1].nth > idle {
				t.Errorf("the send came on connection %d: no warm one was used, so nothing was tested", sends[len(sends)-1].nth)
			}
			w.wantState("k", claims.StateUnknown)
			g.hide(false)
			insist(t, charge("k"), "raw", a).wantResult(t, "succeeded", "reconciled")
			g.wantSends(idle + 1)
			g.wantExecuted(idle + 1)
		})
	}
}

// TestField_R22_stripe: the same at a gateway with a probe: its list shows the charge, so that no probe is needed.
func TestField_R22_stripe(t *testing.T) {
	for _, fault := range []string{"lose-fin", "lose-rst", "lose-tls"} {
		t.Run(fault, func(t *testing.T) {
			cert, ca := certificate(t)
			gateway, u := newSandbox(t, sandbox.Config{TLS: cert.TLS()})
			u.ca = ca
			w := newWorld(t, settings{gateway: []use{u}})
			a := w.start("A")
			insist(t, charge("warm"), "stripe", a)
			inject(t, gateway, sandbox.Fault{Name: fault})
			got := insist(t, charge("k"), "stripe", a)
			got.wantResult(t, "succeeded", "reconciled")
			sends := gateway.Sends("POST")
			if len(sends) != 2 || gateway.Moved() != 2 {
				t.Fatalf("want 2 sends and 2 charges, got %d and %d", len(sends), gateway.Moved())
			}
			if sends[0].Conn != sends[1].Conn {
				t.Error("the connection was not used again, so nothing was tested")
			}
			if got.id() != gateway.Ledger()[1].ID {
				t.Errorf("the app was told of another charge: %s", got)
			}
		})
	}
}

// h2Frames are what a front end that speaks HTTP/2 says after an empty SETTINGS frame (RFC 9113 section 4.1).
var h2Frames = map[string]string{
	"REFUSED_STREAM": "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07",
	"GOAWAY":         "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"PROTOCOL_ERROR": "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01",
}

// TestField_R24_http2: a gateway that prefers HTTP/2 gets HTTP/1.1 and one send; one that answers in HTTP/2 frames what
// promises "not processed" is not believed.
func TestField_R24_http2(t *testing.T) {
	t.Run("offered", func(t *testing.T) {
		cert, ca := certificate(t)
		gateway, u := newSandbox(t, sandbox.Config{TLS: cert.TLS(), HTTP2: true})
		u.ca = ca
		w := newWorld(t, settings{gateway: []use{u}})
		insist(t, charge("k"), "stripe", w.start("A")).want(t, 200, "")
		if s := gateway.Sends("POST"); len(s) != 1 || s[0].Proto != "HTTP/1.1" {
			t.Errorf("want one send in HTTP/1.1, got %+v", s)
		}
	})
	for name, frame := range h2Frames {
		for _, body := range []string{"amount=1", ""} {
			t.Run(name+"/"+body, func(t *testing.T) {
				g, ca := newRawTLS(t, func(c *rawCall) verdict {
					c.say("\x00\x00\x00\x04\x00\x00\x00\x00\x00%s", frame)
					return c.fin()
				}, "h2")
				u := rawUse(g)
				u.ca = ca
				w := rawWorld(t, settings{gateway: []use{u}})
				a := w.start("A")
				r := plain("k", "/v1/anything")
				r.body = body
				for range 2 {
					send(a.at("raw"), r).want(t, 504, "in-doubt")
				}
				g.wantSends(1)
				w.wantState("k", claims.StateUnknown)
			})
		}
	}
}

// TestField_R26_redirect: no redirect is followed; a listed one passes unchanged, an unlisted one is doubt.
func TestField_R26_redirect(t *testing.T) {
	other := newRaw(t, nil)
	for _, status := range []int{307, 308} {
		for _, place := range []string{"/v1/charges2", other.url() + "/v1/charges2"} {
			g := newRaw(t, func(c *rawCall) verdict {
				if c.method() == http.MethodGet {
					return behave
				}
				return c.reply(status, "Location: "+place+"\r\n", "moved")
			})
			w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
			a := w.start("A")
			got := send(a.at("raw"), plain("listed", "/moved"))
			got.want(t, status, "")
			if got.header("Location") != place || string(got.body) != "moved" {
				t.Errorf("the redirect did not pass unchanged: %s", got)
			}
			g.wantSends(1)
			send(a.at("raw"), charge("unlisted", "Prefer: wait=0")).want(t, 504, "in-doubt")
			g.wantSends(2)
			for _, c := range g.sends("") {
				if c.target() != "/moved" && c.target() != "/v1/charges" {
					t.Errorf("a redirect was followed: %s", c.line)
				}
			}
		}
	}
	if other.conns != 0 {
		t.Errorf("%d connections went to the other host", other.conns)
	}
}

// sign is the app's signature over method, raw target and body.
func sign(method, target, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s\n%s\n%s", method, target, body)
	return hex.EncodeToString(h.Sum(nil))
}

// signedFile declares a gateway of which only the signature is known.
const signedFile = `name: raw
baseURL: http://127.0.0.1:1
keyRetention: 24h
family: a
key: {header: Idempotency-Key}
routes: [{name: signed, method: "*", path: /**, signed: true, answers: [{status: ["2xx"], when: [{at: /id}], outcome: succeeded}]}]
`

// TestField_R27_rawPath: the gateway sees the app's request target, byte for byte.
func TestField_R27_rawPath(t *testing.T) {
	g := newRaw(t, func(c *rawCall) verdict {
		if c.header("X-Signature") != sign(c.method(), c.target(), c.body) {
			return c.reply(401, "", "bad signature of "+c.line)
		}
		return behave
	})
	file := filepath.Join(t.TempDir(), "signed.yaml")
	if err := os.WriteFile(file, []byte(signedFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, settings{gateway: []use{{file: file, url: g.url()}}})
	a, b := w.pair()
	targets := []string{
		"/v1/customers/a%2Fb/charges", "/v1//charges", "//v1//charges", "/v1/x/../charges", "/v1/./x", "/v1/%ff", "/v1/a%7Eb",
		"/v1/x?a=%2F&b=+&&c=%ff", "/v1/x?", "/v1/;a=b", "/v1/%2e%2e/x",
	}
	for i, target := range targets {
		r := plain(fmt.Sprintf("k%d", i), target)
		r.lines = append(r.lines, "X-Signature: "+sign("POST", target, r.body))
		send(a.at("raw"), r).want(t, 200, "")
		send(b.at("raw"), r).wantResult(t, "succeeded", "replayed")
		sends := g.sends("")
		if want := "POST " + target + " HTTP/1.1"; len(sends) != i+1 || sends[i].line != want {
			t.Fatalf("want %d sends, the last %q; got %d", i+1, want, len(sends))
		}
	}
	// Two spellings of one path are two operations.
	r := plain("k6", "/v1/a~b")
	send(a.at("raw"), r).want(t, 422, "key-conflict")
	g.wantSends(len(targets))
}

// TestField_R27_otherSpelling: where a route has rules of its own, another spelling of its path must not slip past them.
func TestField_R27_otherSpelling(t *testing.T) {
	g := newRaw(t, nil)
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a := w.start("A")
	for i, target := range []string{"/v1//refunds", "/v1/%72efunds", "/v1/x/../refunds", "/v1/refunds/"} {
		r := charge(fmt.Sprintf("k%d", i), "Fence-Undo: none")
		r.target = target
		send(a.at("raw"), r).want(t, 400, "bad-request")
	}
	g.wantSends(0)
	if n := len(w.all()); n != 0 {
		t.Errorf("%d records", n)
	}
}

// own are the header lines that the fence or the connection adds to an answer.
var own = []string{"fence-outcome", "fence-result", "fence-attempt", "fence-call", "fence-lease", "proxy-status", "connection"}

// gatewayLines are the answer's lines without ours, by lower-case name.
func (p reply) gatewayLines() map[string][]string {
	m := map[string][]string{}
	for _, l := range p.lines {
		name, v, _ := strings.Cut(l, ":")
		if name = strings.ToLower(name); !slices.Contains(own, name) {
			m[name] = append(m[name], strings.TrimPrefix(v, " "))
		}
	}
	return m
}

// TestField_R29_gzip: nobody on the way asks for gzip, and nobody unpacks.
func TestField_R29_gzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(`{"id":"ch_1"}`))
	z.Close()
	sum := sha256.Sum256(packed.Bytes())
	digest := "SHA-256=" + base64.StdEncoding.EncodeToString(sum[:])
	g := newRaw(t, func(c *rawCall) verdict {
		if !c.has("Accept-Encoding") {
			return behave
		}
		return c.reply(200, "Content-Type: application/json\r\nContent-Encoding: gzip\r\nDigest: "+digest+"\r\n", packed.String())
	})
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a, b := w.pair()
	send(a.at("raw"), plain("k1", "/plain/1")).want(t, 200, "")
	first := send(a.at("raw"), plain("k2", "/plain/2").with("Accept-Encoding: gzip, br"))
	for _, p := range []reply{first, send(a.at("raw"), plain("k2", "/plain/2")), send(b.at("raw"), plain("k2", "/plain/2"))} {
		if !bytes.Equal(p.body, packed.Bytes()) || p.header("Content-Encoding") != "gzip" || p.header("Digest") != digest ||
			p.header("Content-Length") != fmt.Sprint(packed.Len()) {
			t.Errorf("not the bytes that were on the wire: %s", p)
		}
	}
	sends := g.sends("")
	if len(sends) != 2 {
		t.Fatalf("%d sends, want 2", len(sends))
	}
	if sends[0].has("Accept-Encoding") {
		t.Errorf("an Accept-Encoding was made up: %q", sends[0].lines)
	}
	if got := sends[1].header("Accept-Encoding"); got != "gzip, br" {
		t.Errorf("the gateway saw Accept-Encoding %q", got)
	}
	if rec := w.record("k2"); rec.Answer == nil || !bytes.Equal(rec.Answer.Body, packed.Bytes()) {
		t.Errorf("stored: %+v", rec.Answer)
	}
}

// TestField_R32_headerLines: the answer's header lines are kept as lines and as bytes.
func TestField_R32_headerLines(t *testing.T) {
	lines := []string{
		"Date: Sun, 06 Nov 1994 08:49:37 GMT",
		"Set-Cookie: a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT; Path=/",
		"Set-Cookie: b=2; Path=/",
		`Content-Disposition: attachment; filename="a, b; c.txt"`,
		"X-Empty: ",
		"X-Latin: caf\xe9",
		"x-lower: Kept",
		"Content-Length: 2",
	}
	g := newRaw(t, func(c *rawCall) verdict {
		c.say("HTTP/1.1 201 Made\r\n%s\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\nok", strings.Join(lines, "\r\n"))
		return keep
	})
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a, b := w.pair()
	want := reply{lines: lines}.gatewayLines()
	for i, s := range []*sidecar{a, a, b} {
		p := send(s.at("raw"), plain("k", "/plain/x"))
		if p.status != 201 || string(p.body) != "ok" {
			t.Errorf("request %d: %s", i, p)
		}
		if got := p.gatewayLines(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("request %d:\ngot  %q\nwant %q", i, got, want)
		}
	}
	rec := w.record("k")
	if rec.Answer == nil {
		t.Fatalf("no answer is stored: %+v", rec)
	}
	for _, f := range rec.Answer.Header {
		if n := strings.ToLower(f.Name); n == "connection" || n == "keep-alive" || n == "transfer-encoding" {
			t.Errorf("stored a header of the gateway's connection: %v", f)
		}
	}
	g.wantSends(1)
}

// TestField_R34_truncated: half an answer is no answer.
func TestField_R34_truncated(t *testing.T) {
	const half = `{"id":"ch_1"}` // 13 bytes that look whole: only the framing tells
	const notify = "close_notify"
	for _, c := range []struct {
		name, target, head, end string
		status                  int
	}{
		{"contentLength", "/v1/charges", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", "", 504},
		{"chunked", "/v1/charges", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n", "", 504},
		{"closeFramed", "/v1/charges", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "", 504},
		{"closeFramedNotify", "/v1/charges", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", notify, 504},
		{"http10", "/v1/charges", "HTTP/1.0 200 OK\r\n\r\n", notify, 504},
		{"head", "/v1/charges", "HTTP/1.1 200 OK\r\nContent-Ty", notify, 504},
		{"allowedCut", "/framed", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "", 504},
		{"allowedWhole", "/framed", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", notify, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, ca := newRawTLS(t, func(call *rawCall) verdict {
				if call.method() == http.MethodGet {
					return behave
				}
				call.book()
				call.say("%s%s", c.head, half)
				if c.end == notify {
					call.conn.Close()
					return hangUp
				}
				return call.fin()
			})
			g.hide(true)
			u := rawUse(g)
			u.ca = ca
			w := rawWorld(t, settings{gateway: []use{u}})
			a := w.start("A")
			r := charge("k", "Prefer: wait=0")
			r.target = c.target
			got := send(a.at("raw"), r)
			g.wantSends(1)
			if c.status == 200 {
				got.wantResult(t, "succeeded", "sent")
				return
			}
			got.want(t, 504, "in-doubt")
			if rec := w.record("k"); rec.State != claims.StateUnknown || rec.Answer != nil {
				t.Errorf("half an answer was stored as %s: %+v", rec.State, rec.Answer)
			}
			if c.target == "/framed" {
				return // nothing to look up there
			}
			g.hide(false)
			insist(t, r, "raw", a).wantResult(t, "succeeded", "reconciled")
			g.wantSends(1)
		})
	}
}
