package proxy

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// dying are the ways in which a kept connection dies under a POST that the gateway has read.
var dying = map[string]struct {
	tls bool
	die func(*wireCall)
}{
	"FIN":                 {false, func(c *wireCall) { c.conn.Close() }},
	"RST":                 {false, func(c *wireCall) { c.tcp.SetLinger(0); c.tcp.Close() }},
	"TLS close_notify":    {true, func(c *wireCall) { c.conn.Close() }},
	"TLS FIN, no goodbye": {true, func(c *wireCall) { c.tcp.Close() }},
}

// warmThenDie answers GETs once n of them wait, each on its own connection, and kills the connection of every POST.
func warmThenDie(n int, die func(*wireCall)) func(*wireCall) bool {
	var mu sync.Mutex
	waiting, all := 0, make(chan struct{})
	return func(c *wireCall) bool {
		if c.method() != "GET" {
			die(c)
			return false
		}
		mu.Lock()
		if waiting++; waiting == n {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-c.g.stop:
		}
		return c.ok("warm")
	}
}

func newDyingGateway(t *testing.T, overTLS bool, n int, die func(*wireCall)) *wireGateway {
	if overTLS {
		return newTLSWireGateway(t, warmThenDie(n, die))
	}
	return newWireGateway(t, warmThenDie(n, die))
}

func TestEgressReusedConnectionDies(t *testing.T) {
	for name, d := range dying {
		for _, idle := range []int{1, 5} {
			for _, body := range []string{"amount=1", ""} {
				t.Run(name+"/"+map[bool]string{true: "empty body", false: "body"}[body == ""]+map[int]string{1: "", 5: "/five idle"}[idle], func(t *testing.T) {
					wireNoLeaks(t)
					g := newDyingGateway(t, d.tls, idle, d.die)
					e := wireEgress(t, g)
					var wg sync.WaitGroup
					for range idle {
						wg.Go(func() {
							if x := wireSend(t, e, Outbound{Method: "GET", Target: "/"}); x.Answer == nil {
								t.Errorf("warming: %s %v", x.Cause, x.Err)
							}
						})
					}
					wg.Wait()
					x := wireSend(t, e, wirePost(body))
					g.count("POST", 1)
					if conns, _ := g.received(); conns != idle {
						t.Errorf("%d connections, want %d", conns, idle)
					}
					if !x.Reused || !x.Wrote || x.Answer != nil || x.Cause != CauseCut && x.Cause != CauseWrite {
						t.Errorf("reused %t, wrote %t, cause %q, answer %v; want a reused connection, written and cut",
							x.Reused, x.Wrote, x.Cause, x.Answer)
					}
				})
			}
		}
	}
}

// The same gateways see more than one POST from net/http: the counter can tell.
func TestEgressCounterSeesNetHTTPRepeat(t *testing.T) {
	for name, d := range dying {
		for _, idle := range []int{1, 5} {
			t.Run(name+map[int]string{1: "", 5: "/five idle"}[idle], func(t *testing.T) {
				wireNoLeaks(t)
				g := newDyingGateway(t, d.tls, idle, d.die)
				tr := &http.Transport{MaxIdleConnsPerHost: idle, TLSClientConfig: &tls.Config{RootCAs: g.roots}}
				t.Cleanup(tr.CloseIdleConnections)
				var wg sync.WaitGroup
				for range idle {
					wg.Go(func() {
						resp, err := tr.RoundTrip(httptest.NewRequest("GET", g.url().String(), nil))
						if err != nil {
							t.Error(err)
							return
						}
						http.MaxBytesReader(nil, resp.Body, 10).Read(make([]byte, 10))
						resp.Body.Close()
					})
				}
				wg.Wait()
				req, _ := http.NewRequest("POST", g.url().String(), strings.NewReader("amount=1"))
				req.Header.Set("Idempotency-Key", "k1")
				if resp, err := tr.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
				if n := len(g.sends("POST")); n < 2 {
					t.Errorf("net/http sent %d POST, expected a repeat: this gateway proves nothing", n)
				}
			})
		}
	}
}

func TestEgressFollowsNoRedirect(t *testing.T) {
	for _, status := range []string{"301", "302", "303", "307", "308"} {
		for _, other := range []bool{false, true} {
			t.Run(status, func(t *testing.T) {
				elsewhere := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
				place := "/v1/charges2"
				if other {
					place = elsewhere.url().String() + place
				}
				g := newWireGateway(t, func(c *wireCall) bool {
					c.say("HTTP/1.1 %s Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, place)
					return true
				})
				x := wireSend(t, wireEgress(t, g), wirePost("amount=1"))
				g.count("", 1)
				elsewhere.count("", 0)
				if x.Answer == nil || x.Answer.Header[0] != (claims.Field{Name: "Location", Value: place}) {
					t.Errorf("answer %v (%s), want the redirect as it is", x.Answer, x.Cause)
				}
			})
		}
	}
}

func TestEgressGatewayWithHTTP2(t *testing.T) {
	wireNoLeaks(t)
	protos := make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protos <- r.Proto
		w.Write([]byte("paid"))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	g := &wireGateway{t: t, ln: s.Listener, roots: roots}
	x := wireSend(t, wireEgress(t, g), wirePost("amount=1"))
	close(protos)
	var got []string
	for p := range protos {
		got = append(got, p)
	}
	if x.Answer == nil || len(got) != 1 || got[0] != "HTTP/1.1" {
		t.Errorf("requests %q, answer %v (%v); want one HTTP/1.1 request", got, x.Answer, x.Err)
	}
}

// A gateway that speaks HTTP/2 whatever was agreed, with the frames that make HTTP/2 clients repeat.
func TestEgressGatewayAnswersHTTP2Frames(t *testing.T) {
	frames := map[string]string{
		"REFUSED_STREAM": "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07",
		"GOAWAY":         "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"PROTOCOL_ERROR": "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01",
	}
	for name, f := range frames {
		for _, body := range []string{"amount=1", ""} {
			t.Run(name, func(t *testing.T) {
				wireNoLeaks(t)
				g := newTLSWireGateway(t, func(c *wireCall) bool {
					if p := c.conn.(tlsServerConn).ConnectionState().NegotiatedProtocol; p != "http/1.1" {
						t.Errorf("ALPN agreed on %q", p)
					}
					c.say("%s", f)
					return false
				}, "h2", "http/1.1")
				x := wireSend(t, wireEgress(t, g), wirePost(body))
				g.count("", 1)
				if x.Answer != nil || !x.Wrote || x.Cause != CauseMalformed && x.Cause != CauseCut {
					t.Errorf("answer %v, wrote %t, cause %q; want unknown", x.Answer, x.Wrote, x.Cause)
				}
			})
		}
	}
}

func TestEgressGatewayWithoutHTTP1(t *testing.T) {
	g := newTLSWireGateway(t, func(c *wireCall) bool { return c.ok("") }, "another-protocol")
	x := wireSend(t, wireEgress(t, g), wirePost("amount=1"))
	g.count("", 0)
	if x.Wrote || x.Cause != CauseTLS {
		t.Errorf("wrote %t, cause %q (%v); want zero bytes, tls", x.Wrote, x.Cause, x.Err)
	}
}

// A connection that the gateway closed, or spoke on, while it was idle is not used.
func TestEgressLooksAtIdleConnections(t *testing.T) {
	bad := map[string]func(*wireCall){
		"closed":  func(c *wireCall) { c.ok("one"); c.conn.Close() },
		"reset":   func(c *wireCall) { c.ok("one"); c.tcp.SetLinger(0) },
		"unasked": func(c *wireCall) { c.ok("one"); c.say("HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n") },
	}
	for name, answer := range bad {
		for _, overTLS := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				wireNoLeaks(t)
				script := func(c *wireCall) bool {
					if c.nth == 1 {
						answer(c)
						return name == "unasked"
					}
					return c.ok("two")
				}
				var g *wireGateway
				if overTLS {
					g = newTLSWireGateway(t, script)
				} else {
					g = newWireGateway(t, script)
				}
				e := wireEgress(t, g)
				first := wireSend(t, e, wirePost("amount=1"))
				if first.Answer == nil || string(first.Answer.Body) != "one" {
					t.Fatalf("first answer %v (%s %v)", first.Answer, first.Cause, first.Err)
				}
				wireEventually(t, "the idle connection shows it", func() bool {
					e.pool.mu.Lock()
					defer e.pool.mu.Unlock()
					return len(e.pool.idle) == 0 || !quiet(e.pool.idle[0].socket)
				})
				x := wireSend(t, e, wirePost("amount=2"))
				if x.Answer == nil || string(x.Answer.Body) != "two" || x.Reused {
					t.Errorf("answer %v, reused %t (%s %v); want the second connection's own answer", x.Answer, x.Reused, x.Cause, x.Err)
				}
				g.count("POST", 2)
			})
		}
	}
}

// Bytes beyond an answer can be out of the socket and still inside the TLS layer, where no look at the socket finds them.
func TestEgressLooksInsideTLS(t *testing.T) {
	for name, more := range map[string]func(*wireCall){
		"nothing": func(*wireCall) {},
		"answer":  func(c *wireCall) { c.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged") },
		"goodbye": func(c *wireCall) { c.conn.(tlsServerConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newTLSWireGateway(t, func(c *wireCall) bool {
				if c.Body == "amount=2" {
					return c.ok("two")
				}
				cork := c.conn.(tlsServerConn).cork
				cork.corked = true
				c.ok("one")
				more(c)
				cork.uncork()
				return true
			})
			e := wireEgress(t, g)
			x := wireSend(t, e, wirePost("amount=1"))
			if x.Answer == nil || string(x.Answer.Body) != "one" {
				t.Fatalf("first answer %v (%s %v)", x.Answer, x.Cause, x.Err)
			}
			x = wireSend(t, e, wirePost("amount=2"))
			if x.Answer == nil || string(x.Answer.Body) != "two" || x.Reused != (name == "nothing") {
				t.Errorf("answer %v (%s %v), reused %t", x.Answer, x.Cause, x.Err, x.Reused)
			}
			g.count("", 2)
		})
	}
}

func TestEgressIdleTimeout(t *testing.T) {
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	e := wireEgress(t, g, func(c *EgressConfig) { c.IdleTimeout = 1 })
	wireSend(t, e, wirePost("a"))
	wireEventually(t, "the pool is empty", func() bool {
		e.pool.mu.Lock()
		defer e.pool.mu.Unlock()
		return len(e.pool.idle) == 0
	})
	if x := wireSend(t, e, wirePost("b")); x.Reused || x.Answer == nil {
		t.Errorf("reused %t, answer %v", x.Reused, x.Answer)
	}
	long := wireEgress(t, g, func(c *EgressConfig) { c.IdleTimeout = 1e12 })
	if long.pool.life != maxIdleTime {
		t.Errorf("idle time %v, want at most %v", long.pool.life, maxIdleTime)
	}
}

func TestEgressReuseAndFresh(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		script := func(c *wireCall) bool { return c.ok("x") }
		var g *wireGateway
		if overTLS {
			g = newTLSWireGateway(t, script)
		} else {
			g = newWireGateway(t, script)
		}
		e := wireEgress(t, g)
		var reused []bool
		for i := range 4 {
			out := wirePost("x")
			out.Fresh = i == 3
			x := wireSend(t, e, out)
			if x.Answer == nil {
				t.Fatal(x.Cause, x.Err)
			}
			reused = append(reused, x.Reused)
		}
		if got := reused; got[0] || !got[1] || !got[2] || got[3] {
			t.Errorf("TLS %t: reused %v, want false true true false", overTLS, got)
		}
		g.count("POST", 4)
		e.Close()
		if x := wireSend(t, e, wirePost("x")); x.Answer == nil || x.Reused {
			t.Errorf("after Close: %v %t", x.Answer, x.Reused)
		}
		if n := len(e.pool.idle); n != 0 {
			t.Errorf("%d idle connections after Close", n)
		}
	}
}

func TestEgressConfigRefused(t *testing.T) {
	for _, bad := range []string{"", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h#f"} {
		req, err := http.NewRequest("GET", bad, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewEgress(EgressConfig{Base: req.URL}); err == nil {
			t.Errorf("base %q was taken", bad)
		}
	}
	if _, err := NewEgress(EgressConfig{}); err == nil {
		t.Error("no base was taken")
	}
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("") })
	x := wireEgress(t, g).Send(t.Context(), wirePost("x"), nil)
	if !errors.Is(x.Err, ErrNoDeadline) || x.Wrote {
		t.Errorf("without a deadline: %v", x.Err)
	}
	g.count("", 0)
}
