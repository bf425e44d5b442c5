package claimstest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// unit is an attempt's time. A request may be executed until one unit after its attempt's deadline, an index lags one more, so
// that the settling time is two; the gateway keeps its keys for twelve.
const (
	unit     = 10 * time.Second
	keepKeys = 12 * unit
	margin   = 3 * unit
)

// rules are the pure functions that the machine drives; a test replaces one by one that is broken.
type rules struct {
	decide  func(claims.View, claims.Request, claims.Ring) claims.Decision
	settle  func(claims.Record, int, int, claims.ClaimID, claims.Sent) (claims.Record, bool)
	late    func(claims.Record, claims.Evidence) (claims.Record, bool)
	apply   func(claims.Record, claims.Verdict) (claims.Record, bool)
	resolve func(claims.Record, claims.Word, string, string, claims.Now) (claims.Record, error)
	event   func(was, is claims.Record) *claims.Event
	outcome func(*claims.Record) claims.Outcome
}

var sound = rules{
	claims.Decide, claims.Settle, claims.Late, claims.Apply, claims.Resolve, claims.EventOf, (*claims.Record).Outcome,
}

// callMachine plays the calls of three processes.
type callMachine struct {
	trace
	ctx     context.Context
	h       Harness
	rules   rules
	w       *world
	gateway gateway
	procs   []*process
	recs    map[claims.Key]claims.Record // as last written, by the model
	events  []claims.Event
	claimed int
	lookup  *lookup // under way
	least   time.Duration
	// standstill is how long a process may stand still between a decision and its write; 0: for less than the margin.
	standstill time.Duration
}

// process is one sidecar; a killed one comes back under another name.
type process struct {
	n, life int
	own     claims.Guard
	jobs    [2]*job
}

func (p *process) scope() string { return fmt.Sprintf("%sp%d-%d", claims.InstancePrefix, p.n, p.life) }

type stage uint8

const (
	fresh stage = iota
	decided
	pending
	waiting
	got
)

// job is one request that a process works on.
type job struct {
	p              *process
	name           string
	req            claims.Request
	target         claims.Key // of an undo
	stage          stage
	dec            claims.Decision
	decided        time.Time
	seen, seenThen claims.Record // the call and the one that is undone, as the decision saw them
	rec, mine      claims.Record // as last seen; as claimed
	word           claims.Sent
	lost           bool // the guard was refused
}

// machineKeys are charges; those after the first differ from it by what a collation or a normal form would take away.
var machineKeys = []claims.Key{
	{Tenant: "shop", Call: "é"}, {Tenant: "shop", Call: "e\u0301"}, {Tenant: "Shop", Call: "é"}, {Tenant: "shop", Call: "É"}, {Tenant: "shop", Call: "é "},
}

// undoKeys undo one of the shop's charges: in whole, or a part of it.
var undoKeys = []struct{ call, part string }{{"undo", ""}, {"Undo", ""}, {"undo 1", "1"}, {"undo 2", "2"}, {"undo 2 again", "2"}}

var callSteps = []weighted[*callMachine]{
	{36, (*callMachine).goOn},
	{18, (*callMachine).carry},
	{12, (*callMachine).pass},
	{9, (*callMachine).lookUp},
	{5, (*callMachine).tell},
	{4, (*callMachine).person},
	{2, (*callMachine).sweep},
	{2, (*callMachine).prune},
	{3, (*callMachine).giveUpOwn},
	{2, (*callMachine).kill},
	{2, (*callMachine).endScope},
	{1, (*callMachine).lose},
}

func playCalls(ctx context.Context, h Harness, s script, r rules) (lines []string, v *violation) {
	m := &callMachine{ctx: ctx, h: h, rules: r, recs: map[claims.Key]claims.Record{}, gateway: newGateway(s.world), least: s.least}
	defer func() { lines = m.lines }()
	defer caught(&v)
	m.say("gateway: %s", m.gateway.kind())
	m.w = newWorld(m.get(machineKeys[0], claims.Guard{}).Now)
	for n := range 3 {
		m.procs = append(m.procs, &process{n: n})
	}
	for _, st := range s.steps {
		deal(callSteps, st.kind)(m, st)
		m.check(anyKey(st.a))
	}
	m.compareEvents()
	for key := range m.recs {
		m.check(key)
	}
	return nil, nil
}

func anyKey(n int) claims.Key {
	if n < choices*2/3 {
		return machineKeys[n%8/7]
	}
	return pick(n, machineKeys...)
}

func (m *callMachine) get(key claims.Key, g claims.Guard) claims.View {
	v, err := m.h.Backend.Get(m.ctx, key, g)
	must("get", err)
	return v
}

// slot is a process's place for a job.
func (m *callMachine) slot(s step) (*process, int) {
	p := m.procs[pick(s.a, 0, 0, 0, 1, 1, 2)]
	return p, pick(s.a/6, 0, 0, 1)
}

// goOn takes a request on its way: by one step, or in haste until it waits for somebody else.
func (m *callMachine) goOn(s step) {
	p, i := m.slot(s)
	if p.jobs[i] == nil {
		p.jobs[i] = m.begin(p, i, s)
	}
	for n := 0; p.jobs[i] != nil && n < 4; n++ {
		before := p.jobs[i].stage
		m.progress(p.jobs[i], s)
		if j := p.jobs[i]; s.c%4 == 0 || j == nil || j.stage == waiting || j.stage == before && n > 1 {
			return
		}
	}
}

func (m *callMachine) progress(j *job, s step) {
	switch j.stage {
	case fresh:
		m.decide(j)
	case decided:
		m.write(j)
	case pending:
		m.gate(j)
	case waiting:
		if s.b%3 == 0 {
			m.say("%s gives up", j.name)
			j.stage, j.word = got, claims.Sent{Cause: "timeout"}
		}
	case got:
		m.settle(j)
	}
}

func (m *callMachine) drop(j *job) {
	for i := range j.p.jobs {
		if j.p.jobs[i] == j {
			j.p.jobs[i] = nil
		}
	}
}

// hold makes sure of a lease where the store grants it.
func (m *callMachine) hold(scope string) claims.Guard {
	if g := m.w.current(scope); m.w.live(g) {
		return g
	}
	want := m.w.acquire(scope, "holder", ttl)
	l, err := m.h.Backend.Acquire(m.ctx, scope, "holder", ttl)
	m.say("acquire %s: %s", scope, told(err))
	same("acquire", err, want)
	if err == nil && l.Guard != m.w.current(scope) {
		wrong("acquire", "granted %s, want %s", l.Guard, m.w.current(scope))
	}
	return m.w.current(scope)
}

// begin makes a request.
func (m *callMachine) begin(p *process, i int, s step) *job {
	p.own = m.hold(p.scope())
	key := anyKey(s.b)
	scope := claims.ScopeKey(key.Tenant, pick(s.b, "1", "1", "1", "2"))
	j := &job{p: p}
	has := m.recs[key]
	q := claims.Request{Key: key, Revision: m.revision(has, s.b/4), Facts: m.gateway.facts(), Policy: m.gateway.policy()}
	if s.c%5 == 0 && has.Exists() || s.c%29 == 1 {
		u := pick(s.b, undoKeys...)
		j.target = key
		q.Key, q.Undoes, q.Part, q.Revision = claims.Key{Tenant: key.Tenant, Call: u.call + " " + key.Call}, key.Call, u.part, 1
		if has.Scope != "" {
			scope = has.Scope
		}
	}
	q.Facts.GatewayKey = fmt.Sprintf("%s#%d", q.Key, q.Revision)
	q.Facts.Reference = q.Facts.GatewayKey
	q.Canonical, q.CanonicalVersion = fmt.Appendf(nil, "%s %d %s", q.Key, q.Revision, pick(s.c/8, "", "", "", "", "", "", "", "other")), 1
	if own := m.recs[q.Key].Scope; own != "" && s.b%11 != 0 {
		scope = own
	}
	switch n := s.b % 10; {
	case n < 7:
		q.Guard = m.hold(scope)
	case n == 7:
		q.Guard = p.own
	case n == 8 && m.w.current(scope).Token > 1:
		q.Guard = m.w.current(scope)
		q.Guard.Token--
	default:
		q.Guard = m.w.current(scope)
	}
	if q.Guard.Token == 0 {
		q.Guard = p.own
	}
	j.req, j.name = q, fmt.Sprintf("p%d.%d %q rev %d", p.n, i, q.Key.Call, q.Revision)
	what := ""
	if q.Undoes != "" {
		what = fmt.Sprintf(" undoes %q part %q", q.Undoes, q.Part)
	}
	m.say("%s begins under %s%s", j.name, q.Guard, what)
	return j
}

// revision is the call's, or the next one where that is allowed, or one out of turn.
func (m *callMachine) revision(r claims.Record, n int) int {
	rev := max(r.Revision, 1)
	if rev < 3 && (r.State == claims.StateDeclined || r.State == claims.StateOpen) {
		return pick(n, rev, rev, rev+1)
	}
	return pick(n, rev, rev, rev, rev, rev, rev, rev, rev, rev, rev, rev, rev, rev+1, rev+1, max(rev-1, 1), rev+2)
}

// decide reads and decides; what was decided is written by a later step.
func (m *callMachine) decide(j *job) {
	q := &j.req
	j.p.own = m.hold(j.p.scope())
	if q.Guard.Instance() {
		q.Guard = j.p.own
	}
	q.Instance, q.Target = j.p.own, nil
	if q.Undoes != "" {
		t := m.get(j.target, q.Guard)
		q.Target, j.seenThen = &t, t.Record
	}
	v := m.get(q.Key, q.Guard)
	j.seen = v.Record
	m.claimed++
	q.Claim, q.Working = claims.ClaimID{byte(m.claimed >> 8), byte(m.claimed)}, j.p.works(v.Record.Claim, j)
	j.dec = m.rules.decide(v, *q, memory.Ring{})
	j.decided = v.Now.Store
	m.say("%s decides: %s", j.name, j.dec.Action)
	m.judge(j, v)
	switch j.dec.Action {
	case claims.Reconcile:
		q.Asked = true
	case claims.Claim, claims.Amend:
		j.stage = decided
	default:
		if j.dec.Refusal != nil {
			m.add(" (%s: %s)", j.dec.Refusal.Reason, j.dec.Refusal.Outcome)
		}
		m.drop(j)
	}
}

// works reports whether another job of the process is about this claim.
func (p *process) works(id claims.ClaimID, not *job) bool {
	return slices.ContainsFunc(p.jobs[:], func(j *job) bool { return j != nil && j != not && j.stage >= pending && j.mine.Claim == id })
}

// write swaps what was decided. What is older than a process can stand still without losing its lease is not written any more:
// the margin that is kept from the end of a key's retention covers no more.
func (m *callMachine) write(j *job) {
	j.stage = fresh
	if m.w.now.Store.Sub(j.decided) >= max(m.standstill, margin-unit) {
		m.say("%s decided too long ago", j.name)
		return
	}
	d := &j.dec
	var writes []claims.Write
	what := "amend"
	was := j.seen
	if d.Next.Key == j.target {
		was = j.seenThen
	}
	own := claims.Write{Version: was.Version, Next: d.Next, Event: m.rules.event(was, d.Next)}
	if d.Action == claims.Claim {
		what, own = "claim", claims.Write{Version: was.Version, Next: d.Next, Claim: true, Timeout: unit}
	}
	writes = append(writes, own)
	if d.Target != nil {
		writes = append(writes, claims.Write{Version: j.seenThen.Version, Next: *d.Target, Event: m.rules.event(j.seenThen, *d.Target)})
	}
	before := m.recs[d.Next.Key]
	m.say("%s writes %s", j.name, d.Next.State)
	sw, err := m.swap(what, d.Condition, writes...)
	if err != nil {
		return
	}
	if d.Action == claims.Claim {
		j.stage, j.rec, j.mine, j.lost = pending, sw.Records[0], sw.Records[0], false
		m.checkClaim(j, before)
		j.req.Probed = j.req.Probed || d.Probe
	}
}

// gate is the last look before the first byte: the attempt's time, the guard and the process's own lease.
func (m *callMachine) gate(j *job) {
	c := j.dec.Condition
	guard := m.w.standing(c.Guard)
	open := m.w.now.Store.Before(j.mine.Deadline) && m.w.live(j.mine.Sender) && j.mine.Sender == m.w.current(j.p.scope()) &&
		(guard.Live() || c.Finisher && guard.Finisher)
	if !open {
		m.say("%s sends nothing: its time or its lease is over", j.name)
		j.stage, j.word = got, claims.Sent{Unsent: true, Cause: "gate"}
		return
	}
	m.say("%s sends", j.name)
	j.stage = waiting
	m.gateway.send(j, m.w.now.Store)
}

// settle stores the sender's word as claims.Fence does: under its guard where the record still names the claim, else as
// evidence. One write for each step.
func (m *callMachine) settle(j *job) {
	rec := j.rec
	cond := claims.Condition{Guard: j.dec.Condition.Guard, Finisher: j.dec.Condition.Finisher}
	next, ok := m.rules.settle(rec, j.mine.Revision, j.mine.Attempt, j.mine.Claim, j.word)
	what := "settle"
	if !ok || j.lost {
		what, cond, ok = "evidence", claims.Condition{}, false
		if o := wordOf(j.word); o.Definite() {
			source := map[bool]string{true: "zero-bytes", false: "answer"}[j.word.Unsent]
			next, ok = m.rules.late(rec, claims.Evidence{
				Revision: j.mine.Revision, Attempt: j.mine.Attempt, Claim: j.mine.Claim, Outcome: o, Source: source,
				Answer: j.word.Answer, Payment: j.word.Payment, Stored: j.word.Stored,
			})
		}
	}
	m.say("%s settles %s over version %d", j.name, wordOf(j.word), rec.Version)
	if !ok {
		if rec.Version == m.recs[rec.Key].Version {
			m.add(": told already")
			m.checkTold(j)
			m.drop(j)
			return
		}
		j.rec = m.get(rec.Key, claims.Guard{}).Record
		return
	}
	sw, err := m.swap(what, cond, claims.Write{Version: rec.Version, Next: next, Event: m.rules.event(rec, next)})
	switch {
	case err == nil:
		if what == "settle" && (rec.Claim != j.mine.Claim || rec.Revision != j.mine.Revision) {
			wrong("a settle names the claim that it settles", "%s settled attempt %d of revision %d", j.name, rec.Attempt, rec.Revision)
		}
		m.checkTold(j)
		if sw.Records[0].State != claims.StateUnknown {
			m.drop(j)
			return
		}
		j.stage, j.req.Asked, j.req.Probed = fresh, false, false // the app waits, and asks again
	case told(err) == told(claims.ErrLost):
		j.rec = sw.Records[0]
	default:
		j.lost = true
		j.rec = m.get(rec.Key, claims.Guard{}).Record
	}
}

func wordOf(s claims.Sent) claims.Outcome {
	if s.Unsent {
		return claims.NotExecuted
	}
	return s.Outcome
}
