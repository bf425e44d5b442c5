package checklist

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// maxExcerpt bounds what is shown of an answer, in bytes.
const maxExcerpt = 400

// shownHeaders are the answer's lines that are kept; the gateway's key and replay marker come to them.
var shownHeaders = []string{
	"Content-Type", "Date", "Idempotency-Key", "Idempotent-Replayed", "Request-Id", "Retry-After", "Transient-Error", "Stripe-Should-Retry",
	"Cko-Request-Id", "Paypal-Debug-Id", "X-Request-Id", "Via", "Server",
}

// shownFields are names whose scalar values may be shown. Whatever is not here may be a card, a name, an address or a secret.
var shownFields = []string{
	"id", "object", "type", "code", "status", "state", "reason", "amount", "currency", "currency_code", "value", "resultcode",
	"refusalreason", "pspreference", "reference", "merchantreference", "invoice_id", "custom_id", "approved", "response_code",
	"response_summary", "error_type", "error_codes", "errorcode", "errortype", "decline_code", "issue", "fence_ref",
	"conflicting_resource_id", "captured", "created", "created_at", "requested_on", "processing", "error", "field",
}

// cardNumber is a run of digits as long as a card's or an account's, perhaps in groups.
var cardNumber = regexp.MustCompile(`\d(?:[ -]?\d){11,18}`)

// secrets are texts that are shown nowhere.
type secrets []string

// hide takes the secrets and control characters out of a text. It is for ids, which must stay different from each other.
func (s secrets) hide(text string) string {
	for _, v := range s {
		if len(v) >= 4 {
			text = strings.ReplaceAll(text, v, "…")
		}
	}
	return printable(text)
}

// clean takes the secrets out of a text, and what may be a card number.
func (s secrets) clean(text string) string {
	text = s.hide(text)
	return cardNumber.ReplaceAllStringFunc(text, func(m string) string {
		if luhn(m) {
			return "…"
		}
		return m
	})
}

// luhn reports whether digits carry a card number's check digit (ISO/IEC 7812-1).
func luhn(digits string) bool {
	sum, n := 0, 0
	for _, c := range slices.Backward([]byte(digits)) {
		if c < '0' || c > '9' {
			continue
		}
		d := int(c - '0')
		if n%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, n = sum+d, n+1
	}
	return n >= 12 && sum%10 == 0
}

// excerpt shows the harmless fields of a JSON body; of any other body only that it is there.
func (s secrets) excerpt(body []byte) string {
	doc, ok := readJSON(body)
	if !ok {
		if len(bytes.TrimSpace(body)) == 0 {
			return ""
		}
		return "(not JSON)"
	}
	var parts []string
	collect(doc, "", 0, &parts)
	text := s.clean(strings.Join(parts, " "))
	if len(text) > maxExcerpt {
		text = strings.ToValidUTF8(text[:maxExcerpt], "") + "…"
	}
	return text
}

func collect(v any, name string, depth int, parts *[]string) {
	switch x := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if depth < 8 {
				collect(x[k], k, depth+1, parts)
			}
		}
	case []any:
		for _, e := range x[:min(len(x), 3)] {
			collect(e, name, depth+1, parts)
		}
	case string:
		if slices.Contains(shownFields, strings.ToLower(name)) && len(x) <= 120 {
			*parts = append(*parts, name+"="+x)
		}
	case json.Number:
		if slices.Contains(shownFields, strings.ToLower(name)) {
			*parts = append(*parts, name+"="+x.String())
		}
	}
}

func readJSON(body []byte) (any, bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var doc any
	if dec.Decode(&doc) != nil {
		return nil, false
	}
	return doc, true
}

// digests are SHA-256 of a body, and of what it says whatever the order and spacing of its fields.
func digests(body []byte) (raw, meaning string) {
	raw = digest(body)
	meaning = raw
	if doc, ok := readJSON(body); ok {
		if b, err := json.Marshal(doc); err == nil {
			meaning = digest(b)
		}
	}
	return raw, meaning
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// lines are the header lines that are kept of an answer.
func (s secrets) lines(header []claims.Field, also ...string) (out []Line) {
	for _, f := range header {
		name := http.CanonicalHeaderKey(f.Name)
		if slices.Contains(shownHeaders, name) || slices.ContainsFunc(also, func(a string) bool { return strings.EqualFold(a, name) }) || replayLike.MatchString(name) {
			out = append(out, Line{name, s.clean(f.Value)})
		}
	}
	slices.SortFunc(out, func(a, b Line) int { return strings.Compare(a.Name+a.Value, b.Name+b.Value) })
	return out
}

// replayLike is a header that may mark a replay.
var replayLike = regexp.MustCompile(`(?i)replay|idempot`)
