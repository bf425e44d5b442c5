package gateways

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Registry holds the gateways of one process. It does not change after NewRegistry.
type Registry struct {
	all    []*Gateway
	byName map[string]*Gateway
	byHost map[string]*Gateway
}

// NewRegistry validates the gateways and indexes them. Two with one name or one host are an error.
func NewRegistry(gs ...*Gateway) (*Registry, error) {
	r := &Registry{byName: map[string]*Gateway{}, byHost: map[string]*Gateway{}}
	for _, g := range gs {
		if err := g.Validate(); err != nil {
			return nil, err
		}
		if r.byName[g.Name] != nil {
			return nil, fmt.Errorf("gateway %s: name %q is taken by another gateway; each needs its own", g.Name, g.Name)
		}
		r.byName[g.Name] = g
		for _, h := range g.Hosts {
			h = hostKey(h)
			if o := r.byHost[h]; o != nil && o != g {
				return nil, fmt.Errorf("gateway %s: hosts: %q is also a host of gateway %s; each host belongs to one", g.Name, h, o.Name)
			}
			r.byHost[h] = g
		}
		r.all = append(r.all, g)
	}
	return r, nil
}

// Declared returns the built-in gateway of a name, a fresh copy. false: there is none.
func Declared(name string) (*Gateway, bool) {
	for _, g := range Builtin() {
		if g.Name == name {
			return g, true
		}
	}
	return nil, false
}

// Loosened says in what a gateway that extends a built-in one, at that one's own address, promises more than it documents; "":
// nothing.
func (g *Gateway) Loosened() string {
	b, ok := Declared(g.Extends)
	u, err := url.Parse(g.BaseURL)
	if !ok || err != nil || !slices.Contains(b.Hosts, strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))) || b.Validate() != nil {
		return ""
	}
	switch {
	case b.KeyRetention > 0 && g.KeyRetention > b.KeyRetention:
		return "keyRetention: " + brief(g.KeyRetention) + " is longer than the " + brief(b.KeyRetention) + " that " + b.Title + " documents"
	case g.SettleAfter < b.SettleAfter:
		return "settleAfter: " + brief(g.SettleAfter) + " is shorter than " + brief(b.SettleAfter)
	}
	for _, r := range g.Routes {
		of := b.route(r.Name)
		if of == nil {
			continue
		}
		if kept := first(of.KeyRetention, b.KeyRetention); first(r.KeyRetention, g.KeyRetention) > kept {
			return "routes." + r.Name + ".keyRetention: longer than the " + brief(kept) + " that " + b.Title + " documents"
		}
		if r.Probe && !of.Probe || r.Lookup != nil && r.Lookup.Proves && (of.Lookup == nil || !of.Lookup.Proves) {
			return "routes." + r.Name + ": promises what " + b.Title + " does not"
		}
	}
	return ""
}

// DeclaredCallKey takes the idempotency keys that an app chooses for call keys, but for those that the built-in gateway's official
// SDKs make up. It is off by default; nil: nothing is known of them.
func DeclaredCallKey(name string) *CallKey {
	switch name {
	case "stripe":
		return StripeCallKey()
	case "gocardless":
		return GoCardlessCallKey()
	}
	return nil
}

// All returns the gateways in the order given.
func (r *Registry) All() []*Gateway { return append([]*Gateway(nil), r.all...) }

// ByName finds a gateway by its name.
func (r *Registry) ByName(name string) (*Gateway, bool) {
	g, ok := r.byName[name]
	return g, ok
}

// ByHost finds a gateway by a Host header's value; a port and a closing dot do not count, nor does the case.
func (r *Registry) ByHost(host string) (*Gateway, bool) {
	g, ok := r.byHost[hostKey(host)]
	return g, ok
}

func hostKey(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
