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
