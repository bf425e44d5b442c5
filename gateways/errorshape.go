package gateways

import (
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// ErrorShape is the gateway's own form of an error, which its SDKs take for one. In texts {slug} and {detail} are filled in.
type ErrorShape struct {
	Members map[string]any `yaml:"members"`
	// Header lines are set unless the refusal may be repeated.
	Header []HeaderValue `yaml:"header"`
}

// Render returns the members that stand beside the problem's own, and the header lines.
func (e ErrorShape) Render(slug, detail string, retryable bool) (members map[string]any, header []claims.Field) {
	fill := strings.NewReplacer("{slug}", slug, "{detail}", detail)
	members = map[string]any{}
	for k, v := range e.Members {
		members[k] = filled(fill, v)
	}
	if !retryable {
		for _, h := range e.Header {
			header = append(header, claims.Field(h))
		}
	}
	return members, header
}

// IsError reports whether an answer is an error of the gateway's own shape: JSON with every member of it. Where no shape is
// declared none is.
func (g *Gateway) IsError(a *claims.Answer) bool {
	doc, ok := g.document(a)
	m, isObject := doc.(map[string]any)
	if !ok || !isObject || len(g.Error.Members) == 0 {
		return false
	}
	for name := range g.Error.Members {
		if m[name] == nil {
			return false
		}
	}
	return true
}

func filled(fill *strings.Replacer, v any) any {
	switch v := v.(type) {
	case string:
		return fill.Replace(v)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = filled(fill, x)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, x := range v {
			l[i] = filled(fill, x)
		}
		return l
	}
	return v
}
