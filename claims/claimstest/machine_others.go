package claimstest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// pass lets time pass. Who renews its lease before is drawn: the others are frozen.
func (m *callMachine) pass(s step) {
	for _, p := range m.procs {
		if s.c>>p.n&1 == 0 {
			m.renew(m.w.current(p.scope()))
		}
	}
	for _, id := range []string{"1", "2"} {
		if s.c>>3&1 == 0 {
			m.renew(m.w.current(claims.ScopeKey("shop", id)))
		}
	}
	d := pick(s.b, unit, unit, unit, 2*unit, 3*unit, 3*unit, 5*unit, keepKeys, time.Second)
	if left := m.w.quarantine.Sub(m.w.now.Store); left > 0 {
		d = left
	}
	if left := m.recs[anyKey(s.a)].Deadline.Sub(m.w.now.Store); left > 0 && s.b%5 == 4 {
		d = left
		if m.least == 0 && s.c%2 == 0 {
			d -= tick
		}
	}
	m.expire(m.w.now.Store.Add(d), s.c)
	m.say("%s pass", d)
	m.h.Advance(d)
	m.w.advance(d)
}

func (m *callMachine) renew(g claims.Guard) {
	if !m.w.live(g) {
		return
	}
	want := m.w.renew(g, ttl)
	_, err := m.h.Backend.Renew(m.ctx, g, ttl)
	same("renew", err, want)
}

// lookUp asks the gateway, and applies the verdict: at once, or after something else has happened.
func (m *callMachine) lookUp(s step) {
	if m.lookup != nil {
		m.say("the lookup of %q comes back", m.lookup.key.Call)
		m.conclude()
		return
	}
	key := m.doubtful(s.a)
	v := m.get(key, claims.Guard{})
	r := v.Record
	if !r.Reconcilable(v.Now) && !v.Recheckable() {
		return
	}
	kind := pick(s.b, m.gateway.findings(&r, m.w.now.Store)...)
	d := claims.Verdict{
		Finding: claims.Finding{Kind: kind, Reason: "seen"}, Rules: m.gateway.rules(), Looked: !m.gateway.noLookup, Version: r.Version, Asked: v.Now,
	}
	if s.c%9 == 8 {
		d.Kind = claims.Contradiction
	}
	if d.Kind == claims.FoundDone {
		d.Payment, d.Answer = pick(s.c, "", claims.PaymentPending, claims.PaymentDone), body("found")
	}
	m.say("lookup of %q at version %d: %s", key.Call, r.Version, d.Kind)
	m.lookup = &lookup{key, d}
	if s.c%3 > 0 { // else its answer takes its time
		m.conclude()
	}
}

// lookup is one whose verdict is not applied yet.
type lookup struct {
	key     claims.Key
	verdict claims.Verdict
}

// conclude applies a verdict to the record as it stands now.
func (m *callMachine) conclude() {
	key, d := m.lookup.key, m.lookup.verdict
	m.lookup = nil
	v := m.get(key, claims.Guard{})
	r := v.Record
	what, next, moved := "verdict", r, false
	if v.Recheckable() {
		what = "recheck"
		next, moved = claims.Recheck(v, d)
	} else {
		next, moved = m.rules.apply(r, d)
	}
	if !moved {
		m.add(": no verdict")
		return
	}
	m.swap(what, claims.Condition{}, claims.Write{Version: r.Version, Next: next, Event: m.rules.event(r, next)})
}

// doubtful is a call that somebody has to look at, if there is one.
func (m *callMachine) doubtful(n int) claims.Key {
	var keys []claims.Key
	for key, r := range m.recs {
		if r.State.Unsettled() {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || n%5 == 4 {
		return anyKey(n)
	}
	slices.SortFunc(keys, byKey)
	return pick(n, keys...)
}

func byKey(a, b claims.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Call, b.Call))
}

// tell brings a notice, always a true one: appended as it is, for a later decision to read, or taken in at once.
func (m *callMachine) tell(s step) {
	key := m.doubtful(s.a)
	r := m.recs[key]
	if !r.Exists() {
		return
	}
	k := m.gateway.key(r.Facts.GatewayKey)
	n := claims.Noticed{ID: fmt.Sprint(len(r.Evidence)), Reference: r.Facts.Reference, By: "gateway", Why: "signed"}
	switch {
	case k.executed:
		n.Outcome = claims.Succeeded
	case k.failed && len(m.gateway.net) == 0:
		n.Outcome = claims.Declined
	default:
		return
	}
	m.say("notice of %q: %s", key.Call, n.Outcome)
	what, next, changed := "notice", r, false
	if s.b%2 == 0 && k.executed && r.Attempt > 0 {
		m.add(", unread")
		what, next, changed = "evidence", r.Clone(), true
		next.Evidence = append(next.Evidence, claims.Evidence{
			Revision: r.Revision, Attempt: r.Attempt, Claim: r.Claim, Outcome: claims.Succeeded, Source: "notice",
		})
	} else {
		next, _, changed, _ = claims.Notice(m.get(key, claims.Guard{}), n)
	}
	if changed {
		m.swap(what, claims.Condition{}, claims.Write{Version: r.Version, Next: next, Event: m.rules.event(r, next)})
	}
}

// person resolves a review: truly, as far as it can be seen at the gateway.
func (m *callMachine) person(s step) {
	var key claims.Key
	for k, r := range m.recs {
		if r.State == claims.StateReview && (key == claims.Key{} || byKey(k, key) < 0) {
			key = k
		}
	}
	r, ok := m.recs[key]
	if !ok {
		return
	}
	word := pick(s.b, claims.WasNotExecuted, claims.WasNotExecuted, claims.LookAgain)
	if m.gateway.executed[key] > 0 && word == claims.WasNotExecuted {
		word = claims.WasExecuted
	}
	next, err := m.rules.resolve(r, word, "ada", "seen at the gateway", m.w.now)
	m.say("a person says of %q: %s: %v", key.Call, [...]string{"look again", "executed", "not executed"}[word], err)
	if err == nil {
		m.swap("operator", claims.Condition{}, claims.Write{Version: r.Version, Next: next, Event: m.rules.event(r, next)})
	}
}

// sweep wants to be told of all that somebody has to look at, and of nothing else.
func (m *callMachine) sweep(step) {
	var want []claims.Key
	for key, r := range m.recs {
		if (r.Unread() || r.Poll || r.State == claims.StateUnknown || r.State == claims.StatePending && !m.w.now.Store.Before(r.Deadline)) &&
			!r.NextCheck.After(m.w.now.Store) {
			want = append(want, key)
			r.NextCheck = m.w.now.Store.Add(unit)
			m.recs[key] = r
		}
	}
	got, err := m.h.Backend.Unsettled(m.ctx, claims.Sweep{Limit: 1000, Base: unit})
	must("unsettled", err)
	m.say("%d calls are to be looked at", len(got))
	slices.SortFunc(want, byKey)
	slices.SortFunc(got, byKey)
	if !slices.Equal(got, want) {
		wrong("who is to be looked at", "unsettled: %q, want %q", got, want)
	}
}

// prune drops answers: of what is settled, and of nothing else.
func (m *callMachine) prune(s step) {
	before, n := m.w.now.Store.Add(-pick(s.b, 0, 2*unit, 5*unit)), 0
	for key, r := range m.recs {
		if r.State.Unsettled() || r.Unread() || !r.Updated.Store.Before(before) {
			continue
		}
		had := r.Answer != nil
		r = r.Clone()
		r.Answer = nil
		for i := range r.Evidence {
			had = had || r.Evidence[i].Answer != nil
			r.Evidence[i].Answer = nil
		}
		if m.recs[key] = r; had {
			n++
		}
	}
	left := slices.DeleteFunc(slices.Clone(m.events), func(e claims.Event) bool { return e.At.Store.Before(before) })
	n += len(m.events) - len(left)
	m.events = left
	got, err := m.h.Backend.Prune(m.ctx, before, 1000)
	must("prune", err)
	m.say("%d answers and events are pruned", got)
	if got != n {
		wrong("what is pruned", "%d answers and events, want %d", got, n)
	}
	for key := range m.recs {
		m.check(key)
	}
}

// giveUpOwn is a process's look after its own: past the deadline and worked on by nobody.
func (m *callMachine) giveUpOwn(s step) {
	p := m.procs[s.a%3]
	r := m.get(m.doubtful(s.b), claims.Guard{}).Record
	if r.State != claims.StatePending || r.Sender != m.w.current(p.scope()) || m.w.now.Store.Before(r.Deadline) || p.works(r.Claim, nil) {
		return
	}
	m.say("p%d gives %q up", p.n, r.Key.Call)
	next := claims.GiveUp(r)
	m.swap("give up", claims.Condition{Sender: r.Sender}, claims.Write{Version: r.Version, Next: next, Event: m.rules.event(r, next)})
}

func (m *callMachine) kill(s step) {
	p := m.procs[s.a%3]
	m.say("p%d is killed", p.n)
	for i, j := range p.jobs {
		if j != nil {
			j.stage = fresh
		}
		p.jobs[i] = nil
	}
	p.life++
}

func (m *callMachine) endScope(s step) {
	g, as, end := m.w.current(claims.ScopeKey("shop", pick(s.a, "1", "2"))), claims.LeaseReleased, m.h.Backend.Release
	if s.b%3 == 0 {
		as, end = claims.LeaseFinished, m.h.Backend.Finish
	}
	want := m.w.finish(g, as)
	err := end(m.ctx, g)
	m.say("%s ends as %s: %s", g, as, told(err))
	same("the end of a lease", err, want)
}

func (m *callMachine) lose(s step) {
	if m.h.Lose == nil || s.a%3 != 0 {
		return
	}
	q := m.h.Lose()
	m.say("the store notices a loss: quarantine of %s", q)
	m.w.lose(q)
}
