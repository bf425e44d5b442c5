package claimstest

import (
	"context"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var endRules = []rule{
	{"lease/released-is-free", releasedIsFree},
	{"lease/finished-is-final", finishedIsFinal},
	{"lease/end-refused-by-status", endRefusedByStatus},
	{"lease/release-waits-for-calls", func(k *kit) { waitsForCalls(k, k.Backend.Release) }},
	{"lease/finish-waits-for-calls", func(k *kit) { waitsForCalls(k, k.Backend.Finish) }},
	{"lease/release-waits-for-own-sends", func(k *kit) { waitsForOwnSends(k, k.Backend.Release) }},
	{"lease/finish-waits-for-own-sends", func(k *kit) { waitsForOwnSends(k, k.Backend.Finish) }},
	{"lease/status-by-token", statusByToken},
	{"lease/log", leaseLog},
	{"lease/log-without-takeover-of-finished", logOfFinished},
}

func releasedIsFree(k *kit) {
	g := k.take(app)
	k.ok("release", k.Backend.Release(k.Context(), g))
	k.status("given back", g, claims.LeaseReleased)
	k.Advance(2 * ttl)
	k.status("later", g, claims.LeaseReleased)
	next := k.take(app)
	k.status("the next", next, claims.LeaseLive)
	k.status("the first", g, claims.LeaseSuperseded)
}

func finishedIsFinal(k *kit) {
	g := k.take(app)
	k.ok("finish", k.Backend.Finish(k.Context(), g))
	for _, d := range []time.Duration{0, ttl, 8760 * time.Hour} {
		k.Advance(d)
		_, err := k.Backend.Acquire(k.Context(), app, "other", ttl)
		k.refused("acquire", err, claims.ErrFinished)
		k.status("finished", g, claims.LeaseFinished)
	}
}

func endRefusedByStatus(k *kit) {
	for status, g := range k.ended() {
		want := claims.FencedError{Guard: g, Status: status}
		k.fenced("release", k.Backend.Release(k.Context(), g), want)
		k.fenced("finish", k.Backend.Finish(k.Context(), g), want)
		k.status("after refused ends", g, status)
	}
}

type end = func(context.Context, claims.Guard) error

// waitsForCalls: what is in doubt under a scope keeps it from ending.
func waitsForCalls(k *kit, end end) {
	g := k.take(app)
	r := k.claim(call("c"), app, claims.Guard{Scope: instance, Token: 1})
	k.claim(call("elsewhere"), "shop:order-2", claims.Guard{Scope: instance, Token: 1})
	k.refused("end with a pending call", end(k.Context(), g), claims.ErrCallsInFlight)
	r.State = claims.StateUnknown
	r = k.put(r)
	k.refused("end with a call in doubt", end(k.Context(), g), claims.ErrCallsInFlight)
	k.status("after refusals", g, claims.LeaseLive)
	r.State = claims.StateReview
	r = k.put(r)
	r.State = claims.StateSucceeded
	k.put(r)
	k.ok("end with settled calls", end(k.Context(), g))
}

// waitsForOwnSends: a pending attempt sent under a lease keeps it; one in doubt does not, as its sender gave up.
func waitsForOwnSends(k *kit, end end) {
	g := k.take(instance)
	r := k.claim(call("c"), app, g)
	k.claim(call("elsewhere"), app, claims.Guard{Scope: instance, Token: g.Token + 1})
	k.refused("end while sending", end(k.Context(), g), claims.ErrCallsInFlight)
	r.State = claims.StateUnknown
	k.put(r)
	k.ok("end after giving up", end(k.Context(), g))
}

func statusByToken(k *kit) {
	k.status("never taken", claims.Guard{Scope: app, Token: 1}, claims.LeaseAbsent)
	first := k.take(app)
	k.status("no token", claims.Guard{Scope: app}, claims.LeaseAbsent)
	k.status("not granted yet", claims.Guard{Scope: app, Token: 2}, claims.LeaseAbsent)
	k.Advance(ttl)
	k.status("expired", first, claims.LeaseExpired)
	second := k.take(app)
	k.ok("finish", k.Backend.Finish(k.Context(), second))
	k.status("finished by it", second, claims.LeaseFinished)
	k.status("before the one that finished", first, claims.LeaseSuperseded)
	k.status("after the one that finished", claims.Guard{Scope: app, Token: 3}, claims.LeaseAbsent)
}

// line is one event as the log should have it now.
func (k *kit) line(g claims.Guard, event, holder string) claims.LeaseEvent {
	k.Helper()
	return claims.LeaseEvent{Guard: g, Event: event, Holder: holder, At: k.get(call("none"), claims.Guard{}).Now}
}

func leaseLog(k *kit) {
	var want []claims.LeaseEvent
	take := func(holder, event string) claims.Guard {
		l, err := k.Backend.Acquire(k.Context(), app, holder, ttl)
		k.ok("acquire", err)
		want = append(want, k.line(l.Guard, event, holder))
		return l.Guard
	}
	g := take("a", "take")
	k.Advance(time.Second)
	_, err := k.Backend.Renew(k.Context(), g, ttl)
	k.ok("renew", err)
	_, err = k.Backend.Acquire(k.Context(), app, "b", ttl)
	k.refused("acquire", err, claims.ErrHeld)
	k.Advance(ttl)
	g = take("b", "takeover")
	k.Advance(time.Second)
	k.ok("release", k.Backend.Release(k.Context(), g))
	want = append(want, k.line(g, "release", "b"))
	k.Advance(2 * ttl)
	g = take("c", "take")
	k.ok("finish", k.Backend.Finish(k.Context(), g))
	want = append(want, k.line(g, "finish", "c"))
	k.take("shop:other")
	log, err := k.Backend.Log(k.Context(), app)
	k.ok("log", err)
	k.equal("log", log, want)
}

func logOfFinished(k *kit) {
	g := k.take(app)
	k.ok("finish", k.Backend.Finish(k.Context(), g))
	k.Advance(2 * ttl)
	k.Backend.Acquire(k.Context(), app, "other", ttl)
	k.Backend.Renew(k.Context(), g, ttl)
	k.Backend.Release(k.Context(), g)
	k.Backend.Finish(k.Context(), g)
	log, err := k.Backend.Log(k.Context(), app)
	k.ok("log", err)
	if n := len(log); n != 2 || log[n-1].Event != "finish" {
		k.Errorf("the log of a finished scope goes on: %+v", log)
	}
}
