package proxy

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

// R27: the request target is the app's, byte for byte.
func TestEgressKeepsTarget(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	for _, base := range []string{"", "/", "/base%2Fpath", "/base/"} {
		u, err := url.Parse(g.url().String() + base)
		if err != nil {
			t.Fatal(err)
		}
		e := wireEgress(t, g, func(c *EgressConfig) { c.Base = u })
		for _, target := range []string{
			"/", "//", "/v1//charges", "/v1/customers/a%2Fb/charges", "/v1/x/../charges", "/v1/./x", "/v1/%ff", "/v1/\xff",
			"/v1/a%7Eb", "/v1/a~b", "/v1/x?a=b&&c=%zz", "/v1/x?", "/v1/x?a=1;b=2", "/v1/%2e%2E/", "/%", "/v1/x#y", "//h/x",
		} {
			before := len(g.sends(""))
			if x := wireSend(t, e, Outbound{Method: "POST", Target: target}); x.Answer == nil {
				t.Fatal(target, x.Cause, x.Err)
			}
			want := "POST " + strings.TrimSuffix(base, "/") + target + " HTTP/1.1"
			if calls := g.sends(""); len(calls) != before+1 || calls[before].Line != want {
				t.Errorf("the gateway got %d more, the last %q; want one %q", len(calls)-before, calls[len(calls)-1].Line, want)
			}
		}
	}
	wireSend(t, wireEgress(t, g), Outbound{Method: "OPTIONS", Target: "*"})
	if calls := g.sends("OPTIONS"); len(calls) != 1 || calls[0].Line != "OPTIONS * HTTP/1.1" {
		t.Errorf("OPTIONS *: %v", calls)
	}
}

// R30, R37: lines in order, case and bytes; the framing always a length; nothing added.
func TestEgressRequestLines(t *testing.T) {
	for _, tc := range []struct {
		name string
		out  Outbound
		want []string
	}{
		{"lines as they are", Outbound{Method: "POST", Host: "api.example", Body: []byte("a=1"), Header: []claims.Field{
			{Name: "x-b", Value: "2"}, {Name: "X-A", Value: "caf\xe9"}, {Name: "X-b", Value: "1"}, {Name: "Empty", Value: ""},
			{Name: "aCCept-encoding", Value: "identity"},
		}}, []string{"Host: api.example", "x-b: 2", "X-A: caf\xe9", "X-b: 1", "Empty: ", "aCCept-encoding: identity", "Content-Length: 3"}},
		{"empty POST", Outbound{Method: "POST", Host: "h"}, []string{"Host: h", "Content-Length: 0"}},
		{"empty PUT", Outbound{Method: "PUT", Host: "h"}, []string{"Host: h", "Content-Length: 0"}},
		{"empty PATCH", Outbound{Method: "PATCH", Host: "h"}, []string{"Host: h", "Content-Length: 0"}},
		{"DELETE", Outbound{Method: "DELETE", Host: "h"}, []string{"Host: h"}},
		{"DELETE with a said length", Outbound{Method: "DELETE", Host: "h", HadLength: true}, []string{"Host: h", "Content-Length: 0"}},
		{"DELETE with a body", Outbound{Method: "DELETE", Host: "h", Body: []byte("x")}, []string{"Host: h", "Content-Length: 1"}},
		{"GET", Outbound{Method: "GET", Host: "h"}, []string{"Host: h"}},
		{"hop by hop and framing", Outbound{Method: "POST", Host: "h", Body: []byte("x"), Header: []claims.Field{
			{Name: "Connection", Value: "close, X-Hop"}, {Name: "X-Hop", Value: "1"}, {Name: "Transfer-Encoding", Value: "chunked"},
			{Name: "content-length", Value: "99"}, {Name: "expect", Value: "100-continue"}, {Name: "HOST", Value: "evil"},
			{Name: "Upgrade", Value: "h2c"}, {Name: "TE", Value: "trailers"}, {Name: "Proxy-Authorization", Value: "x"},
			{Name: "Authorization", Value: "Bearer y"},
		}}, []string{"Host: h", "Authorization: Bearer y", "Content-Length: 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
			tc.out.Target = "/"
			if x := wireSend(t, wireEgress(t, g), tc.out); x.Answer == nil {
				t.Fatal(x.Cause, x.Err)
			}
			g.count("", 1)
			call := g.sends("")[0]
			if d := cmp.Diff(tc.want, call.Lines); d != "" {
				t.Error(d)
			}
			if call.Body != string(tc.out.Body) {
				t.Errorf("body %q", call.Body)
			}
		})
	}
}

// What could be read as two requests is not sent, and not dialled.
func TestEgressRefusesSmuggling(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	e := wireEgress(t, g)
	line := func(n, v string) Outbound {
		return Outbound{Method: "POST", Target: "/", Header: []claims.Field{{Name: n, Value: v}}}
	}
	for _, out := range []Outbound{
		{Method: "", Target: "/"}, {Method: "PO ST", Target: "/"}, {Method: "POST\r\n", Target: "/"}, {Method: "CONNECT", Target: "/"},
		{Method: "GET", Target: ""}, {Method: "GET", Target: "x"}, {Method: "GET", Target: "http://h/"},
		{Method: "GET", Target: "/ HTTP/1.1\r\n\r\n"}, {Method: "GET", Target: "/a b"}, {Method: "GET", Target: "/a\nb"},
		{Method: "GET", Target: "/a\rb"}, {Method: "GET", Target: "/a\x00b"}, {Method: "GET", Target: "/a\tb"},
		{Method: "GET", Target: "/", Host: "h\r\nX: y"}, {Method: "GET", Target: "/", Host: "h h"},
		line("X", "a\r\nY: b"), line("X", "a\nb"), line("X", "a\rb"), line("X", "a\x00b"),
		line("X Y", "a"), line("X:", "a"), line("", "a"), line("X\r\nY", "a"), line("X\xff", "a"),
		line("Connection", "x\r\ny"),
	} {
		x := wireSend(t, e, out)
		if x.Cause != CauseRequest || x.Wrote || x.Answer != nil {
			t.Errorf("%q %q %q %q: cause %q, wrote %t; want a refusal", out.Method, out.Target, out.Host, out.Header, x.Cause, x.Wrote)
		}
	}
	if conns, n := g.received(); conns != 0 || n != 0 {
		t.Errorf("%d connections, %d bytes; want none", conns, n)
	}
}

// Large bodies go out whole; a gateway that answers without reading gets its answer through and blocks nobody.
func TestEgressLargeBodies(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB
	for _, overTLS := range []bool{false, true} {
		for _, unread := range []string{"", "kept open", "closed"} {
			t.Run(unread, func(t *testing.T) {
				wireNoLeaks(t)
				script := func(c *wireCall) bool {
					if unread == "" {
						return c.ok("read")
					}
					c.say("HTTP/1.1 413 Too Large\r\nContent-Length: 70000\r\n\r\n%s", strings.Repeat("n", 70000))
					if unread == "kept open" {
						<-c.g.stop
					} else {
						c.tcp.CloseWrite() // and then a reset: there are unread bytes
					}
					return false
				}
				var g *wireGateway
				if overTLS {
					g = newTLSWireGateway(t, script)
				} else {
					g = newWireGateway(t, script)
				}
				out := wirePost(string(big))
				if unread != "" {
					out.Header = append(out.Header, claims.Field{Name: "X-Unread", Value: "1"})
				}
				e := wireEgress(t, g)
				x := wireSend(t, e, out)
				g.count("", 1)
				switch {
				case unread == "closed" && x.Answer == nil && x.Wrote && x.Cause != "":
					// The reset overtook the answer: unknown.
				case x.Answer == nil:
					t.Fatalf("no answer: %s %v", x.Cause, x.Err)
				case unread == "" && g.sends("")[0].Body != string(big):
					t.Error("the body was changed")
				case unread != "" && (x.Answer.Status != 413 || len(x.Answer.Body) != 70000):
					t.Errorf("answer %d, %d bytes", x.Answer.Status, len(x.Answer.Body))
				}
				if n := len(e.pool.idle); (n == 1) != (unread == "") {
					t.Errorf("%d idle connections", n)
				}
			})
		}
	}
}
