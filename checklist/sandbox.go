package checklist

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Sandbox is the built-in sandbox (fence-sidecar sandbox), which can be asked for what a gateway's own has no way to.
type Sandbox struct{ url string }

// FindSandbox reports whether the built-in sandbox is what answers at a gateway's address. Nothing but a read is sent, and that only
// where askable says so.
func FindSandbox(ctx context.Context, g *gateways.Gateway) (Sandbox, bool) {
	base, err := baseURL(g.BaseURL)
	if err != nil || !askable(g, base) {
		return Sandbox{}, false
	}
	s := Sandbox{base.String()}
	b, ok := s.call(ctx, http.MethodGet, "profile", nil)
	var at struct{ Profile string }
	if !ok || json.Unmarshal(b, &at) != nil || !slices.Contains(sandbox.Profiles(), at.Profile) {
		return Sandbox{}, false
	}
	return s, true
}

// askable reports whether an address may be the built-in sandbox's: none where money moves or, but for this machine, where that
// cannot be told; and none that is reached in a way of its own, which a plain read would not take.
func askable(g *gateways.Gateway, base *url.URL) bool {
	c := g.Checks
	if c == nil || g.EgressProxy != nil || g.CABundle != "" || g.ClientCert != "" || c.LiveHost(base.Host) {
		return false
	}
	return len(c.Live)+len(c.LiveHosts) > 0 || loopback(base.Hostname())
}

func (s Sandbox) call(ctx context.Context, method, what string, body []byte) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/_sandbox/"+what, bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return b, err == nil && resp.StatusCode/100 == 2
}

// Tell has the sandbox tell an address of movements of money, in notices signed with a secret. One that was not found is told nothing.
func (s Sandbox) Tell(ctx context.Context, url, secret string) bool {
	if s.url == "" {
		return false
	}
	b, err := json.Marshal(sandbox.Hook{URL: url, Secret: secret})
	if err != nil {
		return false
	}
	_, ok := s.call(ctx, http.MethodPost, "webhooks", b)
	return ok
}

// Complete adds to a gateway's checks what the sandbox can do and the gateway's own cannot: fail after the money moved, leave a
// payment under way, and move it on.
func (Sandbox) Complete(g *gateways.Gateway) {
	c := g.Checks
	if c == nil || c.Charge == nil {
		return
	}
	fault := func(f string) *gateways.Variation {
		return &gateways.Variation{Header: []gateways.HeaderValue{{Name: sandbox.FaultHeader, Value: f}}}
	}
	if c.Failed == nil {
		c.Failed = fault("error-after=500;times=1")
	}
	switch {
	case c.Pending == nil && g.Name == "checkout":
		c.Pending = &gateways.Variation{} // a card is charged at once, and captured later
	case c.Pending == nil:
		c.Pending = fault("processing")
	}
	moving := "{object}"
	if g.Name == "paypal" { // what moves on is the capture inside the order
		if c.Charge.Save == nil {
			c.Charge.Save = map[string]string{}
		}
		c.Charge.Save["capture"], moving = "/purchase_units/0/payments/captures/0/id", "{capture}"
	}
	if c.Advance == nil {
		c.Advance = &gateways.Sample{Target: "/_sandbox/payments/" + moving + "/done"}
	}
}
