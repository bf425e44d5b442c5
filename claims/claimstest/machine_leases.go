package claimstest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// leaseMachine plays leases.
type leaseMachine struct {
	trace
	ctx     context.Context
	h       Harness
	w       *world
	granted map[string]uint64 // the highest token that was granted, by scope
	over    map[string]bool   // finished
	calls   map[claims.Key]claims.Record
	least   time.Duration
}

// machineScopes differ by what a collation or a normal form would take away. The first ones come most often.
var machineScopes = []string{
	claims.ScopeKey("shop", "é"), claims.ScopeKey("shop", "e\u0301"), claims.ScopeKey("shop", "É"), claims.ScopeKey("shop", "a"),
	claims.ScopeKey("shop", "A"), claims.ScopeKey("Shop", "a"), claims.ScopeKey("shop", "a "), claims.ScopeKey("sho", "pa"),
	claims.InstancePrefix + "a", claims.InstancePrefix + "A", claims.ExternalPrefix + claims.ScopeKey("shop", "a"),
}

func anyScope(n int) string {
	if n < choices/2 {
		return machineScopes[n%2]
	}
	return pick(n, machineScopes...)
}

var leaseSteps = []weighted[*leaseMachine]{
	{8, (*leaseMachine).acquire},
	{6, (*leaseMachine).renew},
	{4, func(m *leaseMachine, s step) { m.finish(s, claims.LeaseReleased) }},
	{1, func(m *leaseMachine, s step) { m.finish(s, claims.LeaseFinished) }},
	{2, (*leaseMachine).cancel},
	{9, (*leaseMachine).advance},
	{1, (*leaseMachine).stepWall},
	{6, (*leaseMachine).write},
	{2, (*leaseMachine).settle},
	{1, (*leaseMachine).lose},
	{1, (*leaseMachine).members},
}

func playLeases(ctx context.Context, h Harness, s script) (lines []string, v *violation) {
	m := &leaseMachine{ctx: ctx, h: h, least: s.least, granted: map[string]uint64{}, over: map[string]bool{}, calls: map[claims.Key]claims.Record{}}
	defer func() { lines = m.lines }()
	defer caught(&v)
	m.w = newWorld(m.get(claims.Guard{}).Now)
	for _, st := range s.steps {
		deal(leaseSteps, st.kind)(m, st)
		m.compare(anyScope(st.a))
		m.compare(pick(st.c, machineScopes...))
	}
	for _, scope := range machineScopes {
		m.compare(scope)
	}
	return nil, nil
}

func must(what string, err error) {
	if err != nil {
		wrong("an operation that cannot be refused", "%s: %v", what, err)
	}
}

func (m *leaseMachine) get(g claims.Guard) claims.View {
	v, err := m.h.Backend.Get(m.ctx, claims.Key{Tenant: "shop", Call: "none"}, g)
	must("get", err)
	return v
}

// guard is the scope's last token, or one beside it.
func (m *leaseMachine) guard(s step) claims.Guard {
	g := m.w.current(anyScope(s.a))
	switch d := pick(s.b, 0, 0, 0, 0, 0, -1, 1, -2, 2); {
	case d >= 0:
		g.Token += uint64(d)
	case g.Token >= uint64(-d):
		g.Token -= uint64(-d)
	}
	return g
}

var machineTTL = []time.Duration{ttl, ttl, ttl / 3, tick}

// late reports whether a lease has so little left that the store may refuse what the model lets pass.
func (m *leaseMachine) late(guards ...claims.Guard) bool {
	return slices.ContainsFunc(guards, func(g claims.Guard) bool {
		left := m.w.standing(g).Remaining
		return left > 0 && left < m.least
	})
}

func (m *leaseMachine) acquire(s step) {
	scope, holder, d := anyScope(s.a), pick(s.b, "ada", "bob", "Ada"), max(pick(s.c, machineTTL...), m.least)
	m.say("%s acquires %s for %s", holder, scope, d)
	if strings.HasPrefix(scope, claims.ExternalPrefix) {
		_, err := m.h.Backend.Acquire(m.ctx, scope, holder, d)
		same("acquire", err, claims.ErrBadScope)
		return
	}
	want := m.w.acquire(scope, holder, d)
	got, err := m.h.Backend.Acquire(m.ctx, scope, holder, d)
	m.add(": %s", told(err))
	same("acquire", err, want)
	if err == nil {
		m.add(", token %d", got.Token)
		m.once(got)
		m.equal("what acquire returned", got, m.w.lease(scope))
	}
}

// once holds of every grant, whatever the model says.
func (m *leaseMachine) once(l claims.Lease) {
	if l.Token <= m.granted[l.Scope] {
		wrong("a token is granted once (P1)", "%s was granted, and %d before", l.Guard, m.granted[l.Scope])
	}
	if m.over[l.Scope] {
		wrong("a finished scope is never granted again (P4)", "%s was granted", l.Guard)
	}
	m.granted[l.Scope] = l.Token
}

func (m *leaseMachine) renew(s step) {
	g, d := m.guard(s), max(pick(s.c, machineTTL...), m.least)
	if m.late(g) {
		return
	}
	if g.External() && g.Token == 0 {
		g.Token = 1
	}
	m.say("renew %s for %s", g, d)
	want := m.w.renew(g, d)
	got, err := m.h.Backend.Renew(m.ctx, g, d)
	m.add(": %s", told(err))
	same("renew", err, want)
	if err == nil {
		m.equal("what renew returned", got, m.w.lease(g.Scope))
	}
}

func (m *leaseMachine) finish(s step, as claims.LeaseStatus) {
	g, end := m.guard(s), m.h.Backend.Release
	if m.late(g) {
		return
	}
	if as == claims.LeaseFinished {
		end = m.h.Backend.Finish
	}
	m.say("%s ends as %s", g, as)
	want := m.w.finish(g, as)
	err := end(m.ctx, g)
	m.add(": %s", told(err))
	same("the end of a lease", err, want)
	if err == nil && as == claims.LeaseFinished {
		m.over[g.Scope] = true
	}
}

func (m *leaseMachine) cancel(s step) {
	scope := anyScope(s.a)
	m.say("cancel %s", scope)
	want := m.w.cancel(scope)
	got, err := m.h.Backend.Cancel(m.ctx, scope)
	m.add(": %s", told(err))
	same("cancel", err, want)
	if err == nil {
		m.equal("what cancel returned", got, m.w.lease(scope))
	}
}

// advance goes to an expiry, or to the last instant before it, as often as anywhere.
func (m *leaseMachine) advance(s step) {
	left := m.w.standing(m.w.current(anyScope(s.a))).Remaining
	if left <= 0 {
		left = m.w.quarantine.Sub(m.w.now.Store)
	}
	if left <= 0 || left == claims.ExternalTrust {
		left = ttl
	}
	d := max(pick(s.b, left, left-tick, left+tick, left, left-tick, time.Second, tick, ttl), 0)
	m.say("%s pass", d)
	m.h.Advance(d)
	m.w.advance(d)
}

// stepWall moves the wall clock alone: no lease may notice.
func (m *leaseMachine) stepWall(s step) {
	d := pick(s.a, -time.Hour, time.Hour, -240*time.Hour)
	m.say("the wall clock steps by %s", d)
	m.h.StepWall(d)
	m.w.now.Wall = m.w.now.Wall.Add(d)
}

func (m *leaseMachine) lose(s step) {
	if m.h.Lose == nil || s.a%3 != 0 {
		return
	}
	q := m.h.Lose()
	m.say("the store notices a loss: quarantine of %s", q)
	m.w.lose(q)
}

// write is a guarded compare-and-set of a call: fresh or stale, under any guard, sender and dead sender.
func (m *leaseMachine) write(s step) {
	key := claims.Key{Tenant: "shop", Call: pick(s.c, "é", "e\u0301", "é ")}
	have := m.calls[key]
	next := have.Clone()
	if !have.Exists() {
		next = claims.Record{Key: key, Revision: 1, Attempt: 1, Scope: machineScopes[0], Claim: claims.ClaimID{1}}
	}
	g := m.guard(s)
	if m.late(g) {
		return
	}
	next.State = pick(s.b, claims.StateOpen, claims.StatePending, claims.StateUnknown, claims.StateSucceeded)
	next.Sender, next.Era = m.w.current(claims.InstancePrefix+"a"), m.w.era
	c := pick(s.c, claims.Condition{Guard: g}, claims.Condition{Guard: g, Finisher: true}, claims.Condition{Sender: g},
		claims.Condition{Dead: g}, claims.Condition{})
	w := claims.Write{Version: have.Version, Next: next}
	if s.b%7 == 6 {
		w.Version += int64(pick(s.a, 1, -1))
	}
	m.say("write %q over version %d as %s under %+v", key.Call, w.Version, next.State, c)
	want := m.w.holds(c)
	if want == nil && w.Version != have.Version {
		want = claims.ErrLost
	}
	got, err := m.h.Backend.Swap(m.ctx, c, w)
	m.add(": %s", told(err))
	same("swap", err, want)
	if err == nil {
		m.take(w, got)
	}
	v, err := m.h.Backend.Get(m.ctx, key, g)
	must("get", err)
	if v.Record.Version != m.calls[key].Version || v.Record.State != m.calls[key].State {
		wrong("a version moves by one with each accepted write, and else never", "%q is %s at version %d, want %s at %d",
			key.Call, v.Record.State, v.Record.Version, m.calls[key].State, m.calls[key].Version)
	}
}

func (m *leaseMachine) take(w claims.Write, got claims.Swapped) {
	r := got.Records[0]
	if r.Version != w.Version+1 {
		wrong("a version moves by one with each accepted write, and else never", "%d after %d", r.Version, w.Version)
	}
	m.calls[r.Key] = r
	m.w.calls[r.Key] = &modelCall{r.State, r.Scope, r.Sender}
}

// settle ends a call, so that leases are not held up by it for ever.
func (m *leaseMachine) settle(s step) {
	for _, key := range []claims.Key{{Tenant: "shop", Call: "é"}, {Tenant: "shop", Call: "e\u0301"}, {Tenant: "shop", Call: "é "}} {
		r, ok := m.calls[key]
		if !ok || r.State == claims.StateSucceeded {
			continue
		}
		next := r.Clone()
		next.State = claims.StateSucceeded
		w := claims.Write{Version: r.Version, Next: next}
		m.say("settle %q", key.Call)
		got, err := m.h.Backend.Swap(m.ctx, claims.Condition{}, w)
		same("swap", err, nil)
		m.take(w, got)
	}
}

func (m *leaseMachine) members(step) {
	var want []claims.Guard
	for _, scope := range []string{claims.InstancePrefix + "A", claims.InstancePrefix + "a"} {
		if g := m.w.current(scope); m.w.live(g) {
			want = append(want, g)
		}
	}
	list, err := m.h.Backend.Members(m.ctx)
	must("members", err)
	var got []claims.Guard
	for _, l := range list {
		got = append(got, l.Guard)
	}
	m.say("the members are %v", got)
	m.equal("members", got, want)
}

func (m *leaseMachine) equal(what string, got, want any) {
	if d := cmp.Diff(want, got); d != "" {
		wrong(what, "%s (-want +got):\n%s", what, d)
	}
}

// compare looks at a scope in every way there is.
func (m *leaseMachine) compare(scope string) {
	l, err := m.h.Backend.State(m.ctx, scope)
	must("state", err)
	if want := m.w.lease(scope); l != want {
		wrong("state", "state of %s: %+v, want %+v", scope, l, want)
	}
	for g := m.w.current(scope); ; g.Token-- {
		v := m.get(g)
		if want := m.w.standing(g); v.Guard != want {
			wrong("standing", "%s is %+v, want %+v", g, v.Guard, want)
		}
		if v.Now.Store.Sub(m.w.now.Store) != 0 || v.Era != m.w.era || v.Quarantine != max(m.w.quarantine.Sub(m.w.now.Store), 0) {
			wrong("time, era and quarantine", "at %v, era %d, quarantine %s; want %v, %d", v.Now.Store, v.Era, v.Quarantine, m.w.now.Store, m.w.era)
		}
		if g.Token == 0 || g.Token+1 < m.w.current(scope).Token {
			break
		}
	}
	m.compareLog(scope)
}

// compareLog also checks the log by itself: takes grow, and nothing follows a finish.
func (m *leaseMachine) compareLog(scope string) {
	got, err := m.h.Backend.Log(m.ctx, scope)
	must("log", err)
	var want []claims.LeaseEvent
	if s, ok := m.w.scopes[scope]; ok {
		want = s.log
	}
	if !slices.EqualFunc(got, want, sameLine) {
		wrong("lease log", "log of %s: %+v, want %+v", scope, got, want)
	}
	last, finished := uint64(0), false
	for _, e := range got {
		takes := e.Event == "take" || e.Event == "takeover"
		if takes && (finished || e.Token <= last) {
			wrong("lease log: tokens grow (P1), no take after a finish (P4)", "log of %s: %+v", scope, got)
		}
		if takes {
			last = e.Token
		}
		finished = finished || e.Event == "finish"
	}
}

func sameLine(a, b claims.LeaseEvent) bool {
	return a.Guard == b.Guard && a.Event == b.Event && a.Holder == b.Holder && a.At.Store.Equal(b.At.Store) && a.At.Wall.Equal(b.At.Wall)
}
