package tunnel_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// dialed is a connection to a proxy.
func dialed(t *testing.T, p *tunneltest.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.URL().Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Open ends with its context also where nobody closes the connection, and a tunnel is free of the context that opened it.
func TestOpenEndsWithItsContext(t *testing.T) {
	silent := tunneltest.New(t, tunneltest.Config{Answer: func(c net.Conn, _ tunneltest.Connect) bool {
		c.Read(make([]byte, 1))
		return true
	}})
	for name, within := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 50*time.Millisecond)
		},
		"cancel": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := within()
		began := time.Now()
		_, err := (&tunnel.Proxy{URL: silent.URL()}).Open(ctx, dialed(t, silent), "gateway.example:443")
		if e, ok := errors.AsType[*tunnel.Error](err); !ok || e.Status != 0 || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %v after %s", name, err, time.Since(began))
		}
		cancel()
	}

	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	good := tunneltest.New(t, tunneltest.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	c, err := (&tunnel.Proxy{URL: good.URL()}).Open(ctx, dialed(t, good), far.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("the tunnel ended with the context that opened it: %v", err)
	}
}

func TestAddr(t *testing.T) {
	for raw, want := range map[string]string{
		"http://proxy.example:3128": "proxy.example:3128", "http://proxy.example": "proxy.example:80",
		"https://proxy.example/": "proxy.example:443", "http://[::1]:8080": "[::1]:8080",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := tunnel.Proxy{URL: u}
		if err := p.Check(); err != nil || p.Addr() != want {
			t.Errorf("%s: %q (%v), want %q", raw, p.Addr(), err, want)
		}
	}
}
