package gateways

import (
	"bytes"
	"io"
	"mime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// CanonicalVersion is the version of the canonical form that Prepare makes.
const CanonicalVersion = 1

// deepestJSON bounds the depth up to which members are sorted: each level may copy all that is below it. What is deeper is
// compared by its bytes.
const deepestJSON = 128

// canonical is what a request's fingerprint is made over. Two requests have the same form only if they ask for the same of
// the same account: in doubt they differ, which costs a refusal, while a wrong match would hand out another call's answer.
func (m Match) canonical(in Inbound, b body, p party) []byte {
	head := []string{"fence canonical 1", in.Method, m.Gateway.Name, p.name, p.print, in.Target}
	return encode(append(head, b.canonical()...)...)
}

// plain is the body without what we write ourselves and without what the route declares volatile.
func (m Match) plain(b body) body {
	if key := m.Gateway.key(m.Route); key != nil && key.Field != "" {
		b = b.without(key.Field)
	}
	if ref := m.Gateway.reference(m.Route); ref != nil && ref.Owned {
		b = b.without(ref.Field)
	}
	if b.sealed {
		return b
	}
	for _, field := range m.Route.Volatile {
		// One plain value only: an object or a list may hold more than was meant, and of two values one could count.
		if vs, ok := b.values(field); ok && len(vs) <= 1 {
			b = b.without(field)
		}
	}
	return b
}

// canonical is a body's part of the form: media type, how the rest is to be read, and the rest.
func (b body) canonical() []string {
	switch {
	case b.sealed:
	case b.format == form:
		return append([]string{b.kind}, canonicalForm(b.raw)...)
	case b.json:
		if text, ok := canonicalJSON(b.raw); ok {
			return []string{b.kind, "json", string(text)}
		}
	}
	return []string{b.kind, "bytes", b.coding, string(b.raw)}
}

// canonicalForm sorts a form's pairs by name and keeps the order inside a name: SDKs write maps in any order.
func canonicalForm(raw []byte) []string {
	ps, _ := pairs(raw)
	kind := "form in order"
	if !entangled(ps) {
		kind = "form"
		slices.SortStableFunc(ps, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	}
	out := []string{kind}
	for _, p := range ps {
		out = append(out, p.name, p.value)
	}
	return out
}

// entangled reports whether the order of different names can matter. Lists of groups (a[][b]) are told apart by it, and of
// a name beside another that is its whole or an entry of it (a, a[], a[b]) some servers keep the later.
func entangled(ps []pair) bool {
	seen := map[string]bool{}
	var paths [][]string
	for _, p := range ps {
		switch {
		case strings.Contains(p.name, "[]["):
			return true
		case !seen[p.name]:
			seen[p.name] = true
			paths = append(paths, strings.Split(strings.TrimSuffix(p.name, "[]"), "["))
		}
	}
	slices.SortFunc(paths, slices.Compare) // what a path leads stands right behind it
	for i := 1; i < len(paths); i++ {
		if above := paths[i-1]; len(above) <= len(paths[i]) && slices.Equal(above, paths[i][:len(above)]) {
			return true
		}
	}
	return false
}

// canonicalJSON spells a JSON text (RFC 8259) in one way: members sorted, no white space, each text in its shortest
// spelling. Numbers keep theirs, since 1, 1.0 and 1e0 are not one to every gateway, and lists their order. false: it is no
// JSON, is too deep, or has what two readers read differently: a name twice, half of a surrogate pair, no UTF-8.
func canonicalJSON(text []byte) ([]byte, bool) {
	if !shallow(text) {
		return nil, false
	}
	v := jsontext.Value(bytes.Clone(text))
	err := v.Format(
		jsontext.ReorderRawObjects(true), jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false),
		jsontext.PreserveRawStrings(false), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
	)
	return v, err == nil
}

// shallow reports whether a text is JSON of at most deepestJSON levels.
func shallow(text []byte) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for d.StackDepth() <= deepestJSON {
		if _, err := d.ReadToken(); err != nil {
			return err == io.EOF
		}
	}
	return false
}

// kindOf is what of a Content-Type value counts: its media type and parameters in one spelling. ok is false where it cannot
// be read; utf8 is false where it names another character set, which would make another text of the same bytes. drop: that
// UTF-8 is named does not count.
func kindOf(value string, drop bool) (kind string, utf8, ok bool) {
	media, params, err := mime.ParseMediaType(value)
	if err != nil || strings.ContainsFunc(value, func(r rune) bool { return r > '~' }) {
		return value, false, false
	}
	charset := params["charset"]
	if utf8 = charset == "" || strings.EqualFold(charset, "utf-8"); utf8 && drop {
		delete(params, "charset")
	}
	if kind = mime.FormatMediaType(media, params); kind == "" {
		return value, false, false
	}
	return kind, utf8, true
}
