package claims

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"
)

// Times of the tables: a claim at t0 with ten seconds for an attempt, ten minutes to settle, a day of retention.
var t0 = at(0)

const (
	attemptTime = 10 * time.Second
	settleTime  = 10 * time.Minute
	retention   = 24 * time.Hour
)

func at(d time.Duration) Now {
	t := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(d)
	return Now{Store: t, Wall: t}
}

var (
	me    = Guard{Scope: InstancePrefix + "me", Token: 3}
	other = Guard{Scope: InstancePrefix + "other", Token: 1}
	app   = Guard{Scope: "shop:run", Token: 7}
)

var ring plainRing

// plainRing is a Ring with one key, which is no secret: the rules do not depend on how a fingerprint is made.
type plainRing struct{}

func (plainRing) Sign(version int, canonical []byte) (Fingerprint, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", version, canonical))
	return Fingerprint{KeyID: "k", Canonical: version, MAC: sum[:]}, nil
}

func (p plainRing) Match(f Fingerprint, version int, canonical []byte) (bool, error) {
	if f.KeyID != "k" || f.Canonical != version {
		return false, ErrUnreadable
	}
	want, err := p.Sign(version, canonical)
	return bytes.Equal(want.MAC, f.MAC), err
}

var canonical = []byte("amount=100")

func facts() Facts {
	return Facts{Gateway: "g", GatewayKey: "gk", Reference: "ref", Retention: retention, SettleAfter: settleTime}
}

func request() Request {
	return Request{
		Key: Key{"shop", "a"}, Revision: 1, Guard: me, Instance: me, Canonical: canonical, CanonicalVersion: 1, Facts: facts(),
		Policy: Policy{AttemptTimeout: attemptTime, MaxAttempts: 3, Probe: true}, Claim: ClaimID{99}, Asked: true,
	}
}

// build makes records by the rules' own functions, as a store would.
type build struct {
	t *testing.T
	r Record
}

func (b *build) write(next Record, now Now, claim bool) *build {
	b.r = Write{Version: b.r.Version, Next: next, Claim: claim, Timeout: attemptTime}.Stamp(now)
	return b
}

// claim claims under q at now.
func (b *build) claim(now Now, change ...func(*Request)) *build {
	b.t.Helper()
	q := request()
	q.Claim = ClaimID{byte(b.r.Attempt + 1)}
	for _, f := range change {
		f(&q)
	}
	v := View{Record: b.r, Guard: GuardView{Status: LeaseLive}, Sender: GuardView{Status: LeaseExpired}, Now: now}
	d := Decide(v, q, ring)
	if d.Action != Claim {
		b.t.Fatalf("claim: %s %v", d.Action, d.Refusal)
	}
	return b.write(d.Next, now, true)
}

// settle stores the current attempt's own word.
func (b *build) settle(now Now, s Sent) *build {
	b.t.Helper()
	next, ok := Settle(b.r, b.r.Revision, b.r.Attempt, b.r.Claim, s)
	if !ok {
		b.t.Fatal("settle: the record has moved on")
	}
	return b.write(next, now, false)
}

// late brings the word of attempt n as evidence.
func (b *build) late(now Now, n int, o Outcome, change ...func(*Evidence)) *build {
	b.t.Helper()
	e := Evidence{Revision: b.r.Revision, Attempt: n, Claim: ClaimID{byte(n)}, Outcome: o, Source: proofAnswer, Answer: body("late " + o.String())}
	for _, f := range change {
		f(&e)
	}
	next, changed := Late(b.r, e)
	if !changed {
		b.t.Fatal("late: told already")
	}
	return b.write(next, now, false)
}

func (b *build) verdict(now Now, k FindingKind, rules LookupRules) *build {
	b.t.Helper()
	next, moved := Apply(b.r, Verdict{Looked: true, Finding: Finding{Kind: k, Answer: nil, Reason: "seen"}, Rules: rules, Version: b.r.Version, Asked: now})
	if !moved {
		b.t.Fatalf("verdict %s: nothing moved", k)
	}
	return b.write(next, now, false)
}

func body(s string) *Answer { return &Answer{Status: 200, Body: []byte(s)} }

func fresh(t *testing.T) *build { return &build{t: t} }

var (
	lostWord  = Sent{Cause: "cut"}
	paid      = Sent{Outcome: Succeeded, Answer: body("paid"), Payment: "done"}
	no        = Sent{Outcome: Declined, Answer: body("no")}
	storedNo  = Sent{Outcome: Declined, Stored: true, Answer: body("stored no")}
	slowDown  = Sent{Outcome: NotExecuted, Refused: true, Answer: body("slow down")}
	invalid   = Sent{Outcome: NotExecuted, Answer: body("invalid")}
	unsent    = Sent{Unsent: true, Cause: "dial"}
	keyInUse  = Sent{InUse: true, Answer: &Answer{Status: 409, Body: []byte("in use")}, Cause: "in-use"}
	fiveHundr = Sent{Answer: &Answer{Status: 500, Body: []byte("boom")}, Cause: "unlisted", Error: true}
	balancer  = Sent{Answer: &Answer{Status: 503, Body: []byte("upstream")}, Cause: "unlisted"}
	strong    = LookupRules{Proves: true, Misses: 2, MissGap: 30 * time.Second, Keyed: true, FirstStored: true}
)

// wantOutcomes checks the attempts' outcomes, oldest first.
func (b *build) wantOutcomes(want ...Outcome) {
	b.t.Helper()
	if len(b.r.Attempts) != len(want) {
		b.t.Fatalf("%d attempts, want %d", len(b.r.Attempts), len(want))
	}
	for i, a := range b.r.Attempts {
		if a.Outcome != want[i] {
			b.t.Errorf("attempt %d is %s (%s), want %s", i+1, a.Outcome, a.Proof, want[i])
		}
	}
}

func (b *build) want(s State) *build {
	b.t.Helper()
	if b.r.State != s {
		b.t.Fatalf("state %q, want %q; attempts %+v", b.r.State, s, b.r.Attempts)
	}
	if b.r.Unread() {
		b.t.Error("success evidence left unread")
	}
	return b
}

func (b *build) wantAnswer(s string) *build {
	b.t.Helper()
	got := ""
	if b.r.Answer != nil {
		got = string(b.r.Answer.Body)
	}
	if got != s {
		b.t.Errorf("answer %q, want %q", got, s)
	}
	return b
}

func decide(b *build, now Now, change ...func(*Request, *View)) Decision {
	q := request()
	v := View{Record: b.r, Guard: GuardView{Status: LeaseLive}, Sender: GuardView{Status: LeaseExpired}, Now: now}
	for _, f := range change {
		f(&q, &v)
	}
	return Decide(v, q, ring)
}

func wantRefused(t *testing.T, d Decision, why Reason, o Outcome) {
	t.Helper()
	if d.Action != Refuse || d.Refusal == nil || d.Refusal.Reason != why || d.Refusal.Outcome != o {
		t.Errorf("%s %+v, want the refusal %s saying %s", d.Action, d.Refusal, why, o)
	}
}

func wantAction(t *testing.T, d Decision, a Action) {
	t.Helper()
	if d.Action != a {
		t.Errorf("%s %+v, want %s", d.Action, d.Refusal, a)
	}
}
