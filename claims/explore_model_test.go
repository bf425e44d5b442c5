package claims

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The pure functions among two senders, one reconciler, one operator and a gateway that knows what it executed. A tick is a
// minute: an attempt has 1, a request may be executed until 1 after its deadline, an index may lag 1, so that the settling
// time is 2; the gateway keeps keys for 8.
const (
	tick      = time.Minute
	lateTicks = 1
	indexLag  = 1
	keepTicks = 8
	maxTicks  = 13
)

// xrules is a world. The fields up to Probe say what the gateway and its declaration are; the others each break one rule.
type xrules struct {
	StoresFailures, OneProcess, NoLookup, Contradicts, NoKeys, Calm, Probe bool

	JudgeLate, IgnoreVersion, IgnoreDead, IgnoreCompare, IgnoreWorking, IgnoreGate, OtherClaim, DropLate bool
	WrongStored, WrongUnsent, ProvesTooEarly, AgeFromLast, HastyOperator, SlowIndex, NoSettleTime        bool
}

type xpc uint8

const (
	idle xpc = iota
	claimed
	waiting
	got
)

type xsender struct {
	pc       xpc
	dead     bool
	attempt  int
	claim    ClaimID
	deadline int
	net      bool // its request is under way
	word     Sent
	dec      *Decision // decided, not swapped yet
	version  int64
	decided  int
}

type xverdict struct {
	version int64
	asked   int
	kind    FindingKind
}

type xstate struct {
	rec      Record
	now      int
	s        [2]xsender
	sent     bool
	first    int // tick of the claim of the first attempt that was sent
	executed int
	at       int     // of the last execution
	stored   Outcome // first answer stored under the key
	since    int
	failed   bool // a failed object is there
	v        *xverdict
	success  bool // a sender told of success
	viol     string
	path     []string
}

func (x *xstate) clone() *xstate {
	c := *x
	c.rec = x.rec.Clone()
	c.path = slices.Clip(x.path)
	return &c
}

func (x *xstate) key() string {
	r := &x.rec
	var b strings.Builder
	fmt.Fprint(&b, x.now, x.sent, r.State, r.Attempt, r.Deadline.Sub(t0.Store)/tick, r.Misses, r.LastMiss.Sub(t0.Store)/tick, r.FirstStarted.Store.Sub(t0.Store)/tick,
		x.first, x.executed, x.at, x.stored, x.since, x.failed, x.success, len(r.Evidence))
	for _, a := range r.Attempts {
		fmt.Fprint(&b, "|", a.Outcome, a.Proof, a.Wrote, a.Refused, a.Status, a.Sender.Scope[len(a.Sender.Scope)-1:])
	}
	for i := range x.s {
		s := &x.s[i]
		fmt.Fprint(&b, "/", s.pc, s.dead, s.attempt, s.deadline, s.net, s.word.Unsent, s.word.Outcome, s.word.Stored, s.word.Refused)
		if s.dec != nil {
			fmt.Fprint(&b, s.dec.Action, s.dec.Probe, s.dec.Next.State, s.version == r.Version, s.decided == x.now)
		}
	}
	if x.v != nil {
		fmt.Fprint(&b, "v", x.v.asked, x.v.kind, x.v.version == r.Version)
	}
	return b.String()
}

func ticks(n int) Now { return at(time.Duration(n) * tick) }

func (w *xrules) guard(i int) Guard {
	if w.OneProcess {
		i = 0
	}
	return Guard{Scope: fmt.Sprint(InstancePrefix, i), Token: 1}
}

func (w *xrules) alive(x *xstate, g Guard) bool {
	for i := range x.s {
		if w.guard(i) == g && !x.s[i].dead {
			return true
		}
	}
	return false
}

func (w *xrules) write(x *xstate, next Record, claim bool) {
	if claim && w.AgeFromLast {
		next.FirstStarted = Now{}
	}
	x.rec = Write{Version: x.rec.Version, Next: next, Claim: claim, Timeout: tick}.Stamp(ticks(x.now))
	x.check()
}

func (x *xstate) fail(format string, a ...any) {
	if x.viol == "" {
		x.viol = fmt.Sprintf(format, a...)
	}
}

// check holds of every record at every moment.
func (x *xstate) check() {
	o := x.rec.Outcome()
	switch {
	case x.executed > 1:
		x.fail("executed twice")
	case x.executed > 0 && x.rec.Exists() && (o == NotExecuted || o == Declined):
		x.fail("an executed call is said to be %s", o)
	case x.executed == 0 && o == Succeeded:
		x.fail("a call that was not executed is said to have succeeded")
	case x.rec.Unread():
		x.fail("success evidence unread at rest")
	case x.success && x.rec.State != StateSucceeded && x.rec.State != StateReview:
		x.fail("a told success is lost")
	}
}

// next yields every state that can follow.
func (w *xrules) next(x *xstate, emit func(event string, n *xstate)) {
	step := func(event string, f func(n *xstate)) {
		n := x.clone()
		f(n)
		n.check()
		n.path = append(n.path, event)
		emit(event, n)
	}
	w.time(x, step)
	for i := range x.s {
		w.sender(x, i, step)
		w.network(x, i, step)
	}
	w.reconcile(x, step)
	w.person(x, step)
}

type xstep func(event string, f func(n *xstate))

func (w *xrules) time(x *xstate, step xstep) {
	if x.now >= maxTicks {
		return
	}
	for i := range x.s {
		if x.s[i].net && x.now >= x.s[i].deadline+lateTicks {
			return // by now the network has carried or dropped it
		}
	}
	step("tick", func(n *xstate) {
		n.now++
		if n.stored != Unknown && n.now-n.since >= keepTicks {
			n.stored = Unknown // the gateway forgets the key
		}
	})
}

func (w *xrules) sender(x *xstate, i int, step xstep) {
	s := &x.s[i]
	if s.dead {
		return
	}
	name := fmt.Sprintf("%c ", 'A'+i)
	if s.pc != idle && !w.Calm {
		step(name+"is killed", func(n *xstate) {
			for j := range n.s {
				if j == i || w.OneProcess {
					n.s[j] = xsender{dead: true, net: n.s[j].net, attempt: n.s[j].attempt, deadline: n.s[j].deadline}
				}
			}
		})
	}
	switch {
	case s.pc == idle && s.net: // the model's slot is still taken by its last request
	case s.pc == idle && s.dec == nil:
		if d := w.decide(x, i); d.Action == Claim || d.Action == Amend {
			step(name+"decides to "+d.Action.String(), func(n *xstate) { n.s[i].dec, n.s[i].version, n.s[i].decided = &d, n.rec.Version, n.now })
		}
	case s.pc == idle:
		step(name+"swaps", func(n *xstate) { w.swap(n, i) })
	case s.pc == claimed:
		step(name+"passes its gate", func(n *xstate) { w.gate(n, i) })
	case s.pc == waiting:
		step(name+"gives up", func(n *xstate) { n.s[i].pc, n.s[i].word = got, Sent{Cause: "timeout", Unsent: w.WrongUnsent} })
	case s.pc == got:
		step(name+"settles", func(n *xstate) { w.settle(n, i) })
	}
}

func (w *xrules) decide(x *xstate, i int) Decision {
	g := w.guard(i)
	q := request()
	q.Guard, q.Instance, q.Claim = g, g, ClaimID{byte(x.rec.Attempt + 1), byte(i)}
	q.Facts.Retention, q.Facts.SettleAfter = keepTicks*tick, w.settleAfter()
	q.Policy = Policy{AttemptTimeout: tick, MaxAttempts: 3, Probe: w.Probe, Margin: 2 * tick}
	for j := range x.s {
		if w.guard(j) == g && x.s[j].pc != idle && x.s[j].claim == x.rec.Claim && !w.IgnoreWorking {
			q.Working = true
		}
	}
	v := View{Record: x.rec, Guard: GuardView{Status: LeaseLive}, Now: ticks(x.now)}
	if w.alive(x, x.rec.Sender) && !w.IgnoreDead {
		v.Sender.Status = LeaseLive
	}
	return Decide(v, q, ring)
}

func (w *xrules) settleAfter() time.Duration {
	if w.NoSettleTime {
		return 0
	}
	return (lateTicks + indexLag) * tick
}

func (w *xrules) swap(n *xstate, i int) {
	s := &n.s[i]
	d, version := s.dec, s.version
	s.dec = nil
	if version != n.rec.Version && !w.IgnoreCompare || n.now > s.decided+1 { // a lease does not outlive a longer freeze
		return
	}
	if c := d.Condition.Dead; !c.IsZero() && w.alive(n, c) && !w.IgnoreDead {
		return
	}
	w.checkOvertaken(n, d)
	if d.Action == Claim {
		if !d.Probe && slices.ContainsFunc(n.rec.Attempts, Attempt.Doubtful) {
			n.fail("claimed over a doubt")
		}
		s.pc, s.attempt, s.claim, s.deadline = claimed, d.Next.Attempt, d.Next.Claim, n.now+1
	}
	w.write(n, d.Next, d.Action == Claim)
}

// checkOvertaken: no sender is overtaken that still has time, and none whose call is pending while it lives and works.
func (w *xrules) checkOvertaken(n *xstate, d *Decision) {
	for j := range n.s {
		o := &n.s[j]
		works := !o.dead && o.pc != idle && o.claim == n.rec.Claim
		if works && (n.now < o.deadline && d.Action == Claim || n.rec.State == StatePending && d.Next.State != StateReview) {
			n.fail("a live sender was overtaken")
		}
	}
}

func (w *xrules) gate(n *xstate, i int) {
	s := &n.s[i]
	if n.now >= s.deadline && !w.IgnoreGate {
		s.pc, s.word = got, Sent{Unsent: true, Cause: "gate"}
		return
	}
	switch {
	case !n.sent:
		n.sent, n.first = true, s.deadline-1
	case n.now >= n.first+keepTicks:
		n.fail("sent past the key's retention")
	}
	s.pc, s.net = waiting, true
}

func (w *xrules) settle(n *xstate, i int) {
	s := &n.s[i]
	attempt, claim := s.attempt, s.claim
	if w.OtherClaim {
		attempt, claim = n.rec.Attempt, n.rec.Claim
	}
	next, ok := Settle(n.rec, 1, attempt, claim, s.word)
	if !ok && s.word.outcome().Definite() && !w.DropLate {
		next, ok = Late(n.rec, Evidence{
			Revision: 1, Attempt: attempt, Claim: claim, Outcome: s.word.outcome(), Source: s.word.proof(), Answer: s.word.Answer, Stored: s.word.Stored,
		})
	}
	n.success = n.success || s.word.outcome() == Succeeded
	net, deadline := s.net, s.deadline
	*s = xsender{net: net, deadline: deadline, attempt: s.attempt}
	if ok {
		w.write(n, next, false)
	}
}

// network carries a request, or loses it; each answer arrives, or is lost.
func (w *xrules) network(x *xstate, i int, step xstep) {
	s := &x.s[i]
	if !s.net {
		return
	}
	name := fmt.Sprintf("%c's request ", 'A'+i)
	step(name+"is dropped", func(n *xstate) { n.s[i].net = false })
	arrive := func(event string, word Sent, f func(n *xstate)) {
		step(name+event+", answer lost", func(n *xstate) { n.s[i].net = false; f(n) })
		if s.pc == waiting {
			step(name+event, func(n *xstate) { n.s[i].net, n.s[i].pc, n.s[i].word = false, got, word; f(n) })
		}
	}
	word := func(o Outcome, stored bool) Sent {
		return Sent{Outcome: o, Stored: stored || w.WrongStored, Answer: body(o.String())}
	}
	if x.stored != Unknown && !w.NoKeys {
		arrive("is replayed", word(x.stored, true), func(*xstate) {})
		return
	}
	arrive("is EXECUTED", word(Succeeded, !w.NoKeys), func(n *xstate) {
		n.executed, n.at = n.executed+1, n.now
		n.stored, n.since = Succeeded, n.now
	})
	arrive("is declined", word(Declined, w.StoresFailures), func(n *xstate) {
		n.failed = true
		if w.StoresFailures {
			n.stored, n.since = Declined, n.now
		}
	})
	refusal := Sent{Outcome: NotExecuted, Refused: true, Answer: body("refused")}
	arrive("is refused", refusal, func(*xstate) {})
}

func (w *xrules) rules() LookupRules {
	return LookupRules{Proves: !w.NoLookup, Misses: 1, MissGap: tick, Keyed: !w.NoKeys, FirstStored: w.StoresFailures, NoWay: w.NoLookup && !w.Probe}
}

func (w *xrules) findings(x *xstate) []FindingKind {
	lag := indexLag
	if w.SlowIndex {
		lag = 100
	}
	switch {
	case w.NoLookup:
		return []FindingKind{CouldNotTell}
	case x.executed > 0 && x.now-x.at >= lag:
		return []FindingKind{FoundDone, CouldNotTell}
	case x.executed > 0 && x.failed:
		return []FindingKind{FoundDone, FoundFailed, Missed}
	case x.executed > 0:
		return []FindingKind{FoundDone, Missed}
	case x.failed:
		return []FindingKind{FoundFailed, Missed}
	}
	return []FindingKind{Missed, CouldNotTell}
}

func (w *xrules) reconcile(x *xstate, step xstep) {
	if x.v != nil {
		step("verdict "+x.v.kind.String()+" is applied", func(n *xstate) { w.apply(n) })
		return
	}
	if x.rec.State != StatePending && x.rec.State != StateUnknown {
		return
	}
	found := w.findings(x)
	if w.Contradicts {
		found = append(found, Contradiction)
	}
	for _, k := range found {
		step("lookup: "+k.String(), func(n *xstate) { n.v = &xverdict{n.rec.Version, n.now, k} })
	}
}

func (w *xrules) apply(n *xstate) {
	v := Verdict{Looked: true, Finding: Finding{Kind: n.v.kind}, Rules: w.rules(), Version: n.v.version, Asked: ticks(n.v.asked)}
	n.v = nil
	if w.JudgeLate {
		v.Asked = ticks(n.now)
	}
	if w.IgnoreVersion {
		v.Version, v.Asked = n.rec.Version, ticks(n.now)
	}
	if w.ProvesTooEarly {
		v.Asked.Store = v.Asked.Store.Add(100 * tick)
	}
	if next, moved := Apply(n.rec, v); moved {
		w.write(n, next, false)
	}
}

// person says the truth as far as it can be seen at the gateway now.
func (w *xrules) person(x *xstate, step xstep) {
	if x.rec.State != StateReview {
		return
	}
	word, now := WasNotExecuted, ticks(x.now)
	if x.executed > 0 {
		word = WasExecuted
	}
	if w.HastyOperator {
		now = ticks(x.now + 100)
	}
	for _, wd := range []Word{word, LookAgain} {
		if next, err := Resolve(x.rec, wd, "ada", "seen", now); err == nil {
			step(fmt.Sprint("person says ", wd), func(n *xstate) { w.write(n, next, false) })
		}
	}
}
