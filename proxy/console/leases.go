package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// acquire takes a free scope for an application.
func (c *Console) acquire(x *exchange) error {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return err
	}
	b, err := x.body("tenant", "id", "holder", "ttl_ms")
	if err != nil {
		return err
	}
	s, err := c.newScope(b.Tenant, b.ID)
	if err != nil {
		return err
	}
	ttl, err := c.ttl(b.TTL)
	if err != nil {
		return err
	}
	holder := ""
	if b.Holder != nil {
		holder = *b.Holder
	}
	if len(holder) > maxHolder || !utf8.ValidString(holder) || strings.ContainsFunc(holder, unicode.IsControl) {
		return bad(fmt.Sprintf("holder: want at most %d bytes without control characters", maxHolder))
	}
	if c.Draining() || c.isClosed() {
		return refusal(claims.Draining, "the sidecar is shutting down: no lease is granted")
	}
	l, err := x.take(s, marked(holder), ttl)
	if err != nil {
		return err
	}
	if x.r.Context().Err() != nil {
		return x.giveBack(l.Guard)
	}
	c.Metrics.count(eventAcquired)
	c.event(x.r.Context(), "lease acquired", l.Guard, slog.String("holder", holder))
	x.lease(s, l, ttl)
	return nil
}

// take acquires. If the store's answer was lost, the lease may be granted all the same; it is recognised by the holder's nonce, and
// told only after an acknowledged renewal: what is seen may be gone after a failover, and then be granted to somebody else.
func (x *exchange) take(s scope, holder string, ttl time.Duration) (claims.Lease, error) {
	ctx, cancel := x.store()
	l, err := x.c.Leases.Acquire(ctx, s.key, holder, ttl)
	cancel()
	if err == nil || claims.Refused(err) && !errors.Is(err, claims.ErrHeld) {
		return l, err
	}
	ctx, cancel = x.store()
	now, serr := x.c.Leases.State(ctx, s.key)
	cancel()
	switch {
	case serr == nil && now.Status == claims.LeaseLive && now.Holder == holder:
		ctx, cancel = x.store()
		defer cancel()
		return x.c.Leases.Renew(ctx, now.Guard, ttl)
	case serr == nil && now.Status == claims.LeaseLive, errors.Is(err, claims.ErrHeld):
		return claims.Lease{}, heldProblem(now)
	}
	return claims.Lease{}, errors.Join(err, serr)
}

// heldProblem says who holds a scope and for how long, where the store could be asked.
func heldProblem(l claims.Lease) error {
	holder, left := shown(l.Holder), max(l.Remaining, 0)
	p := refusal(claims.ScopeHeld, "the scope is held")
	if holder != "" {
		p.Detail += " by " + holder
	}
	p.RetryAfter = left
	p.more = map[string]any{"holder": holder, "retry_after_ms": left.Milliseconds()}
	return p
}

// giveBack releases what was granted to a client that is gone: nobody knows the token, and the scope would be held for a whole
// lease.
func (x *exchange) giveBack(g claims.Guard) error {
	ctx, cancel := x.store()
	defer cancel()
	if err := x.c.Leases.Release(ctx, g); err != nil {
		x.c.Log.LogAttrs(ctx, slog.LevelWarn, "a lease was granted to a client that hung up; it expires", slog.String("lease", g.String()), slog.Any("error", err))
	}
	return &httpError{http.StatusRequestTimeout, "the connection was closed before the answer; the lease was given back"}
}

// nonceLen is the length of what marked puts behind a holder: a blank, brackets and rand.Text's 26 letters.
const nonceLen = len(" []") + 26

// marked is the holder that is stored: with a nonce, so that a lease can be told from one of an earlier request.
func marked(holder string) string { return holder + " [" + rand.Text() + "]" }

// shown is the holder without its nonce.
func shown(stored string) string {
	n := len(stored) - nonceLen
	if n < 0 || !strings.HasPrefix(stored[n:], " [") || !strings.HasSuffix(stored, "]") ||
		strings.Trim(stored[n+2:len(stored)-1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return stored
	}
	return stored[:n]
}

// confirm renews a live lease: a strict check against the store.
func (c *Console) confirm(x *exchange) error {
	s, g, err := x.guard()
	if err != nil {
		return err
	}
	b, err := x.body("ttl_ms")
	if err != nil {
		return err
	}
	ttl, err := c.ttl(b.TTL)
	if err != nil {
		return err
	}
	l, err := x.renew(g, ttl)
	if err != nil {
		return err
	}
	x.lease(s, l, ttl)
	return nil
}

func (x *exchange) renew(g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	ctx, cancel := x.store()
	defer cancel()
	l, err := x.c.Leases.Renew(ctx, g, ttl)
	if err == nil {
		x.c.Metrics.count(eventConfirmed)
	}
	return l, err
}

// release gives a live lease back.
func (c *Console) release(x *exchange) error {
	return x.end(c.Leases.Release, claims.LeaseReleased, eventReleased)
}

// finish ends a scope for good.
func (c *Console) finish(x *exchange) error {
	return x.end(c.Leases.Finish, claims.LeaseFinished, eventFinished)
}

// end releases or finishes. That it was done already under this very token is no refusal: the client repeats because it did not
// get the answer.
func (x *exchange) end(do func(context.Context, claims.Guard) error, as claims.LeaseStatus, event string) error {
	s, g, err := x.guard()
	if err != nil {
		return err
	}
	if _, err := x.body(); err != nil {
		return err
	}
	ctx, cancel := x.store()
	err = do(ctx, g)
	cancel()
	repeat := false
	if f, ok := errors.AsType[*claims.FencedError](err); ok && f.Status == as {
		repeat = true
		err = x.lasts(g, as)
	}
	if err != nil && !claims.Refused(err) && !repeat && x.ended(g, as) {
		err = x.lasts(g, as)
	}
	if err != nil {
		return err
	}
	if !repeat {
		x.c.Metrics.count(event)
		x.c.event(x.r.Context(), "lease "+event, g)
	}
	x.held(s, g, as, 0, nil, nil)
	return nil
}

// ended asks whether an end whose answer was lost was applied.
func (x *exchange) ended(g claims.Guard, as claims.LeaseStatus) bool {
	ctx, cancel := x.store()
	defer cancel()
	l, err := x.c.Leases.State(ctx, g.Scope)
	return err == nil && l.Guard == g && l.Status == as
}

// lasts makes sure of an end that was seen. It looks once more after that: the store's server may be another one now.
func (x *exchange) lasts(g claims.Guard, as claims.LeaseStatus) error {
	if err := x.confirmed(); err != nil {
		return err
	}
	if !x.ended(g, as) {
		return errors.New("what was seen of the lease before is not there any more")
	}
	return nil
}

// confirmed makes what was seen as lasting as what is acknowledged.
func (x *exchange) confirmed() error {
	ctx, cancel := x.store()
	defer cancel()
	return x.c.Confirm(ctx)
}

// cancel marks a scope: whoever holds it, now or later, is asked to stop its work.
func (c *Console) cancel(x *exchange) error {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return err
	}
	b, err := x.body("tenant", "id")
	if err != nil {
		return err
	}
	s, err := c.newScope(b.Tenant, b.ID)
	if err != nil {
		return err
	}
	ctx, stop := x.store()
	l, err := c.Leases.Cancel(ctx, s.key)
	stop()
	if err != nil && !claims.Refused(err) {
		if now, serr := x.read(s.key); serr == nil && now.Cancelled {
			if err = x.confirmed(); err == nil {
				l, err = x.read(s.key) // of the server that confirmed
			}
			if err == nil && !l.Cancelled {
				err = errors.New("the mark that was seen before is not there any more")
			}
		}
	}
	if err != nil {
		return err
	}
	c.Metrics.count(eventCancelled)
	c.event(x.r.Context(), "scope marked cancelled", l.Guard)
	x.scope(s, l)
	return nil
}

func (x *exchange) read(key string) (claims.Lease, error) {
	ctx, cancel := x.store()
	defer cancel()
	return x.c.Leases.State(ctx, key)
}

// state tells how a scope stands.
func (c *Console) state(x *exchange) error {
	s, err := x.queryScope()
	if err != nil {
		return err
	}
	l, err := x.read(s.key)
	if err != nil {
		return err
	}
	x.scope(s, l)
	return nil
}

// fenced tells whether a token that somebody saw is worth nothing any more.
func (c *Console) fenced(x *exchange) error {
	_, g, err := x.guard()
	if err != nil {
		return err
	}
	if err := x.query0(); err != nil {
		return err
	}
	l, err := x.read(g.Scope)
	if err != nil {
		return err
	}
	status := standing(l, g)
	x.json(struct {
		Fenced bool   `json:"fenced"`
		Status string `json:"status"`
		Token  uint64 `json:"token"`
	}{status != claims.LeaseLive, status.String(), l.Token})
	return nil
}

// standing is what a scope's state means to one guard.
func standing(l claims.Lease, g claims.Guard) claims.LeaseStatus {
	switch {
	case g.Token < l.Token:
		return claims.LeaseSuperseded
	case g.Token > l.Token:
		return claims.LeaseAbsent
	}
	return l.Status
}

// maxEvents bounds an answer of the lease log.
const maxEvents = 1000

type logAnswer struct {
	Events  []logEvent `json:"events"`
	Omitted int        `json:"omitted"` // older ones that are left out
}

type logEvent struct {
	Token  uint64 `json:"token"`
	Event  string `json:"event"`
	Holder string `json:"holder"`
	At     string `json:"at"`
}

// log lists what became of a scope's leases, oldest first.
func (c *Console) log(x *exchange) error {
	s, err := x.queryScope()
	if err != nil {
		return err
	}
	ctx, cancel := x.store()
	defer cancel()
	events, err := c.Lister.Log(ctx, s.key)
	if err != nil {
		return err
	}
	a := logAnswer{Events: []logEvent{}, Omitted: max(len(events)-maxEvents, 0)}
	for _, e := range events[a.Omitted:] {
		a.Events = append(a.Events, logEvent{e.Token, e.Event, shown(e.Holder), e.At.Wall.UTC().Format("2006-01-02T15:04:05.000Z07:00")})
	}
	x.json(a)
	return nil
}

// event logs what happened to a lease.
func (c *Console) event(ctx context.Context, what string, g claims.Guard, attrs ...slog.Attr) {
	c.Log.LogAttrs(ctx, slog.LevelInfo, what, append([]slog.Attr{slog.String("scope", g.Scope), slog.Uint64("token", g.Token)}, attrs...)...)
}
