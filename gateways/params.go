package gateways

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxParam bounds what a lookup parameter may have in the request, in bytes.
const maxParam = 255

// notKept names, among the lookup parameters, those that the call had and that are not stored: a lookup that needs one
// cannot tell.
const notKept = "not-kept"

// params collects the lookup parameters. What is not of its parameter's kind is not stored: it could be card data.
func (m Match) params(b body) (map[string]string, error) {
	out := map[string]string{}
	var left []string
	for name, source := range m.Route.Params {
		where, field, _ := strings.Cut(source, ":")
		vs, ok := []string{m.Params[field]}, true
		if where == "body" {
			vs, ok = b.values(field)
			ok = ok && !b.odd(field) || b.format == opaque && len(b.raw) == 0
		}
		switch {
		case len(vs) > 1:
			return nil, &BadRequest{Detail: "body field " + field + " stands more than once"}
		case len(vs) == 1 && len(vs[0]) > maxParam:
			return nil, &BadRequest{Detail: fmt.Sprintf("%s %s has %d bytes, at most %d are allowed", where, field, len(vs[0]), maxParam)}
		case !ok, len(vs) == 1 && vs[0] != "" && !ofKind(name, vs[0]) && !(where == "path" && partOfID(vs[0])):
			left = append(left, name)
		case len(vs) == 1 && vs[0] != "":
			out[name] = vs[0]
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		out[notKept] = strings.Join(left, ":")
	}
	return out, nil
}

// missing is the first of the names that the call had and that are not stored; "" if there is none.
func missing(lookup map[string]string, names []string) string {
	for n := range strings.SplitSeq(lookup[notKept], ":") {
		if n != "" && slices.Contains(names, n) {
			return n
		}
	}
	return ""
}

// needs are the names of the call's parameters that a lookup reads.
func (l *Lookup) needs() []string {
	names := append(slices.Collect(maps.Keys(l.Same)), l.SameAs)
	for _, m := range braces.FindAllString(l.Target, -1) {
		names = append(names, m[1:len(m)-1])
	}
	if l.Amount != "" {
		names = append(names, "amount")
	}
	if l.Currency != "" {
		names = append(names, "currency")
	}
	for _, c := range l.Cases {
		for name := range c.Call {
			names = append(names, name)
		}
	}
	return names
}

var (
	amountKind   = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,4})?$`)
	currencyKind = regexp.MustCompile(`^[A-Za-z]{3}$`)
	idKind       = regexp.MustCompile(`^[A-Za-z0-9_.:@-]{1,128}$`)
)

// ofKind reports whether a value is of its parameter's kind. An amount has at most 12 digits in all, so that no card number
// is one.
func ofKind(name, value string) bool {
	switch name {
	case "amount":
		return amountKind.MatchString(value) && digits(value) <= 12
	case "currency":
		return currencyKind.MatchString(value)
	}
	return idKind.MatchString(value) && !likeCard(value)
}

// partOfID reports whether what looks like a card number in a segment of the path is part of a longer id, grown together with
// letters: ids such as PayPal's are letters and digits in any order.
func partOfID(value string) bool {
	if !idKind.MatchString(value) {
		return false
	}
	for _, at := range cardRun.FindAllStringIndex(value, -1) {
		grown := at[0] > 0 && letter(value[at[0]-1]) || at[1] < len(value) && letter(value[at[1]])
		if n := digits(value[at[0]:at[1]]); n >= 13 && n <= 19 && luhn(value[at[0]:at[1]]) && !grown {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return alnum(c) && (c < '0' || c > '9') }

// keepable reports whether an app's own reference may be stored.
func keepable(value string) bool {
	return len(value) <= maxParam && !strings.ContainsFunc(value, unicode.IsControl) && !likeCard(value)
}

func digits(s string) (n int) {
	for _, c := range s {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}

// cardRun is a run of digits, or groups of them as cards are written.
var cardRun = regexp.MustCompile(`[0-9]{4}[^0-9A-Za-z][0-9]{4}[^0-9A-Za-z][0-9]{4}[^0-9A-Za-z][0-9]{1,7}|[0-9]{4}[^0-9A-Za-z][0-9]{6}[^0-9A-Za-z][0-9]{4,5}|[0-9]+`)

// likeCard reports whether a run of 13 to 19 digits has a card number's check digit (ISO/IEC 7812-1, Luhn).
func likeCard(value string) bool {
	for _, run := range cardRun.FindAllString(value, -1) {
		if n := digits(run); n >= 13 && n <= 19 && luhn(run) {
			return true
		}
	}
	return false
}

func luhn(s string) bool {
	sum, double := 0, false
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		d := int(s[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}
