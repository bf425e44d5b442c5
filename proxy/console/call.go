package console

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Call is what people and applications see of a record: never an answer's headers or body, which may hold what belongs on no
// screen. The command prints the same.
type Call struct {
	Tenant       string            `json:"tenant"`
	Call         string            `json:"call"`
	State        claims.State      `json:"state"`
	Outcome      string            `json:"outcome"`
	Version      int64             `json:"version"`
	Revision     int               `json:"revision"`
	Attempt      int               `json:"attempt"`
	Scope        string            `json:"scope,omitempty"`
	Gateway      string            `json:"gateway"`
	Account      string            `json:"account"`
	Endpoint     string            `json:"endpoint"`
	Route        string            `json:"route"`
	GatewayKey   string            `json:"gatewayKey"`
	Reference    string            `json:"reference"`
	Lookup       map[string]string `json:"lookup,omitempty"`
	Retention    string            `json:"keyRetention"`
	SettleAfter  string            `json:"settleAfter"`
	FirstStarted time.Time         `json:"firstStarted"`
	Deadline     time.Time         `json:"deadline"`
	Payment      string            `json:"payment,omitempty"`
	Poll         bool              `json:"poll,omitempty"` // where the money is, is still being asked for
	AnswerStatus int               `json:"answerStatus,omitempty"`
	Reconciled   bool              `json:"reconciled,omitempty"`
	Misses       int               `json:"misses,omitempty"`
	Review       string            `json:"review,omitempty"`
	Alarm        bool              `json:"alarm,omitempty"` // what is known contradicts itself
	Attempts     []CallAttempt     `json:"attempts"`
	Evidence     []CallEvidence    `json:"evidence,omitempty"`
	Undos        []CallUndo        `json:"undos,omitempty"`
	Undoes       string            `json:"undoes,omitempty"`
	Part         string            `json:"part,omitempty"`
	Past         []CallPast        `json:"past,omitempty"`
	Created      time.Time         `json:"created"`
	Updated      time.Time         `json:"updated"`
}

// CallAttempt is one send.
type CallAttempt struct {
	Number   int       `json:"number"`
	Claim    string    `json:"claim"`
	Sender   string    `json:"sender"`
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`
	Outcome  string    `json:"outcome"`
	Proof    string    `json:"proof,omitempty"`
	Wrote    bool      `json:"wrote"`
	Status   int       `json:"status,omitempty"`
	Cause    string    `json:"cause,omitempty"`
}

// CallEvidence is one line of the audit trail: who said what, when and why.
type CallEvidence struct {
	Revision int       `json:"revision"`
	Attempt  int       `json:"attempt"`
	Outcome  string    `json:"outcome"`
	Payment  string    `json:"payment,omitempty"`
	Source   string    `json:"source"`
	At       time.Time `json:"at"`
	By       string    `json:"by,omitempty"`
	Note     string    `json:"note,omitempty"`
}

// CallUndo is a call that undoes this one, or a part of it.
type CallUndo struct {
	Call string `json:"call"`
	Part string `json:"part,omitempty"`
}

// CallPast is an earlier revision.
type CallPast struct {
	Revision     int           `json:"revision"`
	State        claims.State  `json:"state"`
	Gateway      string        `json:"gateway"`
	Account      string        `json:"account"`
	Route        string        `json:"route"`
	GatewayKey   string        `json:"gatewayKey"`
	Reference    string        `json:"reference"`
	FirstStarted time.Time     `json:"firstStarted"`
	Attempts     []CallAttempt `json:"attempts"`
}

// Show is a record as it is shown.
func Show(r *claims.Record) Call {
	f := &r.Facts
	c := Call{
		Tenant: r.Key.Tenant, Call: r.Key.Call, State: r.State, Outcome: r.Outcome().String(), Version: r.Version,
		Revision: r.Revision, Attempt: r.Attempt, Scope: r.Scope, Gateway: f.Gateway, Account: f.Account, Endpoint: f.Endpoint,
		Route: f.Route, GatewayKey: f.GatewayKey, Reference: f.Reference, Lookup: f.Lookup,
		Retention: f.Retention.String(), SettleAfter: f.SettleAfter.String(), FirstStarted: utc(r.FirstStarted.Wall),
		Deadline: utc(r.Deadline), Payment: r.Payment, Poll: r.Poll, Reconciled: r.Reconciled, Misses: r.Misses,
		Attempts: showAttempts(r.Attempts), Undoes: r.Undoes, Part: r.Part, Created: utc(r.Created.Wall), Updated: utc(r.Updated.Wall),
	}
	if r.Answer != nil {
		c.AnswerStatus = r.Answer.Status
	}
	if r.Review != nil {
		c.Review, c.Alarm = r.Review.Reason, r.Review.Alarm
	}
	for _, e := range r.Evidence {
		c.Evidence = append(c.Evidence, CallEvidence{e.Revision, e.Attempt, e.Outcome.String(), e.Payment, e.Source, utc(e.At.Wall), e.By, e.Note})
	}
	for _, u := range r.Undos {
		c.Undos = append(c.Undos, CallUndo{u.Key, u.Part})
	}
	for _, p := range r.Past {
		c.Past = append(c.Past, CallPast{
			p.Revision, p.State, p.Facts.Gateway, p.Facts.Account, p.Facts.Route, p.Facts.GatewayKey, p.Facts.Reference,
			utc(p.FirstStarted.Wall), showAttempts(p.Attempts),
		})
	}
	return c
}

func showAttempts(as []claims.Attempt) []CallAttempt {
	out := make([]CallAttempt, 0, len(as))
	for _, a := range as {
		out = append(out, CallAttempt{
			a.Number, a.Claim.String(), a.Sender.String(), utc(a.Started.Wall), utc(a.Deadline), a.Outcome.String(), a.Proof, a.Wrote, a.Status, a.Cause,
		})
	}
	return out
}

// utc keeps one form of times, whatever zone a store's driver reads them in.
func utc(t time.Time) time.Time { return t.UTC() }
