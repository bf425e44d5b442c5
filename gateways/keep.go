package gateways

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Keep returns what is to be stored of an answer; see Gateway.KeepFor.
func (m Match) Keep(a *claims.Answer) *claims.Answer { return m.Gateway.keep(m.Route, a) }

// KeepFor returns what is to be stored of an answer to a call of a route, as a record names it, whoever made the answer;
// an unknown route's is the gateway's own. The answer itself stays as it is. nil stays nil.
func (g *Gateway) KeepFor(route string, a *claims.Answer) *claims.Answer {
	return g.keep(g.route(route), a)
}

func (g *Gateway) keep(r *Route, a *claims.Answer) *claims.Answer {
	k := g.Keep
	if r != nil && r.Keep != nil {
		k = r.Keep
	}
	if k == nil || a == nil || a.Key != "" { // what is sealed was limited before
		return a
	}
	out := *a
	names := []string{"Content-Type"}
	var dropped []string
	if k.Fields == nil {
		names = append(names, "Content-Encoding")
	} else {
		out.Body = k.body(a)
		dropped = slices.Concat(framing, sealing)
	}
	out.Header = nil
	for _, f := range a.Header {
		listed := k.Headers == nil || contains(names, f.Name) || contains(k.Headers, f.Name)
		if listed && !contains(dropped, f.Name) {
			out.Header = append(out.Header, f)
		}
	}
	return &out
}

// framing are headers that speak of the bytes of a body as it was sent.
var framing = []string{"Content-Encoding", "Content-Length", "Transfer-Encoding", "Trailer", "Content-Range", "Accept-Ranges", "ETag"}

func contains(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// body is the answer's JSON object with only the listed fields, each as the gateway wrote it. nil: the body is something
// else, or has none of them; what would be left tells nobody anything, least of all an SDK.
func (k *Kept) body(a *claims.Answer) []byte {
	if len(a.Body) == 0 {
		return a.Body
	}
	raw, ok := plainBody(a)
	if !ok {
		return nil
	}
	var paths [][]string
	for _, p := range k.Fields {
		paths = append(paths, pointerParts(p))
	}
	out, ok := selected(raw, paths)
	if !ok {
		return nil
	}
	return out
}

// selected is a JSON object with only the members that the paths lead to. false: it is none, or has none of them.
func selected(text []byte, paths [][]string) ([]byte, bool) {
	ms, ok := members(text)
	if !ok {
		return nil, false
	}
	out := []byte{'{'}
	for _, m := range ms {
		value := text[m.value:m.end]
		whole, inner := false, [][]string(nil)
		for _, p := range paths {
			switch {
			case p[0] != m.name:
			case len(p) == 1:
				whole = true
			default:
				inner = append(inner, p[1:])
			}
		}
		if !whole {
			if len(inner) == 0 {
				continue
			}
			if value, ok = selected(value, inner); !ok {
				continue
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, text[m.start:m.value]...), value...)
	}
	return append(out, '}'), len(out) > 1
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// pointerParts are the reference tokens of a JSON pointer that is not empty.
func pointerParts(pointer string) []string {
	parts := strings.Split(pointer[1:], "/")
	for i, p := range parts {
		parts[i] = unescapePointer.Replace(p)
	}
	return parts
}

func (p *problems) kept(path string, k *Kept) {
	if k == nil {
		return
	}
	p.want(k.Headers != nil || k.Fields != nil, path, "", "headers, fields or both; without keep all is stored")
	for i, h := range k.Headers {
		p.want(token.MatchString(h), fmt.Sprintf("%s.headers[%d]", path, i), h, "a header name")
	}
	p.want(k.Fields == nil || len(k.Fields) > 0, path+".fields", "", "at least one pointer, or no list: the body is then stored as it came")
	for i, f := range k.Fields {
		p.want(f != "" && pointer.MatchString(f), fmt.Sprintf("%s.fields[%d]", path, i), f, "a JSON pointer to a member such as /error/code")
	}
}
