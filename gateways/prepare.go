package gateways

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Inbound is a request as the app sent it.
type Inbound struct {
	Method string
	Target string         // raw request target: path and query
	Header []claims.Field // in order, without Fence-* and hop-by-hop lines
	Body   []byte
}

// Call is what a request amounts to, before anything is stored or sent.
type Call struct {
	// Canonical is what the fingerprint is made over: equal for two requests that ask for the same, taken before stamping
	// and without what stood at the key's place.
	Canonical        []byte
	CanonicalVersion int
	// Also holds further canonical forms of the very same request, as other settings saw it: with its credential not yet
	// mapped to an account.
	Also   [][]byte
	Facts  claims.Facts
	Effect string // move, undo
}

// BadRequest is a request that cannot be made safe: it is answered with 400 and nothing is sent.
type BadRequest struct{ Detail string }

func (e *BadRequest) Error() string { return e.Detail }

// Unavailable is a request that cannot be understood now, because a secret cannot be read: nothing is sent, and a repeat
// may be served.
type Unavailable struct{ Detail string }

func (e *Unavailable) Error() string { return e.Detail }

// CallKey returns the call key that the request itself carries, by the route's callKey setting; "" where it has none.
// Values that an SDK made up for this one request are refused (*BadRequest): a repeat would bring another.
func (m Match) CallKey(in Inbound) (string, error) {
	src := m.Route.CallKey
	if src == nil {
		src = m.Gateway.CallKey
	}
	if src == nil {
		return "", nil
	}
	place, vs := "header "+src.Header, values(in.Header, src.Header)
	if src.Field != "" {
		b, err := readBody(in)
		if err != nil {
			return "", err
		}
		place = "body field " + src.Field
		var ok bool
		if vs, ok = b.values(src.Field); !ok {
			if b.format == object {
				return "", &BadRequest{Detail: place + " has something that is no text"}
			}
			return "", nil
		}
	}
	switch {
	case len(vs) > 1:
		return "", &BadRequest{Detail: place + " stands more than once"}
	case len(vs) == 0 || vs[0] == "":
		return "", nil
	}
	for _, re := range src.refuse {
		if re.MatchString(vs[0]) {
			return "", &BadRequest{Detail: place + " looks like one that an SDK makes up for each request; a call key must stay the same when the call is repeated"}
		}
	}
	return vs[0], nil
}

// Prepare reads a request: canonical form and facts. *BadRequest, *Unavailable: nothing may be sent.
func (m Match) Prepare(in Inbound, id Identity) (Call, error) {
	if m.flaw != "" {
		return Call{}, &BadRequest{Detail: m.flaw}
	}
	b, err := readBody(in)
	if err != nil {
		return Call{}, err
	}
	if err := m.checkNames(in.Target, b); err != nil {
		return Call{}, err
	}
	p, err := m.Gateway.account(in, id.Realm)
	if err != nil {
		return Call{}, err
	}
	f := claims.Facts{
		Gateway:     m.Gateway.Name,
		Account:     p.name,
		Endpoint:    strings.TrimSuffix(m.Gateway.BaseURL, "/"),
		Credential:  p.hash,
		Route:       m.Route.Name,
		LookupForm:  m.Gateway.lookupForm(m.Route),
		SettleAfter: first(m.Route.SettleAfter, m.Gateway.SettleAfter),
	}
	if key := m.Gateway.key(m.Route); key != nil {
		if key.Field != "" && !b.without(key.Field).takes(key.Field) {
			return Call{}, &BadRequest{Detail: fmt.Sprintf("the gateway's key goes into body field %s, and this body (%s) does not take it", key.Field, b.what())}
		}
		f.GatewayKey, f.KeyPlace = id.derive("key", key.Shape), key.String()
		f.Retention = first(m.Route.KeyRetention, m.Gateway.KeyRetention)
	}
	if f.Lookup, err = m.params(b); err != nil {
		return Call{}, err
	}
	if err := m.refer(&f, b, id); err != nil {
		return Call{}, err
	}
	c := Call{
		Canonical:        m.canonical(in, m.plain(b), p),
		CanonicalVersion: CanonicalVersion,
		Facts:            f,
		Effect:           m.Route.Effect,
	}
	if p.print == "" {
		c.Also = [][]byte{m.canonical(in, m.plain(b), p.unmapped())}
	}
	return c, nil
}

// appReference marks, among the lookup parameters, a reference that the app chose.
const appReference = "reference-of"

// MayBeOurs reports whether a reference could be one that a call of ours was given: one that an app chose, or of the shape of those
// that we make.
func (g *Gateway) MayBeOurs(reference string) bool {
	return slices.ContainsFunc(g.Routes, func(r *Route) bool {
		ref := g.reference(r)
		return ref != nil && (!ref.Owned || ref.Shape.looks(reference))
	})
}

// OwnReference reports whether a call's reference is one that its app chose and that may name other calls too: what carries it is
// not this call's for certain.
func OwnReference(f claims.Facts) bool { return f.Lookup[appReference] != "" }

// refer fixes the reference: ours, or the app's own where it wrote one.
func (m Match) refer(f *claims.Facts, b body, id Identity) error {
	ref := m.Gateway.reference(m.Route)
	if ref == nil {
		return nil
	}
	if !ref.Owned {
		vs, _ := b.values(ref.Field)
		switch {
		case len(vs) > 1:
			return &BadRequest{Detail: "body field " + ref.Field + " stands more than once"}
		case len(vs) == 1 && vs[0] != "":
			if keepable(vs[0]) {
				f.Reference = vs[0]
			}
			if !ref.Unique {
				f.Lookup[appReference] = "app"
			}
			return nil
		}
	}
	if ref.fits(b.format) && b.without(ref.Field).takes(ref.Field) {
		f.Reference = id.derive("reference", ref.Shape)
		return nil
	}
	if ref.Required {
		return &BadRequest{Detail: fmt.Sprintf("this route finds a lost call by body field %s, and this body (%s) does not take it", ref.Field, b.what())}
	}
	return nil
}

func (b body) what() string {
	switch {
	case b.sealed:
		return "encoded, signed or with a digest"
	case b.media == "":
		return "no media type"
	case b.format == opaque:
		return "unreadable as " + b.media
	}
	return b.media
}

// Stamp writes the key and the reference of the facts into a request: the same bytes for every attempt. What stood at the
// key's place is dropped. Prepare has refused what cannot be stamped.
func (m Match) Stamp(in Inbound, f claims.Facts) (header []claims.Field, raw []byte, err error) {
	header = slices.Clone(in.Header)
	b, err := readBody(in)
	if err != nil {
		return nil, nil, err
	}
	if key := m.Gateway.key(m.Route); key != nil {
		if key.Header != "" {
			header = setHeader(header, key.Header, f.GatewayKey)
		} else if b, err = b.put(key.Field, f.GatewayKey); err != nil {
			return nil, nil, err
		}
	}
	if ref := m.Gateway.reference(m.Route); ref != nil && f.Reference != "" {
		if vs, _ := b.values(ref.Field); ref.Owned || len(vs) == 0 || vs[0] == "" {
			if b, err = b.put(ref.Field, f.Reference); err != nil {
				return nil, nil, err
			}
		}
	}
	if string(b.raw) != string(in.Body) {
		if b.media == "" {
			header = setHeader(header, "Content-Type", mediaForm)
		}
		if len(values(header, "Content-Length")) > 0 {
			header = setHeader(header, "Content-Length", fmt.Sprint(len(b.raw)))
		}
	}
	return header, b.raw, nil
}

// put replaces whatever stands at a field.
func (b body) put(field, value string) (body, error) {
	out, ok := b.without(field).with(field, value)
	if !ok {
		return b, &BadRequest{Detail: fmt.Sprintf("this body (%s) does not take field %s", b.what(), field)}
	}
	return out, nil
}
