package checklist

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// tenant stands for the checklist where keys and references are derived.
const tenant = "checklist"

// request is one request as it goes out.
type request struct {
	message
	match            gateways.Match
	facts            claims.Facts
	amount, currency string
	account          string // "other": the second account
}

// order says what a request is made of.
type order struct {
	sample *gateways.Sample
	vary   *gateways.Variation
	values map[string]string
	// call names the call whose key and reference it gets; key replaces the derived key, if it is not "".
	call  string
	key   string
	other bool // under the second account
}

// unsendable is a request that cannot be made of its sample: what the gateway answered before does not fit into it.
type unsendable struct{ error }

// values are what texts in braces stand for in one series.
func (r *run) values(series string) map[string]string {
	c := r.g.Checks
	vs := maps.Clone(c.Vars)
	if vs == nil {
		vs = map[string]string{}
	}
	maps.Copy(vs, r.cfg.Vars)
	vs["amount"], vs["currency"] = c.Amount, c.Currency
	vs["unique"] = digest([]byte(r.state.Seed + "\x00" + series))[:16]
	return vs
}

// compose fills a sample in and stamps it.
func (r *run) compose(o order) (request, error) {
	values := maps.Clone(o.values)
	s, headers := o.sample, slices.Concat(r.g.Checks.Header, o.sample.Header)
	if o.vary != nil {
		maps.Copy(values, o.vary.Vars)
		headers = slices.Concat(headers, o.vary.Header)
	}
	in, err := inbound(s, headers, values)
	if err != nil {
		return request{}, err
	}
	if in.Header, err = r.credential(in.Header, o.other); err != nil {
		return request{}, err
	}
	q := request{message: message{in.Method, in.Target, in.Header, in.Body}, amount: values["amount"], currency: values["currency"]}
	if o.other {
		q.account = "other"
	}
	m, ok := r.g.Match(in.Method, in.Target)
	if !ok {
		return q, nil // a simulator of the sandbox, or a read: nothing is stamped
	}
	q.match = m
	call, err := m.Prepare(in, gateways.Identity{Realm: r.state.Seed, Tenant: tenant, CallKey: o.call, Revision: 1})
	if err != nil {
		return request{}, &unsendable{fmt.Errorf("%s %s cannot be sent: %w", in.Method, in.Target, err)}
	}
	q.facts = call.Facts
	if o.key != "" && q.facts.GatewayKey != "" {
		q.facts.GatewayKey = o.key
	}
	if q.header, q.body, err = m.Stamp(in, q.facts); err != nil {
		return request{}, &unsendable{fmt.Errorf("%s %s cannot be sent: %w", in.Method, in.Target, err)}
	}
	return q, nil
}

// inbound fills the texts in braces in. Values are escaped as the place asks for.
func inbound(s *gateways.Sample, headers []gateways.HeaderValue, values map[string]string) (gateways.Inbound, error) {
	var missing []string
	fill := func(text string, escape func(string) string) string {
		t, m := gateways.Fill(text, values, escape)
		missing = append(missing, m...)
		return t
	}
	path, query, hasQuery := strings.Cut(s.Target, "?")
	in := gateways.Inbound{Method: s.Method, Target: fill(path, url.PathEscape)}
	if hasQuery {
		in.Target += "?" + fill(query, url.QueryEscape)
	}
	escape := inJSON
	if strings.HasPrefix(s.ContentType, "application/x-www-form-urlencoded") {
		escape = url.QueryEscape
	}
	in.Body = []byte(fill(s.Body, escape))
	if s.Body != "" {
		in.Header = append(in.Header, claims.Field{Name: "Content-Type", Value: s.ContentType})
	}
	for _, h := range headers {
		in.Header = slices.DeleteFunc(in.Header, func(f claims.Field) bool { return strings.EqualFold(f.Name, h.Name) })
		in.Header = append(in.Header, claims.Field{Name: h.Name, Value: fill(h.Value, func(v string) string { return v })})
	}
	if len(missing) > 0 {
		names := strings.Join(slices.Compact(slices.Sorted(slices.Values(missing))), ", ")
		return in, &unsendable{fmt.Errorf("%s %s: no value for %s: say --var name=value", s.Method, s.Target, names)}
	}
	return in, nil
}

// inJSON escapes a value for the inside of a JSON text.
func inJSON(v string) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b[1 : len(b)-1])
}

// credential adds the account's credential and, for the second account, what selects it.
func (r *run) credential(header []claims.Field, other bool) ([]claims.Field, error) {
	secret := r.cfg.Credential
	if other && r.cfg.OtherCredential != nil {
		secret = r.cfg.OtherCredential
	}
	v, err := secret()
	if err != nil {
		return nil, err
	}
	r.secrets.learn(v)
	if r.g.LookupScheme != "none" {
		v = r.g.LookupScheme + " " + v
	}
	header = append(slices.Clone(header), claims.Field{Name: r.g.CredentialHeader, Value: v})
	if other && r.cfg.OtherAccount != "" {
		name := r.g.AccountHeaders[0]
		header = slices.DeleteFunc(header, func(f claims.Field) bool { return strings.EqualFold(f.Name, name) })
		header = append(header, claims.Field{Name: name, Value: r.cfg.OtherAccount})
	}
	return header, nil
}

// learn takes a secret, and its parts, among the texts that are shown nowhere.
func (s *secrets) learn(v string) {
	for _, part := range append(strings.FieldsFunc(v, func(c rune) bool { return c == ':' || c == ' ' }), v) {
		if !slices.Contains(*s, part) {
			*s = append(*s, part)
		}
	}
	slices.SortFunc(*s, func(a, b string) int { return len(b) - len(a) })
}
