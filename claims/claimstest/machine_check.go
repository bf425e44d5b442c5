package claimstest

import (
	"slices"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// moves is the table of DESIGN section 3, with what it says of evidence: by who writes, from what, to
// what. A state may always stay what it is.
var moves = map[string]map[claims.State][]claims.State{
	"claim": {
		claims.None: {claims.StatePending}, claims.StateOpen: {claims.StatePending}, claims.StateUnknown: {claims.StatePending},
		claims.StateDeclined: {claims.StatePending}, // of the next revision
	},
	"amend": {
		claims.None:          {claims.StateCancelled, claims.StateUnknown},
		claims.StateOpen:     {claims.StateCancelled, claims.StateUnknown, claims.StateSucceeded, claims.StateReview},
		claims.StateDeclined: {claims.StateCancelled, claims.StateReview, claims.StateUnknown},
		claims.StatePending:  {claims.StateUnknown, claims.StateSucceeded, claims.StateReview},
		claims.StateUnknown:  {claims.StateSucceeded, claims.StateReview, claims.StateDeclined, claims.StateOpen},
		claims.StateReview:   {claims.StateSucceeded}, claims.StateCancelled: {claims.StateReview}, claims.StateSucceeded: {claims.StateReview},
	},
	"settle": {
		claims.StatePending: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateUnknown, claims.StateReview},
	},
	"evidence": {
		claims.StatePending: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateUnknown},
		claims.StateUnknown: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen}, claims.StateOpen: {claims.StateSucceeded},
		claims.StateReview: {claims.StateSucceeded}, claims.StateDeclined: {claims.StateReview}, claims.StateCancelled: {claims.StateReview},
		claims.StateSucceeded: {claims.StateReview},
	},
	"notice": { // one that contradicts what was settled is for a person
		claims.StatePending: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateUnknown},
		claims.StateUnknown: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen},
		claims.StateOpen:    {claims.StateSucceeded, claims.StateReview}, claims.StateReview: {claims.StateSucceeded},
		claims.StateDeclined: {claims.StateReview}, claims.StateCancelled: {claims.StateReview}, claims.StateSucceeded: {claims.StateReview},
	},
	"verdict": {
		claims.StatePending: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateReview, claims.StateUnknown},
		claims.StateUnknown: {claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateReview},
	},
	"recheck":  {claims.StateSucceeded: {claims.StateReview}},
	"operator": {claims.StateReview: {claims.StateSucceeded, claims.StateOpen, claims.StateUnknown, claims.StateDeclined}},
	"give up":  {claims.StatePending: {claims.StateUnknown}},
}

// swap writes, and holds what comes of it against the model.
func (m *callMachine) swap(what string, c claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	got, err := m.h.Backend.Swap(m.ctx, c, writes...)
	want := m.w.holds(c)
	for _, w := range writes {
		if want == nil && (m.recs[w.Next.Key].Version != w.Version || w.Claim && w.Next.Era < m.w.era) {
			want = claims.ErrLost
		}
	}
	m.add(" [%s: %s]", what, told(err))
	same("swap", err, want)
	if err != nil {
		for _, r := range got.Records {
			if had := m.recs[r.Key]; r.Exists() && r.Version != had.Version {
				wrong("a lost swap returns what stands", "%q at version %d, want %d", r.Key.Call, r.Version, had.Version)
			}
		}
		return got, err
	}
	for i, w := range writes {
		m.accept(what, w, got.Records[i])
	}
	return got, nil
}

func (m *callMachine) accept(what string, w claims.Write, is claims.Record) {
	was := m.recs[w.Next.Key]
	m.add(" %q %s→%s v%d", is.Key.Call, stateName(was.State), is.State, is.Version)
	switch {
	case is.Key != w.Next.Key, is.Version != was.Version+1:
		wrong("a version moves by one with each accepted write", "%q: version %d after %d", is.Key, is.Version, was.Version)
	case is.State != w.Next.State:
		wrong("what is written is what was asked for", "%s, asked for %s", is.State, w.Next.State)
	case w.Claim && !is.Deadline.Equal(m.w.now.Store.Add(w.Timeout)):
		wrong("a claim's deadline is the store's time and the timeout", "%v at %v", is.Deadline, m.w.now.Store)
	case was.State != is.State && !slices.Contains(moves[what][was.State], is.State):
		wrong("states move as the table says", "%s: %s to %s", what, was.State, is.State)
	}
	if want := m.tells(what, &was, &is); want != (w.Event != nil) {
		wrong("one event for each doubt that comes to rest", "%s: %s to %s: event %v, want %v", what, was.State, is.State, w.Event != nil, want)
	}
	if w.Event != nil {
		e := *w.Event
		e.At = m.w.now
		m.events = append(m.events, e)
	}
	m.recs[is.Key] = is
	m.w.calls[is.Key] = &modelCall{is.State, is.Scope, is.Sender}
}

func stateName(s claims.State) string {
	if s == claims.None {
		return "none"
	}
	return string(s)
}

// tells is when an event is due: a doubt has come to rest, a person is needed, or the money of a call that succeeded moved.
func (m *callMachine) tells(what string, was, is *claims.Record) bool {
	switch {
	case !was.Exists():
		return false
	case is.State == claims.StateReview && was.State != claims.StateReview,
		is.State == was.State && is.State == claims.StateSucceeded && is.Payment != was.Payment:
		return true
	case is.State == was.State, is.State == claims.StatePending, is.State == claims.StateUnknown:
		return false
	case was.State == claims.StateUnknown, was.State == claims.StateReview:
		return true
	case was.State != claims.StatePending:
		return false
	}
	for _, a := range was.Attempts { // an earlier attempt's doubt
		if a.Claim != was.Claim && a.Outcome == claims.Unknown {
			return true
		}
	}
	for _, a := range is.Attempts { // learnt from anybody but the sender
		if a.Claim == was.Claim {
			return a.Proof != "answer" && a.Proof != "stored-answer" && a.Proof != "zero-bytes"
		}
	}
	return true
}

// judge holds a decision against what really is.
func (m *callMachine) judge(j *job, v claims.View) {
	d, q := &j.dec, &j.req
	guard := m.w.standing(q.Guard)
	if v.Guard != guard {
		wrong("standing", "%s is %+v, want %+v", q.Guard, v.Guard, guard)
	}
	passes := guard.Live() || q.Target != nil && guard.Finisher && q.Target.Record.Scope == q.Guard.Scope
	if !passes && d.Action != claims.Refuse {
		wrong("without a live guard everything is refused", "%s under %s guard", d.Action, guard.Status)
	}
	if ref := d.Refusal; ref != nil {
		m.judgeRefusal(j, ref)
	}
	if d.Action == claims.Replay && (v.Record.Answer == nil || v.Record.State.Unsettled()) {
		wrong("only what is settled is replayed", "%s with answer %v", v.Record.State, v.Record.Answer)
	}
	if d.Action == claims.Claim && (v.Record.Unread() || q.Target != nil && q.Target.Record.Unread()) {
		wrong("success evidence is read before a claim or an undo", "%s", j.name)
	}
}

func (m *callMachine) judgeRefusal(j *job, ref *claims.Refusal) {
	if n := m.gateway.executed[j.req.Key]; n > 0 && (ref.Outcome == claims.NotExecuted || ref.Outcome == claims.Declined) {
		wrong("what was executed is never said not to be", "%s: %s", ref.Reason, ref.Outcome)
	}
	if r := m.recs[j.req.Key]; ref.Outcome != claims.Unknown && (r.State.Unsettled() || r.Unread()) {
		wrong("what is in doubt is unknown", "%s: %s", ref.Reason, ref.Outcome)
	}
	if ref.Reason == claims.NothingToUndo && m.recs[j.target].State != claims.StateCancelled {
		wrong("only of a cancelled call there is nothing to undo", "it is %s", m.recs[j.target].State)
	}
}

// checkClaim holds of every claim that the store accepted; was is what it replaced.
func (m *callMachine) checkClaim(j *job, was claims.Record) {
	r := &j.mine
	revised := was.Exists() && r.Revision != was.Revision
	for _, a := range was.Attempts {
		switch {
		case a.Outcome == claims.Unknown && (revised || !j.dec.Probe):
			wrong("a further attempt follows proof (P3)", "%s: attempt %d is in doubt", j.name, a.Number)
		case revised && a.Outcome == claims.NotExecuted && a.Proof == "lookup" && m.w.now.Store.Sub(was.FirstStarted.Store) < keepKeys:
			wrong("a revision after absence waits for the key's end", "%s", j.name)
		}
	}
	if was.State == claims.StatePending {
		m.checkOvertaken(j, was)
	}
	if was.State == claims.StateCancelled || was.State == claims.StateSucceeded || was.State == claims.StateDeclined && !revised {
		wrong("what is settled is not sent", "%s: %s", j.name, was.State)
	}
	if j.target != (claims.Key{}) {
		m.checkUndo(j)
	}
}

// checkOvertaken: a pending call is left to its sender while that one's lease lives, or until its deadline.
func (m *callMachine) checkOvertaken(j *job, was claims.Record) {
	if m.w.live(was.Sender) {
		wrong("a live sender is never overtaken", "%s claims over %s", j.name, was.Sender)
	}
	if m.w.now.Store.Before(was.Deadline) {
		wrong("nobody claims before the deadline", "%s", j.name)
	}
}

// checkUndo: the target succeeded, and no other call undoes it, or the same part.
func (m *callMachine) checkUndo(j *job) {
	t := m.recs[j.target]
	if t.State != claims.StateSucceeded {
		wrong("an undo is sent only for a call that succeeded (P5)", "%s: the call is %s", j.name, t.State)
	}
	mine := 0
	for _, u := range t.Undos {
		if u.Key == j.req.Key.Call && u.Part == j.req.Part {
			mine++
		} else if u.Part == "" || j.req.Part == "" || u.Part == j.req.Part {
			wrong("one undo key for each call, or for each part", "%s beside %q part %q", j.name, u.Key, u.Part)
		}
	}
	if mine != 1 {
		wrong("an undo is written on its target", "%s: %v", j.name, t.Undos)
	}
}

// checkTold: what a sender told is in the record: it succeeded, or a person knows.
func (m *callMachine) checkTold(j *job) {
	r := m.recs[j.mine.Key]
	if wordOf(j.word) == claims.Succeeded && r.State != claims.StateSucceeded && r.State != claims.StateReview && r.Revision == j.mine.Revision {
		wrong("a told success is never lost", "%s: %s", j.name, r.State)
	}
}

// check holds of every record at every moment, in the store and in the model.
func (m *callMachine) check(key claims.Key) {
	want := m.recs[key]
	got := m.get(key, claims.Guard{}).Record
	if got.Key != want.Key || got.Version != want.Version || got.State != want.State || got.Revision != want.Revision || got.Claim != want.Claim ||
		len(got.Attempts) != len(want.Attempts) || len(got.Evidence) != len(want.Evidence) || (got.Answer == nil) != (want.Answer == nil) ||
		!slices.Equal(got.Undos, want.Undos) || got.Scope != want.Scope || got.Unread() != want.Unread() || !got.NextCheck.Equal(want.NextCheck) {
		wrong("the store holds what was last written", "%q is %s %s rev %d at version %d, want %s %s rev %d at %d",
			key, got.Key, got.State, got.Revision, got.Version, want.Key, want.State, want.Revision, want.Version)
	}
	m.checkSaid(key, &got)
}

// checkSaid: what is said of a call is what the gateway knows of it.
func (m *callMachine) checkSaid(key claims.Key, got *claims.Record) {
	if !got.Exists() {
		return
	}
	o, n := m.rules.outcome(got), m.gateway.executed[key]
	switch {
	case n > 0 && (o == claims.NotExecuted || o == claims.Declined):
		wrong("what was executed is never said not to be", "%q is %s", key.Call, o)
	case n == 0 && o == claims.Succeeded:
		wrong("what was not executed never succeeded", "%q is %s", key.Call, o)
	case o != claims.Unknown && (got.State.Unsettled() || got.Unread()):
		wrong("what is in doubt is unknown", "%q, %s, is said to be %s", key.Call, got.State, o)
	}
}

// compareEvents: the journal is what the model told, in its order.
func (m *callMachine) compareEvents() {
	list, err := m.h.Backend.Events(m.ctx, "", 1000)
	must("events", err)
	if !slices.EqualFunc(list, m.events, func(a, b claims.Event) bool {
		return a.Key == b.Key && a.From == b.From && a.State == b.State && a.Outcome == b.Outcome && a.Payment == b.Payment &&
			a.At.Store.Equal(b.At.Store)
	}) {
		wrong("one event for each doubt that comes to rest", "events: %+v, want %+v", list, m.events)
	}
}
