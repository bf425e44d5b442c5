package gateways

import "strings"

// Match is a request's route.
type Match struct {
	Gateway *Gateway
	Route   *Route
	Params  map[string]string // template segments, as they stood

	flaw string
}

// Safe reports whether a method is safe (RFC 9110, section 9.2.1): it asks for no change.
func Safe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// Match finds the route of an unsafe request. Paths are compared as raw bytes, nothing is cleaned or decoded; the first
// route in the gateway's order counts; see Flaw. false: no route, a safe method, CONNECT, or a method that is not in capitals
// (methods are compared with their case; to some servers post is POST).
func (g *Gateway) Match(method, target string) (Match, bool) {
	path, _, _ := strings.Cut(target, "?")
	if Safe(method) || method == "CONNECT" || !token.MatchString(method) || method != strings.ToUpper(method) || !plainTarget(target) {
		return Match{}, false
	}
	segments := strings.Split(path[1:], "/")
	for _, r := range g.Routes {
		if r.Method != method && r.Method != "*" {
			continue
		}
		if params, ok := r.match(segments); ok {
			m := Match{Gateway: g, Route: r, Params: params}
			m.flaw = m.spelling(path)
			return m, true
		}
	}
	return Match{}, false
}

// plainTarget takes the origin form (RFC 9112, section 3.2.1) without bytes that no request line can carry.
func plainTarget(target string) bool {
	if !strings.HasPrefix(target, "/") {
		return false
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// match is of any of the route's paths.
func (r *Route) match(segments []string) (map[string]string, bool) {
	for _, path := range r.paths {
		if params, ok := matchPath(path, segments); ok {
			return params, true
		}
	}
	return nil, false
}

func matchPath(path, segments []string) (map[string]string, bool) {
	params := map[string]string{}
	for i, want := range path {
		if want == "**" {
			// A prefix promises what is under it, so nothing may climb out; a bare /** promises nothing and takes all.
			return params, i == 0 || len(segments) > i && allPlain(segments[i:])
		}
		if i >= len(segments) {
			return nil, false
		}
		name, isParam := template(want)
		switch {
		case isParam && plainSegment(segments[i]):
			params[name] = segments[i]
		case isParam || segments[i] != want:
			return nil, false
		}
	}
	return params, len(segments) == len(path)
}

func template(segment string) (name string, ok bool) {
	if len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}' {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}

func allPlain(segments []string) bool {
	for _, s := range segments {
		if !plainSegment(s) {
			return false
		}
	}
	return true
}

// plainSegment takes unreserved characters (RFC 3986) and ":" "@" "=": nothing that another server may decode or clean
// into something else.
func plainSegment(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !alnum(c) && strings.IndexByte("-._~:@=", c) < 0 {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
