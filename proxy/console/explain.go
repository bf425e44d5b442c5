package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Stamp is a time for people; "-" for none.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Printable keeps a terminal safe from what an application or a person wrote.
func Printable(s string) string {
	q := fmt.Sprintf("%+q", s)
	if q[1:len(q)-1] == s {
		return s
	}
	return q
}

// Explain says in words where a call stands, how it came there, and what happens next.
func Explain(v claims.View, reg *gateways.Registry, attempts int) string {
	r := &v.Record
	var b strings.Builder
	fmt.Fprintf(&b, "%s of tenant %s is %s (revision %d).\n", Printable(r.Key.Call), Printable(r.Key.Tenant), r.State, r.Revision)
	fmt.Fprintf(&b, "%s %s, account %s, gateway key %s, reference %s.\n", r.Facts.Gateway, r.Facts.Route, Printable(r.Facts.Account),
		Printable(r.Facts.GatewayKey), Printable(r.Facts.Reference))
	if r.Payment != "" {
		fmt.Fprintf(&b, "The money is %s.\n", r.Payment)
	}
	for _, p := range r.Past {
		fmt.Fprintf(&b, "  %s  revision %d ended %s, under gateway key %s\n", Stamp(p.FirstStarted.Wall), p.Revision, p.State, p.Facts.GatewayKey)
	}
	for _, a := range r.Attempts {
		fmt.Fprintf(&b, "  %s  attempt %d by %s: %s\n", Stamp(a.Started.Wall), a.Number, a.Sender.Scope, attemptWords(a))
	}
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "  %s  %s\n", Stamp(e.At.Wall), evidenceWords(e))
	}
	for _, u := range r.Undos {
		fmt.Fprintf(&b, "Undone by %s.\n", strings.TrimSpace(Printable(u.Key)+" "+Printable(u.Part)))
	}
	fmt.Fprintf(&b, "Next: %s\n", next(v, reg, attempts))
	return b.String()
}

func attemptWords(a claims.Attempt) string {
	switch {
	case a.Outcome.Definite() && !a.Wrote:
		return "nothing was sent (" + a.Cause + ")"
	case a.Outcome.Definite():
		return a.Outcome.String() + ", proved by " + a.Proof
	case a.Status > 0:
		return fmt.Sprintf("in doubt: the gateway answered %d, which proves nothing", a.Status)
	case a.Cause != "":
		return "in doubt: " + a.Cause
	}
	return "claimed; no word of its sender yet"
}

func evidenceWords(e claims.Evidence) string {
	words := fmt.Sprintf("evidence (%s)", strings.TrimSpace(e.Source+" "+Printable(e.By)))
	if e.Attempt > 0 {
		words += fmt.Sprintf(" of attempt %d", e.Attempt)
	}
	words += ": " + e.Outcome.String()
	if e.Payment != "" {
		words += ", the money is " + e.Payment
	}
	return strings.TrimSpace(words + " " + Printable(e.Note))
}

// next is what will happen to a call, and what a person can do.
func next(v claims.View, reg *gateways.Registry, attempts int) string {
	r := &v.Record
	switch r.State {
	case claims.StateSucceeded, claims.StateDeclined:
		if r.Answer == nil {
			return "nothing; no answer is kept, which a repeat is told."
		}
		return "nothing; a repeat gets the stored answer."
	case claims.StateOpen:
		if used(r) >= attempts {
			return "nothing more is sent: all attempts of this revision are used. It is proved that nothing was executed."
		}
		return "a repeat of the call is sent again, under the same gateway key."
	case claims.StateCancelled:
		return "nothing; the call is never sent."
	case claims.StateReview:
		return reviewWords(r)
	}
	if left := r.Deadline.Sub(v.Now.Store); r.State == claims.StatePending && left > 0 {
		return fmt.Sprintf("the attempt ends in %s at the latest; then it is reconciled.", left.Round(time.Second))
	}
	words := "gateway " + r.Facts.Gateway + " is not in the configuration: nobody asks about the call until it is."
	if g, ok := reg.ByName(r.Facts.Gateway); ok {
		words = "the gateway is asked about it every half minute or so."
		if g.LookupForm(r.Facts.Route) == "" {
			words = "the gateway has no lookup for it: a repeat of the call, or a notice, can tell."
		} else if !g.LooksUp(r.Facts.Account) {
			words = "account " + r.Facts.Account + " has no lookup credential, so only a repeat of the call can tell."
		} else if rules, why := g.RulesOf(gateways.WithObject(r.Facts, r.Object)); why != "" {
			words = "no lookup can find it: " + why + ". A repeat or a notice can tell; else a person decides."
		} else if rules.Proves {
			words += fmt.Sprintf(" %d misses in a row from %s on would prove that nothing was executed.", rules.Misses, Stamp(r.Deadline.Add(r.Facts.SettleAfter)))
		}
	}
	return words + " Without a result a person is asked " + Stamp(r.FirstStarted.Wall.Add(reviewAfter(r))) + "."
}

func reviewWords(r *claims.Record) string {
	reason := "nobody wrote down why"
	if r.Review != nil {
		reason = r.Review.Reason
	}
	return fmt.Sprintf("a person decides: %s. Look at the gateway for reference %s or key %s, then run\n  fence-sidecar calls resolve %+q --tenant %+q --executed|--not-executed|--look-again --seen \"what you saw\"",
		Printable(reason), Printable(r.Facts.Reference), Printable(r.Facts.GatewayKey), r.Key.Call, r.Key.Tenant)
}

// used counts the attempts as the limit does.
func used(r *claims.Record) (n int) {
	for _, a := range r.Attempts {
		if a.Counts() && !a.InUse {
			n++
		}
	}
	return n
}

func reviewAfter(r *claims.Record) time.Duration {
	if r.Facts.Retention > 0 {
		return min(claims.Patience, r.Facts.Retention)
	}
	return claims.Patience
}

// Strict makes the longer settling time of the record's own and the configured one count, where a person or a notice speaks.
func Strict(r *claims.Record, reg *gateways.Registry) {
	if reg == nil {
		return
	}
	if g, ok := reg.ByName(r.Facts.Gateway); ok {
		r.Facts.SettleAfter = max(r.Facts.SettleAfter, g.LookupRules(r.Facts.Route).SettleAfter)
	}
}
