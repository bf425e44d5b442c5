package gateways

import (
	"slices"
	"strings"
)

// Flaw says why a matched request must be refused before its body is read; "": it need not. The text is for the app.
func (m Match) Flaw() string { return m.flaw }

// spelling finds a declared route that a server which decodes or cleans paths would see where we see a catch-all only.
func (m Match) spelling(path string) string {
	if !m.Route.catchAll() {
		return ""
	}
	return m.Gateway.Respelled(path)
}

// Respelled says that a target without a route of its own is another spelling of a declared one; "": it is none. The text is for the
// app.
func (g *Gateway) Respelled(target string) string {
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return ""
	}
	raw := strings.Split(path[1:], "/")
	for _, r := range g.Routes {
		if r.catchAll() {
			continue
		}
		if _, ok := r.match(raw); ok {
			continue // the path as declared, with another method
		}
		if slices.ContainsFunc(plainForms(path), r.like) {
			return "the path is another spelling of route " + r.Name
		}
	}
	return ""
}

func (r *Route) catchAll() bool {
	return slices.ContainsFunc(r.paths, func(path []string) bool { return path[len(path)-1] == "**" })
}

// like compares a plain form with the route's paths.
func (r *Route) like(plain []string) bool {
	return slices.ContainsFunc(r.paths, func(path []string) bool { return likePath(path, plain) })
}

// likePath compares a plain form with a path; a {name} takes anything.
func likePath(path, plain []string) bool {
	if len(plain) != len(path) {
		return false
	}
	for i, want := range path {
		if _, isParam := template(want); !isParam && !strings.EqualFold(want, plain[i]) {
			return false
		}
	}
	return true
}

// plainForms are the segments of a path as a server may come to see them: escapes of unreserved characters or all escapes
// decoded, dots resolved or not, slashes merged, parameters cut.
func plainForms(path string) (forms [][]string) {
	all := path
	for range 3 { // a gateway behind another server decodes twice
		all = strings.ReplaceAll(decoded(all, func(byte) bool { return true }), `\`, "/")
	}
	all, _, _ = strings.Cut(all, "?")
	all, _, _ = strings.Cut(all, "#")
	some := decoded(path, func(c byte) bool { return alnum(c) || strings.IndexByte("-._~", c) >= 0 })
	for _, p := range []string{some, all} {
		for _, resolve := range []bool{true, false} {
			forms = append(forms, plainSegments(p, resolve))
		}
	}
	return forms
}

func plainSegments(path string, resolve bool) (out []string) {
	for s := range strings.SplitSeq(path, "/") {
		s, _, _ = strings.Cut(s, ";")
		s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
		switch {
		case s == "", resolve && s == ".":
		case resolve && s == "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, s)
		}
	}
	return out
}

// decoded undoes the escapes of the bytes that take allows.
func decoded(s string, take func(byte) bool) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, ok := hexByte(s[i+1], s[i+2]); ok && take(c) {
				out.WriteByte(c)
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func hexByte(a, b byte) (byte, bool) {
	x, y := strings.IndexByte("0123456789abcdef", a|0x20), strings.IndexByte("0123456789abcdef", b|0x20)
	if a < '0' || b < '0' || x < 0 || y < 0 {
		return 0, false
	}
	return byte(x<<4 | y), true
}
