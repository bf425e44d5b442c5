package claimstest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// world is the model of a store's leases and time, written from the documentation of claims.Leases and claims.Store. It calls
// nothing of a store.
type world struct {
	now        claims.Now
	era        uint64
	quarantine time.Time
	scopes     map[string]*modelScope
	calls      map[claims.Key]*modelCall
}

// modelScope is what is to be known of a scope.
type modelScope struct {
	token     uint64
	holder    string
	end       claims.LeaseStatus
	expiry    time.Time
	era       uint64
	cancelled bool
	log       []claims.LeaseEvent
}

// modelCall is what a lease must know of a call.
type modelCall struct {
	state  claims.State
	scope  string
	sender claims.Guard
}

func newWorld(now claims.Now) *world {
	return &world{now: now, scopes: map[string]*modelScope{}, calls: map[claims.Key]*modelCall{}}
}

func (w *world) scope(name string) *modelScope {
	if w.scopes[name] == nil {
		w.scopes[name] = &modelScope{}
	}
	return w.scopes[name]
}

func (w *world) advance(d time.Duration) {
	w.now.Store, w.now.Wall = w.now.Store.Add(d), w.now.Wall.Add(d)
}

// standing is a guard's: by its token first, then by how the last token ended.
func (w *world) standing(g claims.Guard) claims.GuardView {
	s, known := w.scopes[g.Scope]
	switch {
	case !known || g.Token == 0 || g.Token > s.token:
		return claims.GuardView{Status: claims.LeaseAbsent}
	case g.Token < s.token:
		return claims.GuardView{Status: claims.LeaseSuperseded}
	case g.External():
		return claims.GuardView{Status: claims.LeaseLive, Remaining: claims.ExternalTrust}
	case s.end == claims.LeaseFinished:
		return claims.GuardView{Status: s.end, Finisher: true}
	case s.end == claims.LeaseReleased:
		return claims.GuardView{Status: s.end}
	case s.era == w.era && w.now.Store.Before(s.expiry):
		return claims.GuardView{Status: claims.LeaseLive, Remaining: s.expiry.Sub(w.now.Store)}
	}
	return claims.GuardView{Status: claims.LeaseExpired}
}

func (w *world) live(g claims.Guard) bool { return w.standing(g).Status == claims.LeaseLive }

// current is the last guard that was granted of a scope.
func (w *world) current(scope string) claims.Guard {
	g := claims.Guard{Scope: scope}
	if s, ok := w.scopes[scope]; ok {
		g.Token = s.token
	}
	return g
}

func (w *world) lease(scope string) claims.Lease {
	g := w.current(scope)
	v := w.standing(g)
	l := claims.Lease{Guard: g, Status: v.Status, Remaining: v.Remaining}
	if s, ok := w.scopes[scope]; ok {
		l.Holder, l.Cancelled = s.holder, s.cancelled
	}
	return l
}

func (w *world) closed() error {
	if left := w.quarantine.Sub(w.now.Store); left > 0 {
		return &claims.QuarantineError{Left: left}
	}
	return nil
}

func (w *world) write(g claims.Guard, event string) {
	s := w.scope(g.Scope)
	s.log = append(s.log, claims.LeaseEvent{Guard: g, Event: event, Holder: s.holder, At: w.now})
}

func (w *world) acquire(scope, holder string, ttl time.Duration) error {
	if err := w.closed(); err != nil {
		return err
	}
	status := w.standing(w.current(scope)).Status
	switch status {
	case claims.LeaseLive:
		return claims.ErrHeld
	case claims.LeaseFinished:
		return claims.ErrFinished
	}
	s := w.scope(scope)
	s.token += 1 + (w.era-s.era)*claims.TokenJump
	s.holder, s.end, s.era, s.expiry = holder, 0, w.era, w.now.Store.Add(ttl)
	event := "take"
	if status == claims.LeaseExpired {
		event = "takeover"
	}
	w.write(w.current(scope), event)
	return nil
}

func (w *world) renew(g claims.Guard, ttl time.Duration) error {
	if err := w.closed(); err != nil {
		return err
	}
	if g.External() && g.Token > w.current(g.Scope).Token {
		w.scope(g.Scope).token = g.Token
	}
	if v := w.standing(g); v.Status != claims.LeaseLive {
		return &claims.FencedError{Guard: g, Status: v.Status}
	}
	if s := w.scope(g.Scope); s.expiry.Before(w.now.Store.Add(ttl)) {
		s.expiry = w.now.Store.Add(ttl)
	}
	return nil
}

func (w *world) finish(g claims.Guard, as claims.LeaseStatus) error {
	if g.External() {
		return claims.ErrBadScope
	}
	if err := w.closed(); err != nil {
		return err
	}
	if v := w.standing(g); v.Status != claims.LeaseLive {
		return &claims.FencedError{Guard: g, Status: v.Status}
	}
	for _, c := range w.calls {
		pending := c.state == claims.StatePending
		if c.scope == g.Scope && (pending || c.state == claims.StateUnknown) || pending && c.sender == g {
			return claims.ErrCallsInFlight
		}
	}
	w.scope(g.Scope).end = as
	w.write(g, map[claims.LeaseStatus]string{claims.LeaseReleased: "release", claims.LeaseFinished: "finish"}[as])
	return nil
}

func (w *world) cancel(scope string) error {
	if claims.CheckApp(scope) != nil {
		return claims.ErrBadScope
	}
	if w.standing(w.current(scope)).Status == claims.LeaseFinished {
		return claims.ErrFinished
	}
	s := w.scope(scope)
	if !s.cancelled {
		s.cancelled = true
		w.write(w.current(scope), "cancel")
	}
	return nil
}

// lose ends every lease that was granted before; tokens jump with the next take.
func (w *world) lose(quarantine time.Duration) {
	w.era++
	w.quarantine = w.now.Store.Add(quarantine)
}

// holds is what a Swap's condition comes to, in the documented order.
func (w *world) holds(c claims.Condition) error {
	if !c.Guard.IsZero() || !c.Sender.IsZero() {
		if err := w.closed(); err != nil {
			return err
		}
	}
	if v := w.standing(c.Guard); !c.Guard.IsZero() && v.Status != claims.LeaseLive && !(c.Finisher && v.Finisher) {
		return &claims.FencedError{Guard: c.Guard, Status: v.Status}
	}
	if v := w.standing(c.Sender); !c.Sender.IsZero() && v.Status != claims.LeaseLive {
		return &claims.FencedError{Guard: c.Sender, Status: v.Status, Sender: true}
	}
	if !c.Dead.IsZero() && w.live(c.Dead) {
		return claims.ErrSenderLives
	}
	return nil
}

// told is an error as the model compares it.
func told(err error) string {
	if err == nil {
		return "ok"
	}
	if e, ok := errors.AsType[*claims.FencedError](err); ok {
		return fmt.Sprintf("fenced (%s, sender %v)", e, e.Sender)
	}
	if e, ok := errors.AsType[*claims.QuarantineError](err); ok {
		return fmt.Sprintf("quarantine, %s left", e.Left)
	}
	named := []error{claims.ErrLost, claims.ErrSenderLives, claims.ErrHeld, claims.ErrFinished, claims.ErrCallsInFlight, claims.ErrBadScope}
	if i := slices.IndexFunc(named, func(n error) bool { return errors.Is(err, n) }); i >= 0 {
		return named[i].Error()
	}
	return "not a refusal: " + err.Error()
}

// same wants the store to answer as the model does.
func same(what string, got, want error) {
	if g, w := told(got), told(want); g != w {
		wrong(broken(what, got, want), "%s: the store says %q, the model %q", what, g, w)
	}
}

// broken names the promise that a store breaks by an answer.
func broken(what string, got, want error) string {
	if got == nil {
		_, fenced := errors.AsType[*claims.FencedError](want)
		switch {
		case fenced:
			return "nothing is done under a token that is not live (P1)"
		case errors.Is(want, claims.ErrHeld):
			return "a scope has one holder (P1)"
		case errors.Is(want, claims.ErrFinished):
			return "a finished scope is never granted again (P4)"
		case errors.Is(want, claims.ErrSenderLives):
			return "a live sender is never overtaken (P3)"
		case errors.Is(want, claims.ErrLost):
			return "a write compares (P3)"
		}
	}
	return what + " is not answered as the model does"
}
