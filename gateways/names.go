package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// nameParts splits a parameter's name as a lenient server might: a[b][c], a.b.c and a[b[c are all a, b, c.
func nameParts(name string) []string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '[' || r == ']' || r == '.' })
	out := parts[:0]
	for _, p := range parts {
		if p = strings.TrimFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// leads reports whether the shorter list is the start of the longer. Case does not count: to some servers it does not.
func leads(short, long []string) bool {
	if len(short) == 0 || len(short) > len(long) {
		return false
	}
	for i := range short {
		if !strings.EqualFold(short[i], long[i]) {
			return false
		}
	}
	return true
}

// queryNames are the names of a query or of an unreadable form, decoded as far as they can be. Some servers also part at ';'.
func queryNames(query string) (names []string) {
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(part, "=")
		names = append(names, unescaped(name))
	}
	return names
}

// unescaped decodes every escape that is whole, and leaves the others.
func unescaped(s string) string {
	return decoded(strings.ReplaceAll(s, "+", " "), func(byte) bool { return true })
}

// names are the names in a body: of a form its pairs', of JSON every path of members, of what is unreadable a guess.
func (b body) names() (names []string) {
	switch b.format {
	case form:
		ps, _ := pairs(b.raw)
		for _, p := range ps {
			names = append(names, p.name)
		}
	case object:
		names = jsonNames(json.NewDecoder(bytes.NewReader(b.raw)), "", 0)
	default:
		names = queryNames(string(b.raw))
		if json.Valid(b.raw) {
			names = append(names, jsonNames(json.NewDecoder(bytes.NewReader(b.raw)), "", 0)...)
		}
		// Quoted texts: names of multipart parts.
		for part := range bytes.SplitSeq(b.raw, []byte{'"'}) {
			if len(part) < maxParam {
				names = append(names, string(part))
			}
		}
	}
	return names
}

// deepest bounds the paths of members: no declared field is as deep.
const deepest = 32

// jsonNames reads one value and gives the path of every member, [a][b], those that stand twice included.
func jsonNames(dec *json.Decoder, under string, depth int) (names []string) {
	t, err := dec.Token()
	if d, ok := t.(json.Delim); err != nil || !ok || d != '{' && d != '[' {
		return nil
	}
	for dec.More() {
		name := under
		if t == json.Delim('{') {
			k, err := dec.Token()
			if err != nil {
				return names
			}
			if depth < deepest {
				name += "[" + k.(string) + "]"
				names = append(names, name)
			}
		}
		names = append(names, jsonNames(dec, name, depth+1)...)
	}
	dec.Token()
	return names
}

// odd reports whether something in a body could be taken for a field by a lenient server and is not spelled as the field:
// Amount, amount[], amount.x.
func (b body) odd(field string) bool {
	want := strings.Split(field, ".")
	for _, name := range b.names() {
		if !b.exact(name, field) && leads(want, nameParts(name)) {
			return true
		}
	}
	return false
}

// owned are the fields that are ours alone on some route.
func (g *Gateway) owned() (fields []string) {
	refs := []*RefPlace{g.Reference}
	for _, r := range g.Routes {
		if r != nil { // Validate has not come to it
			refs = append(refs, r.Reference)
		}
	}
	for _, ref := range refs {
		if ref != nil && ref.Owned {
			fields = append(fields, ref.Field)
		}
	}
	return fields
}

// exact reports whether a name is a field's own spelling in a body of this format.
func (b body) exact(name, field string) bool {
	switch b.format {
	case form:
		return name == formName(field)
	case object:
		return name == "["+strings.ReplaceAll(field, ".", "][")+"]"
	}
	return false
}

// checkNames refuses a request that names a field of ours where it would not be replaced: in the query, which some gateways
// merge into the body, or on a route that stamps another field or none. An object that carries another call's reference
// would be taken for that call's.
func (m Match) checkNames(target string, b body) error {
	_, query, _ := strings.Cut(target, "?")
	owned := m.Gateway.owned()
	held := append([]string{}, owned...)
	ref := m.Gateway.reference(m.Route)
	if ref != nil {
		held = append(held, ref.Field)
	}
	if key := m.Gateway.key(m.Route); key != nil && key.Field != "" {
		held = append(held, key.Field)
	}
	for _, source := range m.Route.Params {
		if where, field, _ := strings.Cut(source, ":"); where == "body" {
			held = append(held, field)
		}
	}
	for _, name := range queryNames(query) {
		parts := nameParts(name)
		for _, field := range held {
			if want := strings.Split(field, "."); leads(want, parts) || leads(parts, want) {
				return &BadRequest{Detail: fmt.Sprintf("the query has %s: field %s may stand in the body only", url.QueryEscape(name), field)}
			}
		}
	}
	own := ""
	if ref != nil && ref.Owned && ref.fits(b.format) && b.without(ref.Field).takes(ref.Field) {
		own = ref.Field
	}
	return checkOwned(b, own, owned)
}

// checkOwned refuses the owned fields in a body, but for the one that will be replaced.
func checkOwned(b body, own string, owned []string) error {
	if len(owned) == 0 {
		return nil
	}
	for _, name := range b.names() {
		parts := nameParts(name)
		for _, field := range owned {
			if leads(strings.Split(field, "."), parts) && !(field == own && b.exact(name, field)) {
				return &BadRequest{Detail: fmt.Sprintf("body field %s is the sidecar's own: an app may not write it here", field)}
			}
		}
	}
	return nil
}
