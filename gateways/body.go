package gateways

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// format is how a body can be read and written.
type format uint8

const (
	opaque format = iota // bytes that we never touch
	form
	object // a JSON object
)

const mediaForm = "application/x-www-form-urlencoded"

// body is a request's body, read as far as its media type allows.
type body struct {
	media  string // media type without parameters, lower-case; "": none
	kind   string // media type with the parameters that count
	coding string // content codings, as they stood
	format format
	json   bool // to be read as JSON; whether it is, canonicalJSON says, and of an object members
	raw    []byte
	sealed bool // encoded or covered by a digest or signature: changing it would break it
}

// sealing are headers whose value covers the body's bytes, or says that they are not plain.
var sealing = []string{"Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input"}

// readBody refuses a request that names two media types.
func readBody(in Inbound) (body, error) {
	b := body{raw: in.Body}
	types := values(in.Header, "Content-Type")
	if len(types) > 1 {
		return b, &BadRequest{Detail: "header Content-Type stands more than once"}
	}
	if len(types) == 1 {
		t, _, _ := strings.Cut(types[0], ";")
		b.media = strings.ToLower(strings.TrimSpace(t))
	}
	for _, name := range sealing {
		b.sealed = b.sealed || len(values(in.Header, name)) > 0
	}
	codings := values(in.Header, "Content-Encoding")
	for _, enc := range codings {
		b.sealed = b.sealed || !strings.EqualFold(enc, "identity")
	}
	b.coding = strings.Join(codings, ",")
	readable := !b.sealed || len(codings) == 0
	isJSON := b.media == "application/json" || strings.HasSuffix(b.media, "+json")
	if len(types) == 1 {
		var utf8, ok bool
		b.kind, utf8, ok = kindOf(types[0], isJSON || b.media == mediaForm)
		readable = readable && utf8 && ok
	}
	switch {
	case !readable:
	case b.media == mediaForm || b.media == "" && len(b.raw) == 0:
		if _, ok := pairs(b.raw); ok {
			b.format = form
		}
	case isJSON:
		b.json = true
		if _, ok := members(b.raw); ok {
			b.format = object
		}
	}
	return b, nil
}

// pair is one name and value of a form, with its bytes as they stood.
type pair struct{ name, value, raw string }

// pairs reads a form (URL standard, application/x-www-form-urlencoded); false: an escape is broken.
func pairs(raw []byte) ([]pair, bool) {
	var out []pair
	for part := range strings.SplitSeq(string(raw), "&") {
		if part == "" {
			continue
		}
		n, v, _ := strings.Cut(part, "=")
		name, err1 := url.QueryUnescape(n)
		value, err2 := url.QueryUnescape(v)
		if err1 != nil || err2 != nil {
			return nil, false
		}
		out = append(out, pair{name, value, part})
	}
	return out, true
}

// formName spells a dotted field as a form does: a.b.c is a[b][c].
func formName(field string) string {
	head, rest, ok := strings.Cut(field, ".")
	if !ok {
		return head
	}
	return head + "[" + strings.ReplaceAll(rest, ".", "][") + "]"
}

// values returns every text that stands at a dotted field. ok is false where the body cannot be read, or where something
// stands there or on the way that is not a text, a number or a boolean.
func (b body) values(field string) (vs []string, ok bool) {
	switch b.format {
	case form:
		ps, _ := pairs(b.raw)
		for _, p := range ps {
			if p.name == formName(field) {
				vs = append(vs, p.value)
			}
		}
		return vs, true
	case object:
		return jsonValues(b.raw, strings.Split(field, "."))
	}
	return nil, false
}

// without is the body with everything at a dotted field taken out; other bytes stay.
func (b body) without(field string) body {
	switch b.format {
	case form:
		ps, _ := pairs(b.raw)
		var kept []string
		found := false
		for _, p := range ps {
			if p.name == formName(field) {
				found = true
				continue
			}
			kept = append(kept, p.raw)
		}
		if found {
			b.raw = []byte(strings.Join(kept, "&"))
		}
	case object:
		b.raw = jsonWithout(b.raw, strings.Split(field, "."))
	}
	return b
}

// takes reports whether with can write the field.
func (b body) takes(field string) bool {
	if b.sealed {
		return false
	}
	switch b.format {
	case form:
		// A value at a parent's own name (metadata=) and one below it contradict each other.
		ps, _ := pairs(b.raw)
		name := formName(field)
		for _, p := range ps {
			if strings.HasPrefix(name, p.name+"[") || strings.HasPrefix(p.name, name+"[") {
				return false
			}
		}
		return true
	case object:
		_, ok := jsonWith(b.raw, strings.Split(field, "."), "x")
		return ok
	}
	return false
}

// with is the body with value written at a dotted field. The other bytes stay as they are.
func (b body) with(field, value string) (body, bool) {
	if !b.takes(field) {
		return b, false
	}
	switch b.format {
	case form:
		var out bytes.Buffer
		out.Write(b.raw)
		if len(b.raw) > 0 && b.raw[len(b.raw)-1] != '&' {
			out.WriteByte('&')
		}
		out.WriteString(url.QueryEscape(formName(field)) + "=" + url.QueryEscape(value))
		b.raw = out.Bytes()
	case object:
		b.raw, _ = jsonWith(b.raw, strings.Split(field, "."), value)
	}
	return b, true
}

// setHeader replaces every line of a name by one, at the place of the first, or at the end.
func setHeader(header []claims.Field, name, value string) []claims.Field {
	out := make([]claims.Field, 0, len(header)+1)
	done := false
	for _, f := range header {
		switch {
		case !strings.EqualFold(f.Name, name):
			out = append(out, f)
		case !done:
			out, done = append(out, claims.Field{Name: name, Value: value}), true
		}
	}
	if !done {
		out = append(out, claims.Field{Name: name, Value: value})
	}
	return out
}
