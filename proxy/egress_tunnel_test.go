package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

const proxySecret = "corp:s3cret"

// through makes an Egress for g that goes through p with the credential.
func through(t *testing.T, g *wireGateway, p *tunneltest.Proxy, roots *x509.CertPool, change ...func(*EgressConfig)) *Egress {
	t.Helper()
	via := &tunnel.Proxy{URL: p.URL(), RootCAs: roots, Credential: func() (string, error) { return proxySecret, nil }}
	return wireEgress(t, g, append([]func(*EgressConfig){func(c *EgressConfig) { c.Via = via }}, change...)...)
}

// tlsProxy is a proxy behind TLS with its authority.
func tlsProxy(t *testing.T, cfg tunneltest.Config) (*tunneltest.Proxy, *x509.CertPool) {
	t.Helper()
	like := newTLSWireGateway(t, func(*wireCall) bool { return false }) // for its certificate
	cfg.TLS = like.ln.(tlsAcceptor).cfg
	return tunneltest.New(t, cfg), like.roots
}

// Every combination of TLS to the gateway and TLS to the proxy: one tunnel is one connection of the pool, and the credential is
// the proxy's alone.
func TestEgressThroughProxy(t *testing.T) {
	for _, proxyTLS := range []bool{false, true} {
		for _, gatewayTLS := range []bool{false, true} {
			t.Run(map[bool]string{true: "https proxy", false: "http proxy"}[proxyTLS]+map[bool]string{true: "/TLS", false: "/plain"}[gatewayTLS], func(t *testing.T) {
				wireNoLeaks(t)
				g := echoing(t, gatewayTLS)
				p, roots := tunneltest.New(t, tunneltest.Config{Credential: proxySecret}), (*x509.CertPool)(nil)
				if proxyTLS {
					p, roots = tlsProxy(t, tunneltest.Config{Credential: proxySecret})
				}
				e := through(t, g, p, roots)
				for i := range 4 {
					out := wirePost("amount=1")
					out.Fresh = i == 3
					x := wireSend(t, e, out)
					if x.Answer == nil || string(x.Answer.Body) != "ok" || x.Reused != (i == 1 || i == 2) {
						t.Fatalf("send %d: answer %v (%s %v), reused %t", i, x.Answer, x.Cause, x.Err, x.Reused)
					}
				}
				g.count("POST", 4)
				for _, c := range g.sends("") {
					if strings.Contains(strings.Join(c.Lines, "\n"), "Proxy-") {
						t.Errorf("the gateway saw %q", c.Lines)
					}
				}
				cs := p.Connects()
				if conns, _ := g.received(); len(cs) != 2 || conns != 2 {
					t.Fatalf("%d tunnels, %d connections at the gateway, want 2 of each", len(cs), conns)
				}
				if cs[0].Target != g.addr() || cs[0].Lines[1] != "Host: "+g.addr() || len(cs[0].Lines) != 3 {
					t.Errorf("the proxy was asked %q", cs[0].Lines)
				}
			})
		}
	}
}

func echoing(t *testing.T, overTLS bool) *wireGateway {
	if overTLS {
		return newTLSWireGateway(t, func(c *wireCall) bool { return c.ok("ok") })
	}
	return newWireGateway(t, func(c *wireCall) bool { return c.ok("ok") })
}

// Whatever a proxy does before the tunnel is open, no byte of the request was passed on.
func TestEgressProxyOpensNoTunnel(t *testing.T) {
	say := func(s string) func(net.Conn, tunneltest.Connect) bool {
		return func(c net.Conn, _ tunneltest.Connect) bool {
			io.WriteString(c, s)
			c.Read(make([]byte, 1)) // until the sender gives up
			return true
		}
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tc := range []struct {
		name, want string
		cause      string // default proxy
		answer     func(net.Conn, tunneltest.Connect) bool
	}{
		{name: "407", want: "407", answer: say("HTTP/1.1 407 Auth\r\nContent-Length: 3\r\n\r\nno!")},
		{name: "403", want: "403", answer: say("HTTP/1.1 403 No\r\n\r\n")},
		{name: "502", want: "502", answer: say("HTTP/1.0 502 Bad\r\n\r\n")},
		{name: "redirect", want: "302", answer: say("HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n")},
		{name: "101", want: "101", answer: say("HTTP/1.1 101 Switching\r\n\r\n")},
		{name: "hangs up", want: "without an answer", answer: func(net.Conn, tunneltest.Connect) bool { return true }},
		{name: "cut in its head", want: "in the middle", answer: func(c net.Conn, _ tunneltest.Connect) bool {
			io.WriteString(c, ok+"Via: ")
			return true
		}},
		{name: "silent", cause: CauseTimeout, want: "deadline", answer: say("")},
		{name: "slow head", cause: CauseTimeout, want: "deadline", answer: func(c net.Conn, _ tunneltest.Connect) bool {
			for range 400 {
				if _, err := io.WriteString(c, "H"); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			return true
		}},
		{name: "no HTTP", want: "not HTTP/1", answer: say("220 mail.example ESMTP\r\n\r\n")},
		{name: "HTTP/2", want: "not HTTP/1", answer: say("HTTP/2.0 200 OK\r\n\r\n")},
		{name: "no status", want: "not HTTP/1", answer: say("HTTP/1.1 2 OK\r\n\r\n")},
		{name: "endless head", want: "no end", answer: say(ok + strings.Repeat("X: "+strings.Repeat("a", 1000)+"\r\n", 30))},
		{name: "endless line", want: "no end", answer: say("HTTP/1.1 200 " + strings.Repeat("a", 30_000))},
		{name: "only 100", want: "100", answer: say(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9))},
		{name: "bytes behind its head", want: "behind its answer", answer: say(ok + "\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")},
		{name: "a body", want: "behind its answer", answer: say(ok + "Content-Length: 2\r\n\r\n{}")},
	} {
		for _, overTLS := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				wireNoLeaks(t)
				g := echoing(t, overTLS)
				p := tunneltest.New(t, tunneltest.Config{Answer: tc.answer})
				d, cause := 20*time.Second, CauseProxy
				if tc.cause != "" {
					d, cause = 200*time.Millisecond, tc.cause
				}
				x := sendWithin(t, through(t, g, p, nil), wirePost("amount=1"), d)
				if x.Wrote || x.Answer != nil || x.Cause != cause || x.Err == nil || !strings.Contains(x.Err.Error(), tc.want) {
					t.Errorf("wrote %t, cause %q, error %v; want zero bytes, %q, %q", x.Wrote, x.Cause, x.Err, cause, tc.want)
				}
				saysNoSecret(t, x.Err)
				if conns, _ := g.received(); conns != 0 || len(p.Connects()) != 1 || p.Forwarded() != 0 {
					t.Errorf("%d connections at the gateway, %d at the proxy, %d bytes passed", conns, len(p.Connects()), p.Forwarded())
				}
			})
		}
	}
}

func saysNoSecret(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{"s3cret", "Y29ycDpzM2NyZXQ="} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// Failures on the way to the proxy, or of its settings, are the proxy's and prove zero bytes.
func TestEgressProxyNotReached(t *testing.T) {
	g := echoing(t, true)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	good := tunneltest.New(t, tunneltest.Config{Credential: proxySecret})
	untrusted, _ := tlsProxy(t, tunneltest.Config{})
	plain := listenFunc(t, func(c net.Conn) {
		c.Read(make([]byte, 1))
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		c.Close()
	})
	give := func(v string, err error) func() (string, error) { return func() (string, error) { return v, err } }
	ok := give(proxySecret, nil)
	for _, tc := range []struct {
		name, want string
		via        tunnel.Proxy
	}{
		{"port refuses", "refused", tunnel.Proxy{URL: &url.URL{Scheme: "http", Host: closed.Addr().String()}, Credential: ok}},
		{"untrusted certificate", "TLS", tunnel.Proxy{URL: untrusted.URL(), Credential: ok}},
		{"TLS to a plain proxy", "TLS", tunnel.Proxy{URL: &url.URL{Scheme: "https", Host: plain}, Credential: ok}},
		{"secret is gone", "no such file", tunnel.Proxy{URL: good.URL(), Credential: give("", errors.New("no such file"))}},
		{"secret without a colon", "user:password", tunnel.Proxy{URL: good.URL(), Credential: give("s3cret", nil)}},
		{"secret with a line break", "user:password", tunnel.Proxy{URL: good.URL(), Credential: give("corp:s3cret\r\nX: 1", nil)}},
		{"another secret", "407", tunnel.Proxy{URL: good.URL(), Credential: give("corp:s3cret2", nil)}},
		{"no secret", "407", tunnel.Proxy{URL: good.URL()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wireNoLeaks(t)
			x := wireSend(t, wireEgress(t, g, func(c *EgressConfig) { c.Via = &tc.via }), wirePost("amount=1"))
			if x.Wrote || x.Cause != CauseProxy || !strings.Contains(x.Err.Error(), tc.want) {
				t.Errorf("wrote %t, cause %q, error %v; want zero bytes, %q", x.Wrote, x.Cause, x.Err, tc.want)
			}
			saysNoSecret(t, x.Err)
		})
	}
	if conns, _ := g.received(); conns != 0 {
		t.Errorf("%d connections at the gateway", conns)
	}
}

// The secret is read for each tunnel: a rotated one counts at the next dial.
func TestEgressProxySecretRotates(t *testing.T) {
	g := echoing(t, true)
	p := tunneltest.New(t, tunneltest.Config{Credential: proxySecret})
	var secret atomic.Value
	secret.Store("corp:old")
	e := wireEgress(t, g, func(c *EgressConfig) {
		c.Via = &tunnel.Proxy{URL: p.URL(), Credential: func() (string, error) { return secret.Load().(string), nil }}
	})
	if x := wireSend(t, e, wirePost("x")); x.Cause != CauseProxy {
		t.Errorf("with the old secret: %q", x.Cause)
	}
	secret.Store(proxySecret)
	if x := wireSend(t, e, wirePost("x")); x.Answer == nil {
		t.Errorf("with the new one: %s %v", x.Cause, x.Err)
	}
	g.count("", 1)
}

// A proxy that drops the tunnel once the request is through leaves a doubt; nothing is sent again.
func TestEgressProxyCutsAfterTheRequest(t *testing.T) {
	for _, reused := range []bool{false, true} {
		for _, overTLS := range []bool{false, true} {
			t.Run(map[bool]string{true: "reused", false: "fresh"}[reused], func(t *testing.T) {
				wireNoLeaks(t)
				var p *tunneltest.Proxy
				script := func(c *wireCall) bool {
					if c.method() == "GET" {
						return c.ok("")
					}
					p.Cut()
					return false
				}
				g := newWireGateway(t, script)
				if overTLS {
					g = newTLSWireGateway(t, script)
				}
				p = tunneltest.New(t, tunneltest.Config{Credential: proxySecret})
				e := through(t, g, p, nil)
				if reused {
					wireSend(t, e, Outbound{Method: "GET", Target: "/"})
				}
				x := wireSend(t, e, wirePost("amount=1"))
				if !x.Wrote || x.Answer != nil || x.Reused != reused || x.Cause != CauseCut && x.Cause != CauseWrite {
					t.Errorf("wrote %t, answer %v, cause %q (%v), reused %t; want a doubt", x.Wrote, x.Answer, x.Cause, x.Err, x.Reused)
				}
				g.count("POST", 1)
				if n := len(p.Connects()); n != 1 {
					t.Errorf("%d tunnels, want 1", n)
				}
			})
		}
	}
}

// Bytes of a second answer that sit in either TLS layer, where no look at the socket finds them, keep the tunnel from being used
// again.
func TestEgressLooksInsideTheTunnel(t *testing.T) {
	script := func(c *wireCall) bool {
		switch {
		case c.method() == "CONNECT":
			c.say("HTTP/1.1 200 OK\r\n\r\n")
			return true
		case c.Body == "amount=2":
			return c.ok("two")
		}
		cork := c.conn.(tlsServerConn).cork
		cork.corked = true
		c.ok("one")
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		cork.uncork()
		return true
	}
	inGateway := newTLSWireGateway(t, script)
	inProxy := newTLSWireGateway(t, script) // it is its own gateway
	p, roots := tlsProxy(t, tunneltest.Config{})
	for name, e := range map[string]*Egress{
		"gateway's TLS": through(t, inGateway, p, roots),
		"proxy's TLS": wireEgress(t, inProxy, func(c *EgressConfig) {
			c.Base, c.Via = &url.URL{Scheme: "http", Host: "gateway.example"}, &tunnel.Proxy{URL: inProxy.url(), RootCAs: inProxy.roots}
		}),
	} {
		if x := wireSend(t, e, wirePost("amount=1")); x.Answer == nil || string(x.Answer.Body) != "one" {
			t.Fatalf("%s: first answer %v (%s %v)", name, x.Answer, x.Cause, x.Err)
		}
		if x := wireSend(t, e, wirePost("amount=2")); x.Answer == nil || string(x.Answer.Body) != "two" || x.Reused {
			t.Errorf("%s: answer %v (%s %v), reused %t", name, x.Answer, x.Cause, x.Err, x.Reused)
		}
	}
	inGateway.count("POST", 2)
	inProxy.count("POST", 2)
}

// Proxies named by the environment are not used.
func TestEgressIgnoresProxyVariables(t *testing.T) {
	p := tunneltest.New(t, tunneltest.Config{})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, p.URL().String())
	}
	for _, overTLS := range []bool{false, true} {
		if x := wireSend(t, wireEgress(t, echoing(t, overTLS)), wirePost("x")); x.Answer == nil {
			t.Error(x.Cause, x.Err)
		}
	}
	if n := len(p.Connects()); n != 0 {
		t.Errorf("%d tunnels", n)
	}
	t.Setenv("NO_PROXY", "*")
	g := echoing(t, true)
	if x := wireSend(t, through(t, g, p, nil), wirePost("x")); x.Answer == nil || len(p.Connects()) != 1 {
		t.Errorf("NO_PROXY counted: %s %v, %d tunnels", x.Cause, x.Err, len(p.Connects()))
	}
}

// The attempt's end closes the tunnel's socket, wherever it hangs.
func TestEgressProxyEndsWithTheAttempt(t *testing.T) {
	wireNoLeaks(t)
	g := newTLSWireGateway(t, func(c *wireCall) bool { <-c.g.stop; return false })
	p := tunneltest.New(t, tunneltest.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		for len(g.sends("")) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	x := through(t, g, p, nil).Send(ctx, wirePost("x"), nil)
	if x.Cause != CauseTimeout || !x.Wrote {
		t.Errorf("cause %q, wrote %t", x.Cause, x.Wrote)
	}
	g.count("", 1)
}

func TestEgressProxyRefused(t *testing.T) {
	for _, bad := range []string{"", "socks5://h:1", "http://", "http://u:p@h:1", "http://h:1/path", "http://h:1?x", "http://h:1#f"} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewEgress(EgressConfig{Base: &url.URL{Scheme: "http", Host: "h"}, Via: &tunnel.Proxy{URL: u}}); err == nil {
			t.Errorf("proxy %q was taken", bad)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%v shows the secret", err)
		}
	}
}

// A gateway behind a proxy must still prove its own name.
func TestEgressProxyCannotImpersonate(t *testing.T) {
	other := newTLSWireGateway(t, func(c *wireCall) bool { return c.ok("forged") })
	p := tunneltest.New(t, tunneltest.Config{Answer: func(c net.Conn, _ tunneltest.Connect) bool {
		far, err := net.Dial("tcp", other.addr())
		if err != nil {
			return true
		}
		defer far.Close()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go io.Copy(c, far)
		io.Copy(far, c)
		return true
	}})
	for _, tc := range []struct {
		host  string
		roots *x509.CertPool
	}{{"another.example:443", other.roots}, {"127.0.0.1:443", x509.NewCertPool()}} {
		e := wireEgress(t, other, func(c *EgressConfig) {
			c.Base, c.RootCAs, c.Via = &url.URL{Scheme: "https", Host: tc.host}, tc.roots, &tunnel.Proxy{URL: p.URL()}
		})
		x := wireSend(t, e, wirePost("x"))
		_, isCert := errors.AsType[*tls.CertificateVerificationError](x.Err)
		if x.Cause != CauseTLS || x.Wrote || !isCert {
			t.Errorf("%s: cause %q (%v), wrote %t", tc.host, x.Cause, x.Err, x.Wrote)
		}
	}
	other.count("", 0)
}
