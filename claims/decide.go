package claims

import (
	"fmt"
	"slices"
	"time"
)

// Policy is what the configuration says about a route's attempts.
type Policy struct {
	AttemptTimeout time.Duration
	// MaxAttempts counts only attempts that wrote a byte and got no listed refusal.
	MaxAttempts int
	// NoTokens: the gateway serves calls without a fencing token as the rule, so that what was never claimed may be cancelled
	// without one.
	NoTokens bool
	// Probe: a repeat with the same key replays, so that it may stand in for a lookup (G1 and G4).
	Probe bool
	// Margin is kept from the end of the key's retention; 0: the greater of 5 min and 1 % of the retention. It must
	// exceed the allowed error between the store's clock and the gateway's.
	Margin time.Duration
}

func (p Policy) margin(retention time.Duration) time.Duration {
	if p.Margin > 0 {
		return p.Margin
	}
	return max(5*time.Minute, retention/100)
}

// Request is one fenced request as the decision sees it.
type Request struct {
	Key              Key
	Revision         int
	Guard            Guard // the caller's token, or the instance's own lease
	Instance         Guard // the lease of the process that would send
	Canonical        []byte
	CanonicalVersion int
	Also             [][]byte // further canonical forms of the very same request, as older settings saw it
	Facts            Facts    // as configured now
	Policy           Policy
	Claim            ClaimID // the id that a claim of this request would get

	// Undoes is the key of the call that this one undoes, Part what of it; "": it undoes none. Target is that call's snapshot,
	// under the same guard.
	Undoes string
	Part   string
	Target *View
	// finisher: Guard is the token that finished the scope of the call that is undone, or of an undo that was begun in it.
	finisher bool

	Working bool // this process still works on the record's current attempt
	Asked   bool // a lookup was tried within this request
	Probed  bool // a probe was sent within this request
}

// Action is what a decision wants done. The zero value refuses.
type Action uint8

const (
	Refuse    Action = iota
	Claim            // swap Next under Condition, then send
	Replay           // give Record.Answer
	Reconcile        // find out first, then decide again
	Amend            // swap Next, guarded by Condition alone, then decide again
)

func (a Action) String() string {
	return [...]string{"refuse", "claim", "replay", "reconcile", "amend"}[a]
}

// Decision is the result of Decide.
type Decision struct {
	Action    Action
	Next      Record // its Version is the one that it replaces
	Condition Condition
	// Target is written with Next, all or nothing: the call that is undone. nil: it is not touched.
	Target *Record
	// Look is the call that a Reconcile is to find out about.
	Look    Key
	Refusal *Refusal
	Probe   bool // the claim is a probe: a further attempt while in doubt
}

// Decide says what may be done with a request, from one snapshot. It is pure: a stale token is refused before anything
// of the record is looked at, so that a zombie never learns the new holder's result (DESIGN sections 3 and 4).
func Decide(v View, q Request, ring Ring) Decision {
	d := judge(v, q, ring)
	if d.Action == Reconcile && d.Look == (Key{}) {
		d.Look = q.Key
	}
	if d.Refusal != nil && v.Loss != nil && d.Refusal.Outcome == NotExecuted {
		d.Refusal.Outcome = Unknown // an attempt may have been lost
	}
	return d
}

func judge(v View, q Request, ring Ring) Decision {
	if v.Quarantine > 0 {
		return quarantined(v.Quarantine)
	}
	if q.Undoes != "" {
		return decideUndo(v, q, ring)
	}
	if d, ok := checkGuard(v.Guard, q.Guard); !ok {
		return d
	}
	return decideCall(v, q, ring)
}

func quarantined(left time.Duration) Decision {
	d := refuse(nil, Quarantine, "the store perhaps lost what it had acknowledged: nothing is sent until every lease of before has run out")
	d.Refusal.RetryAfter = left
	return d
}

// decideCall decides about a request whose guard holds.
func decideCall(v View, q Request, ring Ring) Decision {
	r := &v.Record
	if !r.Exists() {
		return decideNone(v, q, ring)
	}
	if d, ok := checkPlace(r, q); !ok {
		return d
	}
	if q.Revision == r.Revision+1 {
		return decideRevision(v, q, ring)
	}
	if !r.unseen() {
		if d, ok := checkFingerprint(r, q, ring); !ok {
			return d
		}
	}
	if next, moved := ReadEvidence(*r); moved {
		return Decision{Action: Amend, Next: next}
	}
	if r.unseen() {
		return decideUnseen(r)
	}
	if v.Loss != nil && r.losable(v.Now) && !q.Working {
		return Decision{Action: Amend, Next: Presume(v, q.Policy.AttemptTimeout, q.Claim), Condition: q.condition()}
	}
	switch r.State {
	case StatePending:
		return decidePending(v, q)
	case StateUnknown:
		return decideDoubt(v, q, Guard{})
	case StateOpen:
		return decideOpen(v, q)
	case StateSucceeded, StateDeclined:
		return decideSettled(r, q)
	case StateReview:
		return refuse(r, NeedsReview, reviewDetail(r))
	case StateCancelled:
		return cancelled(r)
	}
	return unreadable("the record is in a state that this version does not know")
}

func checkGuard(v GuardView, g Guard) (Decision, bool) {
	switch {
	case v.Live():
		return Decision{}, true
	case g.Instance():
		d := refuse(nil, LeaseLost, "the sidecar's own lease is "+v.Status.String()+"; it takes it again")
		d.Refusal.RetryAfter = time.Second
		return d, false
	case v.Status == LeaseFinished:
		return refuse(nil, ScopeFinished, "the scope is finished: nothing is sent for it any more"), false
	}
	return refuse(nil, Fenced, "the fence token is "+v.Status.String()+": another holder may have taken over"), false
}

func cancelled(r *Record) Decision {
	return refuse(r, CallCancelled, "the call was cancelled before anything was executed")
}

// condition is what a write under the caller's guard asks for.
func (q Request) condition() Condition {
	return Condition{Guard: q.Guard, Finisher: q.finisher}
}

// checkPlace refuses a foreign scope, a revision that is out of turn, and a call that undoes another than the record says.
func checkPlace(r *Record, q Request) (Decision, bool) {
	if r.Scope != "" && r.Scope != q.Guard.Scope {
		return refuse(nil, Fenced, "the call belongs to a scope: a token of that scope is needed"), false
	}
	switch {
	case q.Revision < r.Revision:
		return refuse(r, SupersededRev, fmt.Sprintf("the call is at revision %d", r.Revision)), false
	case q.Revision > r.Revision+1:
		return refuse(r, RevisionBlocked, fmt.Sprintf("the call is at revision %d: the next one is %d", r.Revision, r.Revision+1)), false
	case (q.Undoes != r.Undoes || q.Part != r.Part) && !r.unseen():
		return refuse(r, KeyConflict, "the call under this key undoes something else"), false
	}
	return Decision{}, true
}

// checkFingerprint refuses another request under the same key. One that older settings saw in another form is the same:
// the record takes the form, and the account, of now, so that the account's lookups serve it.
func checkFingerprint(r *Record, q Request, ring Ring) (Decision, bool) {
	for i, form := range append([][]byte{q.Canonical}, q.Also...) {
		same, err := ring.Match(r.Fingerprint, q.CanonicalVersion, form)
		switch {
		case err != nil:
			return unreadable(err.Error()), false
		case same && i == 0:
			return Decision{}, true
		case same:
			next := r.Clone()
			if next.Fingerprint, err = ring.Sign(q.CanonicalVersion, q.Canonical); err != nil {
				return unreadable(err.Error()), false
			}
			next.Facts.Account = q.Facts.Account
			return Decision{Action: Amend, Next: next}, false
		}
	}
	return refuse(r, KeyConflict, "another request was made under this call key; one call key is one call, a changed one takes a new key or revision"), false
}

func decideNone(v View, q Request, ring Ring) Decision {
	if q.Revision != 1 {
		return refuse(&Record{}, RevisionBlocked, "there is no call under this key; its first revision is 1")
	}
	f, err := ring.Sign(q.CanonicalVersion, q.Canonical)
	if err != nil {
		return unreadable(err.Error())
	}
	r := Record{Key: q.Key, Revision: 1, Fingerprint: f, Facts: q.Facts, Era: v.Era, Undoes: q.Undoes, Part: q.Part}
	if !q.Guard.Instance() {
		r.Scope = q.Guard.Scope
	}
	if v.Loss != nil {
		v.Record = r
		return Decision{Action: Amend, Next: Presume(v, q.Policy.AttemptTimeout, q.Claim), Condition: q.condition()}
	}
	return claim(r, q, Guard{})
}

// claim makes the next attempt of r's revision. dead, if set, is the earlier sender that must not live any more.
func claim(r Record, q Request, dead Guard) Decision {
	if q.Guard.IsZero() || q.Instance.IsZero() { // a zero guard in a Condition asks for nothing
		return Decision{Refusal: leaseLost()}
	}
	next := r.Clone()
	next.State = StatePending
	next.Attempt++
	next.Claim = q.Claim
	next.Sender = q.Instance
	next.Facts.Endpoint, next.Facts.Credential = q.Facts.Endpoint, q.Facts.Credential
	next.Facts.KeyPlace, next.Facts.LookupForm = q.Facts.KeyPlace, q.Facts.LookupForm
	if !slices.ContainsFunc(next.Attempts, Attempt.Counts) {
		next.FirstStarted = Now{} // the gateway has never seen the key: its age begins with this claim
	}
	next.Misses, next.LastMiss = 0, time.Time{}
	next.Attempts = append(trim(next.Attempts), Attempt{
		Number: next.Attempt, Claim: q.Claim, Sender: q.Instance, Guard: q.Guard, Wrote: true,
	})
	return Decision{
		Action: Claim, Next: next,
		Condition: Condition{Guard: q.Guard, Finisher: q.finisher, Sender: q.Instance, Dead: dead},
	}
}

// keepIdle is how many attempts that count for nothing are kept beside those that matter.
const keepIdle = 3

// trim drops all but the newest of the attempts that surely did nothing, and of those that were told that the key is in use,
// so that a record stays small however often a gateway cannot be reached or is asked.
func trim(as []Attempt) []Attempt {
	out := slices.Clone(as)
	for _, idle := range []func(Attempt) bool{
		func(a Attempt) bool { return a.Outcome == NotExecuted && !a.Counts() && !a.Presumed }, // a loss stays known
		func(a Attempt) bool { return a.Doubtful() && a.InUse },                                // the newest keep the doubt
	} {
		n := 0
		for _, a := range out {
			if idle(a) {
				n++
			}
		}
		out = slices.DeleteFunc(out, func(a Attempt) bool {
			if n <= keepIdle || !idle(a) {
				return false
			}
			n--
			return true
		})
	}
	return out
}

func decidePending(v View, q Request) Decision {
	r := &v.Record
	if left := r.Deadline.Sub(v.Now.Store); left > 0 || q.Working {
		return inFlight(r, left, "an attempt of this call is in flight")
	}
	if r.Sender == q.Instance { // ours, and we no longer work on it
		return Decision{Action: Amend, Next: GiveUp(*r), Condition: Condition{Sender: q.Instance}}
	}
	return decideDoubt(v, q, r.Sender)
}

func inFlight(r *Record, left time.Duration, detail string) Decision {
	d := refuse(r, InFlight, detail)
	d.Refusal.RetryAfter = min(max(left, time.Second), 5*time.Second)
	return d
}

// decideDoubt handles an attempt that was sent without a definite answer. dead names the sender that must be dead before
// a probe; zero where it gave up.
func decideDoubt(v View, q Request, dead Guard) Decision {
	r := &v.Record
	if !q.Asked {
		return Decision{Action: Reconcile}
	}
	why, detail := mayResend(r, q, v.Now)
	if why == NeedsReview {
		return toReview(*r, detail)
	}
	pause := probePause(r, v.Now)
	if why == "" && q.Policy.Probe && !q.Probed && unanswered(r) && samePlace(r, q) && (dead.IsZero() || !v.Sender.Live()) && pause <= 0 {
		d := claim(*r, q, dead)
		d.Probe = true
		return d
	}
	if why == RetentionPassed && r.Facts.Strict(q.Facts).Retention > 0 && !r.presumed() { // what is only presumed, a lookup can end
		return refuse(r, RetentionPassed, detail)
	}
	d := refuse(r, InDoubt, "the call was sent and its outcome is not known yet; the sidecar keeps asking the gateway")
	d.Refusal.RetryAfter = max(5*time.Second, pause)
	return d
}

// probePause is how long the next probe has to wait, so that an app that repeats every second does not use up the attempts
// before the gateway is back: nothing before the first one, then 5 s after the last attempt, doubled with each.
func probePause(r *Record, now Now) time.Duration {
	doubts, refused, last := 0, 0, time.Time{}
	for _, a := range r.Attempts {
		if a.Presumed {
			continue
		}
		last = a.Started.Store
		switch {
		case a.Doubtful():
			doubts++
		case a.Refused && doubts > 0: // it asked, and was told nothing of the doubt
			refused++
		}
	}
	doubts += max(refused-1, 0)
	if running := r.lostUntil().Sub(now.Store); running > 0 {
		return running
	}
	if doubts < 2 {
		return 0
	}
	return last.Add(5 * time.Second << min(doubts-2, 5)).Sub(now.Store)
}

// samePlace reports whether a send would reach the gateway and the account that the doubt is about, with the same bytes.
// Anywhere else, or in another form, the key is a new one, and a repeat would be executed again.
func samePlace(r *Record, q Request) bool {
	return r.Facts.Endpoint == q.Facts.Endpoint && r.Facts.Credential == q.Facts.Credential && r.Facts.KeyPlace == q.Facts.KeyPlace &&
		r.Facts.LookupForm == q.Facts.LookupForm
}

// unanswered reports whether a repeat could still bring an answer: the last attempt got none, or one of something between
// us and the gateway, or a refusal that came before the key was looked at, or was told that the key is in use. What stands
// under the key (a stored 5xx) is replayed for as long as the key lives, so asking again is of no use.
func unanswered(r *Record) bool {
	if len(r.Attempts) == 0 {
		return false
	}
	a := r.Attempts[len(r.Attempts)-1]
	return !a.Stands || a.InUse || a.Refused
}

func decideOpen(v View, q Request) Decision {
	r := &v.Record
	switch why, detail := mayResend(r, q, v.Now); why {
	case "":
		return claim(*r, q, Guard{})
	case NeedsReview:
		return toReview(*r, detail)
	case AttemptsUsed:
		if r.Answer != nil && r.Answer.Body != nil {
			return Decision{Action: Replay}
		}
		return refuse(r, why, detail)
	default:
		return refuse(r, why, detail)
	}
}

// mayResend is the rule for every further attempt of a revision: "" or the reason against it.
func mayResend(r *Record, q Request, now Now) (Reason, string) {
	f := r.Facts.Strict(q.Facts)
	margin := q.Policy.margin(f.Retention)
	// A wall clock that is back by less than the margin is covered by the margin.
	if now.Store.Before(r.Updated.Store) || now.Wall.Before(r.Updated.Wall.Add(-margin)) {
		return NeedsReview, "the store's clock is behind the record: how old the gateway's key is cannot be known"
	}
	counted, reached, doubted := 0, false, false
	for _, a := range r.Attempts {
		if a.Counts() {
			reached = true
			doubted = doubted || a.Proof != proofAnswer
		}
		if a.Counts() && !a.InUse && !a.Presumed { // "in use" used nothing up
			counted++
		}
	}
	if counted >= q.Policy.MaxAttempts {
		return AttemptsUsed, fmt.Sprintf("all %d attempts of this revision are used", q.Policy.MaxAttempts)
	}
	switch {
	case f.Retention == 0 && doubted:
		return RetentionPassed, "the gateway declares no retention of its keys: nothing is sent again after a doubt"
	case reached && f.Retention > 0 && now.Age(r.FirstStarted)+q.Policy.AttemptTimeout+margin >= f.Retention:
		return RetentionPassed, fmt.Sprintf("the gateway keeps its key for %s only: the same revision is not sent again", f.Retention)
	}
	return "", ""
}

func decideSettled(r *Record, q Request) Decision {
	switch {
	case r.ToldOnly() && !q.Asked:
		return Decision{Action: Reconcile} // the gateway may show what a notice did not bring
	case r.answerGone() && r.Object != "":
		return refuse(r, AnswerGone, "the call is "+string(r.State)+"; its answer is not kept; the gateway calls its object "+r.Object)
	case r.answerGone():
		return refuse(r, AnswerGone, "the call is "+string(r.State)+"; its answer is not kept")
	}
	return Decision{Action: Replay}
}

func toReview(r Record, why string) Decision {
	return Decision{Action: Amend, Next: review(r, why)}
}

func review(r Record, why string) Record {
	next := r.Clone()
	next.State = StateReview
	next.Review = &Review{Reason: why}
	next.Poll = false
	return next
}

// alarm is review of a record that contradicts itself.
func alarm(r Record, why string) Record {
	next := review(r, why)
	next.Review.Alarm = true
	return next
}

func reviewDetail(r *Record) string {
	if r.Review != nil {
		return "a person must decide: " + r.Review.Reason
	}
	return "a person must decide"
}

// unreadable refuses for now: an instance of another version, or with the whole key ring, may know more.
func unreadable(detail string) Decision {
	d := refuse(nil, Unreadable, detail)
	d.Refusal.RetryAfter = 30 * time.Second
	return d
}

// refuse makes a refusal that says of the call what r allows; nil: the record was not read under the request's fence.
func refuse(r *Record, why Reason, detail string) Decision {
	d := Decision{Action: Refuse, Refusal: &Refusal{Reason: why, Detail: detail}}
	if r != nil {
		d.Refusal.Outcome = r.Outcome()
	}
	return d
}

// Outcome is what may be said of the call. NotExecuted only where no attempt can have been executed.
func (r *Record) Outcome() Outcome {
	if r.Unread() {
		return Unknown
	}
	switch r.State {
	case StateSucceeded:
		return Succeeded
	case StateDeclined:
		return Declined
	case None, StateOpen, StateCancelled:
		return NotExecuted
	}
	return Unknown
}
