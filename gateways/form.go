package gateways

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
)

// String names the place as Facts.KeyPlace does.
func (k *KeyPlace) String() string {
	if k.Header != "" {
		return "header " + http.CanonicalHeaderKey(k.Header)
	}
	return "field " + k.Field
}

// LookupForm is a digest of how a route's calls are found, as configured now: 32 hexadecimal digits, "" where the route is
// not known or has no lookup. Where it differs from the one in a call's Facts, a miss proves nothing.
func (g *Gateway) LookupForm(route string) string {
	r := g.route(route)
	if r == nil {
		return ""
	}
	return g.lookupForm(r)
}

// lookupForm is over all that decides what a match or a miss is: the declaration, where the reference is written, where the
// target's and the compared values come from, and the headers that choose what the gateway shows.
func (g *Gateway) lookupForm(r *Route) string {
	if r.Lookup == nil {
		return ""
	}
	b, err := json.Marshal(struct {
		Lookup         *Lookup
		Reference      *RefPlace
		Params         map[string]string
		AccountHeaders []string
		LookupHeaders  []HeaderValue
	}{r.Lookup, g.reference(r), r.Params, g.AccountHeaders, g.LookupHeaders})
	if err != nil {
		panic("gateways: lookup declaration: " + err.Error()) // texts, numbers and lists always marshal
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
