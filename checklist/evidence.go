package checklist

import (
	"slices"
	"time"
)

// Names of the steps, in the order in which they are tried.
const (
	StepSuccess   = "success"   // a charge, looked up at once and until it appears, then repeated
	StepAmount    = "amount"    // another amount under the charge's key
	StepEndpoint  = "endpoint"  // another endpoint under the charge's key
	StepAccount   = "account"   // another account under the charge's key
	StepBurst     = "burst"     // one request many times at once, under one key
	StepDeclined  = "declined"  // a charge that is declined, repeated
	StepFailed    = "failed"    // a charge that is answered with a 5xx, repeated
	StepEmpty     = "empty"     // an operation with an empty body, repeated
	StepPending   = "pending"   // a payment whose outcome comes later
	StepRetention = "retention" // the first charge again, at the end and hours later
	StepEgress    = "egress"    // the way out, to a listener of ours
)

// Roles of an exchange in its step.
const (
	RoleSetup   = "setup"
	RoleFirst   = "first"
	RoleRepeat  = "repeat"
	RoleOther   = "other"   // another request under the key
	RoleControl = "control" // the other request under a key of its own
	RoleAdvance = "advance"
)

// Evidence is what was sent and what came back, step by step, in order. It holds no credential and no card data.
type Evidence struct {
	Steps []*Step `json:"steps"`
}

// Step is one part of the checklist.
type Step struct {
	Name string `json:"name"`
	// Done: it was gone through to its end. Without it Why says what it was left for.
	Done bool   `json:"done"`
	Why  string `json:"why,omitempty"`
	// Exchanges are what was sent; Sights what lookups showed; Notices what a webhook was told.
	Exchanges []Exchange `json:"exchanges,omitempty"`
	Sights    []Sight    `json:"lookups,omitempty"`
	Notices   []Notice   `json:"notices,omitempty"`
	// Listened: a webhook listener was there.
	Listened bool `json:"listened,omitempty"`
	// Late: the payment of StepPending was pending at first.
	Late bool `json:"late,omitempty"`
	// Arrivals is how often a request reached the listener of StepEgress, by what it did with it.
	Arrivals []Arrival `json:"arrivals,omitempty"`
}

// Exchange is one request and its answer.
type Exchange struct {
	Role     string    `json:"role"`
	At       time.Time `json:"at"`
	Method   string    `json:"method"`
	Target   string    `json:"target"`
	Key      string    `json:"key,omitempty"`
	Account  string    `json:"account,omitempty"` // other: the second account
	Amount   string    `json:"amount,omitempty"`
	Currency string    `json:"currency,omitempty"`
	// After is how long after the first exchange of its series it was sent, in seconds.
	After float64 `json:"after_seconds,omitempty"`
	Took  float64 `json:"took_seconds"`
	// Status is 0 without an answer; Failure says why there is none.
	Status  int    `json:"status"`
	Failure string `json:"failure,omitempty"`
	// Outcome is what the gateway's answer table makes of it: succeeded, declined, not-executed, unknown; "" for what is no call.
	Outcome   string `json:"outcome"`
	InUse     bool   `json:"in_use,omitempty"`
	Transient bool   `json:"transient,omitempty"`
	Payment   string `json:"payment,omitempty"`
	// Object is the gateway's id of what was made; Points: the answer refuses and points at it.
	Object    string `json:"object,omitempty"`
	Points    bool   `json:"points,omitempty"`
	Reference string `json:"reference,omitempty"`
	// Digest is SHA-256 of the body; Meaning the same of what the body says, whatever the order and spacing of its fields.
	Digest  string `json:"body_sha256,omitempty"`
	Meaning string `json:"meaning_sha256,omitempty"`
	Header  []Line `json:"header,omitempty"`
	Excerpt string `json:"excerpt,omitempty"`
}

// Line is one header line of an answer.
type Line struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Sight is what one lookup showed.
type Sight struct {
	Role    string  `json:"role"`          // one of the roles below
	After   float64 `json:"after_seconds"` // since the answer to the charge
	Status  int     `json:"status"`        // of its last answer
	Kind    string  `json:"kind"`          // found-done, found-failed, missed, could-not-tell, contradiction
	Reason  string  `json:"reason"`
	Object  string  `json:"object,omitempty"`
	Payment string  `json:"payment,omitempty"`
	// Twice: more than one success under our reference.
	Twice bool `json:"twice,omitempty"`
}

// Roles of a sight.
const (
	SightReference = "reference" // by what the call itself holds
	SightOwn       = "own-id"    // by the gateway's id alone: nothing of the call finds it
	SightObject    = "object"    // what a refusal pointed at
	SightAgain     = "again"     // of a call that succeeded: where its money is
)

// Notice is what a webhook was told.
type Notice struct {
	After    float64 `json:"after_seconds"` // since the answer to the charge
	Verified bool    `json:"verified"`      // a signature covers all that it says
	Accepted bool    `json:"accepted"`      // it may have the gateway asked: verified, or the gateway does not sign
	Problem  string  `json:"problem,omitempty"`
	Ours     bool    `json:"ours"` // it names the payment that is waited for
	Outcome  string  `json:"outcome,omitempty"`
	Payment  string  `json:"payment,omitempty"`
	Object   string  `json:"object,omitempty"`
	ByRef    bool    `json:"by_reference,omitempty"` // it carries our reference
}

// Arrival is one request through the way out.
type Arrival struct {
	Behaviour string `json:"behaviour"` // what the listener does: close, reset, status-503, hang
	Sent      int    `json:"sent"`
	Arrived   int    `json:"arrived"`
	Failure   string `json:"failure,omitempty"` // what the sender saw
}

// step finds a step; nil: it was not begun.
func (e *Evidence) step(name string) *Step {
	i := slices.IndexFunc(e.Steps, func(s *Step) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return e.Steps[i]
}

// done reports whether a step is over.
func (e *Evidence) done(name string) bool {
	s := e.step(name)
	return s != nil && s.Done
}

// put replaces a step, or adds it.
func (e *Evidence) put(s *Step) {
	if i := slices.IndexFunc(e.Steps, func(o *Step) bool { return o.Name == s.Name }); i >= 0 {
		e.Steps[i] = s
		return
	}
	e.Steps = append(e.Steps, s)
}

// role is a step's first exchange of a role; nil: there is none.
func (s *Step) role(role string) *Exchange {
	if s == nil {
		return nil
	}
	for i := range s.Exchanges {
		if s.Exchanges[i].Role == role {
			return &s.Exchanges[i]
		}
	}
	return nil
}
