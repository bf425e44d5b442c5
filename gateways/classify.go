package gateways

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Class is what an answer proves.
type Class struct {
	Outcome claims.Outcome
	// Stored: it is the key's stored first answer, so it speaks for every attempt of the key (replay family a).
	Stored bool
	// InUse: another request with the key is in flight.
	InUse bool
	// Transient: the gateway says that the key may be asked again.
	Transient bool
	// Refused: a listed refusal, made before anything ran.
	Refused bool
	Payment string // pending, done, failed, reversed, "" unknown
	Object  string // the gateway's own id of what the call made or changed; "" unknown
	Why     string // for people and logs: status and code, no card data
}

// Classify reads a complete answer by the route's table, then the gateway's. What no rule lists is unknown.
func (g *Gateway) Classify(route string, a *claims.Answer) Class {
	r := g.route(route)
	switch {
	case a == nil:
		return Class{Why: "no answer"}
	case r == nil:
		return Class{Why: "route " + route + " is not known"}
	}
	doc, readable := g.document(a)
	rule := g.rule(r, a, doc, readable)
	c := Class{Why: fmt.Sprintf("status %d, not listed", a.Status)}
	stored := ""
	if rule != nil {
		c.Outcome, c.InUse, c.Transient, stored = rule.outcome, rule.InUse, rule.Transient, rule.Stored
		c.Refused = rule.outcome == claims.NotExecuted
		c.Why = fmt.Sprintf("status %d, listed as %s", a.Status, rule.Outcome)
	}
	if rule != nil && rule.Points != "" && readable {
		c.Object = text(doc, rule.Points)
	}
	if at := r.object(); c.Outcome == claims.Succeeded && at != "" && readable {
		c.Object = text(doc, at)
	}
	if c.Outcome == claims.Succeeded {
		c.Payment = rule.Payment
		if p := g.payment(r); c.Payment == "" && p != nil && readable {
			c.Payment = p.Values[text(doc, p.At)]
		}
	}
	c.Stored = g.stored(r, a, stored)
	return c
}

// ObjectOf is the gateway's own id of what a call of a route made, in an answer; "": it tells none.
func (g *Gateway) ObjectOf(route string, a *claims.Answer) string {
	r := g.route(route)
	if r == nil || r.object() == "" || a == nil {
		return ""
	}
	doc, ok := g.document(a)
	if !ok {
		return ""
	}
	return text(doc, r.object())
}

func (g *Gateway) rule(r *Route, a *claims.Answer, doc any, readable bool) *AnswerRule {
	for _, rules := range [][]*AnswerRule{r.Answers, g.Answers} {
		for _, rule := range rules {
			if rule.covers(a.Status) && rule.marked(a.Header) && (len(rule.When) == 0 || readable && allHold(rule.When, doc)) {
				return rule
			}
		}
	}
	return nil
}

// marked reports whether the header that the rule asks for is there.
func (r *AnswerRule) marked(header []claims.Field) bool {
	return r.Header == nil || slices.ContainsFunc(values(header, r.Header.Name), func(v string) bool { return strings.EqualFold(v, r.Header.Value) })
}

func (r *AnswerRule) covers(status int) bool {
	for _, s := range r.Status {
		if s == fmt.Sprint(status) || len(s) == 3 && s[1:] == "xx" && status/100 == int(s[0]-'0') {
			return true
		}
	}
	return false
}

func (g *Gateway) stored(r *Route, a *claims.Answer, rule string) bool {
	if g.Family != FamilyA || g.key(r) == nil || rule == "no" {
		return false
	}
	if rule == "yes" {
		return true
	}
	if g.Replayed == nil {
		return false
	}
	for _, v := range values(a.Header, g.Replayed.Name) {
		if strings.EqualFold(v, g.Replayed.Value) {
			return true
		}
	}
	return false
}
