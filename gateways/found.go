package gateways

import (
	"maps"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// read says what one match shows. ours and none: it carries our reference, or none at all.
func (q *query) read(it item, ours, none bool) claims.Finding {
	for _, c := range q.l.Cases {
		if c.Reference == "ours" && !ours || c.Reference == "none" && !none || !q.called(c) || !allHold(c.When, it.doc) {
			continue
		}
		switch {
		case c.Is == CaseDone, c.Is == CaseFailed:
			return q.found(c, it)
		case q.done && q.paid(it) != "":
			return q.found(Case{Is: CaseDone}, it)
		case c.Is == CaseMissed:
			return claims.Finding{Kind: claims.Missed, Reason: "the object stands as before the call"}
		}
		return cannotTell("the object is in use")
	}
	if q.done && q.paid(it) != "" {
		return q.found(Case{Is: CaseDone}, it)
	}
	// A match that nobody can read still must not carry another amount.
	if q.listed() && (q.f.Lookup[appReference] == "" || q.l.Key != "") {
		if f, ok := q.compare(it); !ok && f.Kind == claims.Contradiction {
			return f
		}
	}
	return cannotTell("the object's state is not listed")
}

// reading is what one match shows, and its id; "": not known.
type reading struct {
	claims.Finding
	id string
}

// each reads an item of a list that carries our reference.
func (q *query) each(it item) claims.Finding {
	if !allHold(q.l.Each, it.doc) {
		return cannotTell("the found item is not of the declared form")
	}
	return q.read(it, true, false)
}

// called reports whether the call was as the case says.
func (q *query) called(c Case) bool {
	for name, texts := range c.Call {
		if !slices.Contains(texts, q.f.Lookup[name]) {
			return false
		}
	}
	return true
}

// found checks amount and currency of a match that is done or failed.
func (q *query) found(c Case, it item) claims.Finding {
	if q.f.Lookup[appReference] != "" && !q.byID && q.l.Key == "" {
		return cannotTell("the reference is the app's own, and not declared unique")
	}
	if f, ok := q.compare(it); !ok {
		return f
	}
	if c.Is == CaseFailed {
		f := claims.Finding{Kind: claims.FoundFailed, Payment: first(c.Payment, claims.PaymentFailed), Reason: "found, failed"}
		if q.done && q.paid(it) == claims.PaymentPending {
			f.Payment = claims.PaymentPending // a card that failed may be followed by another
		}
		return f
	}
	f := claims.Finding{Kind: claims.FoundDone, Payment: c.Payment, Object: text(it.doc, q.l.ID), Reason: "found"}
	if f.Payment == "" {
		f.Payment = q.paid(it)
	}
	f.Answer = q.answer(it)
	return f
}

// paid is where the money is, as the object says; "": it does not.
func (q *query) paid(it item) string {
	p := q.g.payment(q.r)
	if p == nil {
		return ""
	}
	return p.Values[text(it.doc, p.At)]
}

// compare says whether the match has the call's amount and currency.
func (q *query) compare(it item) (claims.Finding, bool) {
	want := q.f.Lookup["amount"]
	if want == "" && q.l.Whole != "" {
		want = text(it.doc, q.l.Whole)
		if want == "" {
			return cannotTell("the whole amount is not there"), false
		}
	}
	if want != "" && q.l.Amount != "" {
		same, readable := sameAmount(want, text(it.doc, q.l.Amount))
		switch {
		case !readable:
			return cannotTell("the found amount cannot be compared"), false
		case !same:
			return claims.Finding{Kind: claims.Contradiction, Reason: "found with another amount"}, false
		}
	}
	if want := q.f.Lookup["currency"]; want != "" && q.l.Currency != "" {
		switch got := text(it.doc, q.l.Currency); {
		case got == "":
			return cannotTell("the found currency cannot be compared"), false
		case !strings.EqualFold(want, got):
			return claims.Finding{Kind: claims.Contradiction, Reason: "found in another currency"}, false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q.l.Same)) {
		want, got := q.f.Lookup[name], text(it.doc, q.l.Same[name])
		switch {
		case want == "" || want == got:
		case got == "":
			return cannotTell("the found " + name + " cannot be compared"), false
		default:
			return claims.Finding{Kind: claims.Contradiction, Reason: "found with another " + name}, false
		}
	}
	return claims.Finding{}, true
}

// answer makes the call's answer from a match, by the lookup's declaration.
func (q *query) answer(it item) *claims.Answer {
	d := q.l.Answer
	if d == nil {
		return nil
	}
	raw, ok := rawAt(it.raw, d.At)
	if !ok {
		return nil
	}
	if d.Wrap != "" {
		raw = slices.Concat([]byte("{"+quoteJSON(d.Wrap)+":"), raw, []byte("}"))
	}
	return &claims.Answer{
		Status: d.Status,
		Header: []claims.Field{{Name: "Content-Type", Value: d.ContentType}},
		Body:   append([]byte{}, raw...),
	}
}

// conclude puts all matches together: one success counts, two contradict each other, and nothing hides a doubt. An object
// that is listed twice (pages shift while they are read) is one; its last reading counts.
func (q *query) conclude(hits []reading) claims.Finding {
	var done []reading
	var failed, doubt, missed []claims.Finding
	for _, h := range hits {
		switch h.Kind {
		case claims.Contradiction:
			return h.Finding
		case claims.FoundDone:
			done = slices.DeleteFunc(done, func(d reading) bool { return h.id != "" && d.id == h.id })
			done = append(done, h)
		case claims.FoundFailed:
			failed = append(failed, h.Finding)
		case claims.Missed:
			missed = append(missed, h.Finding)
		default:
			doubt = append(doubt, h.Finding)
		}
	}
	switch {
	case len(done) > 1:
		return claims.Finding{Kind: claims.Contradiction, Alarm: true, Reason: "more than one success under our reference"}
	case len(doubt) > 0:
		return doubt[0]
	case len(done) == 1:
		return done[0].Finding
	case len(failed) > 0:
		return failed[0]
	case len(missed) > 0:
		return missed[0]
	}
	return claims.Finding{Kind: claims.Missed, Reason: "nothing under our reference"}
}
