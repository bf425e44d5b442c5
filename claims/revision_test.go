package claims

import (
	"testing"
	"time"
)

// second asks for revision 2: another amount, with a gateway key of its own.
func second(q *Request, _ *View) {
	q.Revision, q.Canonical = 2, []byte("amount=900")
	q.Facts.GatewayKey = "gk2"
}

// operator is a person's word that nothing was executed.
func (b *build) operator(now Now, w Word) *build {
	b.t.Helper()
	next, err := Resolve(b.r, w, "ada", "dashboard", now)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.write(next, now, false)
}

// TestRevision: the next revision follows only if every attempt of the one before has its own proof.
func TestRevision(t *testing.T) {
	absent := func() *build {
		return fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Missed, strong).verdict(at(2*time.Hour), Missed, strong).want(StateOpen)
	}
	forgotten := at(retention + retention/100 + attemptTime)
	type try struct {
		b       *build
		now     Now
		may     bool
		waiting bool // blocked for a time that is told
	}
	for name, c := range map[string]try{
		"declined":                          {b: fresh(t).claim(t0).settle(t0, no), now: at(time.Second), may: true},
		"stored decline":                    {b: fresh(t).claim(t0).settle(t0, lostWord).claim(at(time.Minute)).settle(at(time.Minute), storedNo), now: at(time.Hour), may: true},
		"refused":                           {b: fresh(t).claim(t0).settle(t0, slowDown), now: at(time.Second), may: true},
		"zero bytes":                        {b: fresh(t).claim(t0).settle(t0, unsent), now: at(time.Second), may: true},
		"an operator":                       {b: fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong).operator(at(2*time.Hour), WasNotExecuted).want(StateOpen), now: at(3 * time.Hour), may: true},
		"found failed":                      {b: fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), FoundFailed, strong).want(StateDeclined), now: at(2 * time.Hour), may: true},
		"absence, key kept":                 {b: absent(), now: at(3 * time.Hour), waiting: true},
		"absence, key nearly forgotten":     {b: absent(), now: at(retention), waiting: true},
		"absence, key forgotten":            {b: absent(), now: forgotten, may: true},
		"absence, forgotten by one clock":   {b: absent(), now: Now{Store: forgotten.Store, Wall: at(3 * time.Hour).Wall}, waiting: true},
		"absence of one, decline of others": {b: absent().claim(at(3*time.Hour)).settle(at(3*time.Hour), no).want(StateDeclined), now: at(4 * time.Hour), waiting: true},
		"in flight":                         {b: fresh(t).claim(t0), now: at(time.Second), waiting: true},
		"unknown":                           {b: fresh(t).claim(t0).settle(t0, lostWord), now: at(time.Second), waiting: true},
		"in review":                         {b: fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong), now: at(2 * time.Hour)},
		"succeeded":                         {b: fresh(t).claim(t0).settle(t0, paid), now: at(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(c.b, c.now, second)
			if !c.may {
				wantRefused(t, d, RevisionBlocked, c.b.r.Outcome())
				if (d.Refusal.RetryAfter > 0) != c.waiting {
					t.Errorf("retry after %s", d.Refusal.RetryAfter)
				}
				return
			}
			wantAction(t, d, Claim)
			n := d.Next
			if n.Revision != 2 || n.Attempt != 1 || len(n.Attempts) != 1 || n.Facts.GatewayKey != "gk2" || n.FirstStarted != (Now{}) || n.Answer != nil || n.Version != c.b.r.Version {
				t.Errorf("record %+v", n)
			}
			if len(n.Past) != 1 || n.Past[0].Revision != 1 || len(n.Past[0].Attempts) != len(c.b.r.Attempts) || n.Past[0].Facts.GatewayKey != "gk" {
				t.Errorf("past %+v", n.Past)
			}
			if same, err := ring.Match(n.Fingerprint, 1, []byte("amount=900")); err != nil || !same {
				t.Errorf("the fingerprint is the old one's: %v", err)
			}
			next := &build{t: t, r: c.b.r}
			next.write(n, c.now, true)
			wantRefused(t, decide(next, c.now), SupersededRev, Unknown)
			wantRefused(t, decide(next, c.now, func(q *Request, _ *View) { q.Revision = 2 }), KeyConflict, Unknown)
			wantRefused(t, decide(next, c.now, second), InFlight, Unknown)
			// The late word of the first revision's attempt: a success is an alarm, a refusal tells nothing.
			first := c.b.r.Attempts[0]
			r, _ := Late(next.r, Evidence{Revision: 1, Attempt: 1, Claim: first.Claim, Outcome: Succeeded, Source: proofAnswer})
			if r.State != StateReview || !r.Review.Alarm {
				t.Errorf("after a late success of revision 1: %s", r.State)
			}
			r, _ = Late(next.r, Evidence{Revision: 1, Attempt: 1, Claim: first.Claim, Outcome: NotExecuted, Source: proofAnswer})
			if r.State != StatePending {
				t.Errorf("after a late refusal of revision 1: %s", r.State)
			}
		})
	}
}

func TestRevisionWithoutRetentionStaysBlocked(t *testing.T) {
	b := fresh(t).claim(t0, func(q *Request) { q.Facts.Retention = 0 }).settle(t0, lostWord).
		verdict(at(time.Hour), Missed, strong).verdict(at(2*time.Hour), Missed, strong).want(StateOpen)
	wantRefused(t, decide(b, at(1000*time.Hour), second), RevisionBlocked, NotExecuted)
}

func TestRevisionReadsEvidenceFirst(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, no)
	b.r.Evidence = append(b.r.Evidence, Evidence{Revision: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: "notice"})
	d := decide(b, at(time.Hour), second)
	wantAction(t, d, Amend)
	if d.Next.State != StateReview {
		t.Errorf("state %s", d.Next.State)
	}
}

// TestRevisionAfterALoss: an attempt of the next revision may have been lost with its record, so that it is presumed; also where
// the loss was already looked into for the revision before.
func TestRevisionAfterALoss(t *testing.T) {
	lossy := func(q *Request, v *View) {
		second(q, v)
		v.Loss, v.Era = &Loss{From: t0, At: at(time.Hour)}, 1
	}
	d := decide(fresh(t).claim(t0).settle(t0, no), at(2*time.Hour), lossy)
	wantAction(t, d, Amend)
	if d.Next.Revision != 2 || d.Next.State != StateUnknown || !d.Next.Attempts[0].Presumed || d.Next.Era != 1 {
		t.Errorf("record %+v", d.Next)
	}
	open := fresh(t).claim(t0).settle(t0, unsent)
	d = decide(open, at(2*time.Hour), lossy)
	wantAction(t, d, Amend)
	if d.Next.Revision != 1 || !d.Next.presumed() {
		t.Fatalf("record %+v", d.Next)
	}
	open.write(d.Next, at(2*time.Hour), false)
	open.verdict(at(3*time.Hour), Missed, strong).want(StateOpen)
	d = decide(open, at(retention*3), second)
	wantAction(t, d, Amend)
	if d.Next.Revision != 2 || d.Next.State != StateUnknown || !d.Next.presumed() {
		t.Errorf("record %+v", d.Next)
	}
}
