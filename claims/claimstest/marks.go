package claimstest

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var markRules = []rule{
	{"lease/cancel-is-told", cancelIsTold},
	{"lease/cancel-takes-from-nobody", cancelTakesFromNobody},
	{"lease/cancel-before-the-first-take", cancelBeforeTheFirstTake},
	{"lease/cancel-of-finished", cancelOfFinished},
	{"lease/cancel-bad-scope", cancelBadScope},
	{"external/mark-only-grows", externalOnlyGrows},
	{"external/no-expiry", externalHasNoExpiry},
	{"external/guards-a-swap", externalGuardsASwap},
	{"external/is-no-lease", externalIsNoLease},
}

func (k *kit) cancel(scope string) claims.Lease {
	k.Helper()
	l, err := k.Backend.Cancel(k.Context(), scope)
	if err != nil {
		k.Fatalf("cancel %s: %v", scope, err)
	}
	return l
}

// cancelIsTold: whoever holds the scope learns of the mark at its next renewal, and so does the next holder.
func cancelIsTold(k *kit) {
	g := k.take(app)
	want := claims.Lease{Guard: g, Status: claims.LeaseLive, Holder: "holder", Remaining: ttl, Cancelled: true}
	k.equal("cancelled", k.cancel(app), want)
	k.equal("cancelled again", k.cancel(app), want)
	l, err := k.Backend.Renew(k.Context(), g, ttl)
	k.ok("renew", err)
	k.equal("renewed", l, want)
	k.ok("release", k.Backend.Release(k.Context(), g))
	l, err = k.Backend.Acquire(k.Context(), app, "next", ttl)
	k.ok("acquire", err)
	if !l.Cancelled {
		k.Errorf("the next holder is not told: %+v", l)
	}
	l, err = k.Backend.State(k.Context(), app)
	k.ok("state", err)
	if !l.Cancelled {
		k.Errorf("the state does not tell: %+v", l)
	}
	other, err := k.Backend.Acquire(k.Context(), "shop:order-2", "holder", ttl)
	k.ok("acquire", err)
	if other.Cancelled {
		k.Errorf("another scope is marked: %+v", other)
	}
	log, err := k.Backend.Log(k.Context(), app)
	k.ok("log", err)
	var events []string
	for _, e := range log {
		events = append(events, e.Event)
	}
	k.equal("log", events, []string{"take", "cancel", "release", "take"})
}

func cancelTakesFromNobody(k *kit) {
	g := k.take(app)
	k.cancel(app)
	k.status("marked", g, claims.LeaseLive)
	k.Advance(ttl)
	k.cancel(app)
	k.status("marked after its end", g, claims.LeaseExpired)
}

func cancelBeforeTheFirstTake(k *kit) {
	k.equal("cancelled", k.cancel(app), claims.Lease{Guard: claims.Guard{Scope: app}, Cancelled: true})
	l, err := k.Backend.State(k.Context(), app)
	k.ok("state", err)
	k.equal("state", l, claims.Lease{Guard: claims.Guard{Scope: app}, Cancelled: true})
	k.status("before the first take", claims.Guard{Scope: app, Token: 1}, claims.LeaseAbsent)
	l, err = k.Backend.Acquire(k.Context(), app, "holder", ttl)
	k.ok("acquire", err)
	k.equal("taken", l, claims.Lease{
		Guard: claims.Guard{Scope: app, Token: 1}, Status: claims.LeaseLive, Holder: "holder", Remaining: ttl, Cancelled: true,
	})
}

func cancelOfFinished(k *kit) {
	g := k.take(app)
	k.ok("finish", k.Backend.Finish(k.Context(), g))
	_, err := k.Backend.Cancel(k.Context(), app)
	k.refused("cancel", err, claims.ErrFinished)
}

func cancelBadScope(k *kit) {
	for _, scope := range []string{"", "shop", "shop:a b", instance, claims.ExternalPrefix + app} {
		_, err := k.Backend.Cancel(k.Context(), scope)
		k.refused("cancel "+scope, err, claims.ErrBadScope)
	}
}

func external(token uint64) claims.Guard {
	return claims.Guard{Scope: claims.ExternalPrefix + app, Token: token}
}

func (k *kit) present(g claims.Guard) claims.Lease {
	k.Helper()
	l, err := k.Backend.Renew(k.Context(), g, ttl)
	if err != nil {
		k.Fatalf("present %s: %v", g, err)
	}
	return l
}

func externalOnlyGrows(k *kit) {
	k.status("never shown", external(7), claims.LeaseAbsent)
	l := k.present(external(7))
	k.equal("shown", l, claims.Lease{Guard: external(7), Status: claims.LeaseLive, Remaining: claims.ExternalTrust})
	k.present(external(7))
	k.status("higher, not shown", external(8), claims.LeaseAbsent)
	k.present(external(1 << 62))
	k.status("highest", external(1<<62), claims.LeaseLive)
	for _, low := range []uint64{7, 1<<62 - 1} {
		k.status("lower", external(low), claims.LeaseSuperseded)
		_, err := k.Backend.Renew(k.Context(), external(low), ttl)
		k.fenced("present a lower one", err, claims.FencedError{Guard: external(low), Status: claims.LeaseSuperseded})
	}
}

func externalHasNoExpiry(k *kit) {
	k.present(external(7))
	k.Advance(8760 * time.Hour)
	k.equal("a year later", k.standing(external(7)), claims.GuardView{Status: claims.LeaseLive, Remaining: claims.ExternalTrust})
}

func externalGuardsASwap(k *kit) {
	sender := k.take(instance)
	k.present(external(7))
	_, err := k.swap(claims.Condition{Guard: external(7), Sender: sender}, claim(call("a"), external(7).Scope, sender))
	k.ok("claim", err)
	_, err = k.swap(claims.Condition{Guard: external(8), Sender: sender}, claim(call("b"), external(7).Scope, sender))
	k.fenced("claim under one not shown", err, claims.FencedError{Guard: external(8), Status: claims.LeaseAbsent})
	k.present(external(8))
	_, err = k.swap(claims.Condition{Guard: external(7), Sender: sender}, claim(call("b"), external(7).Scope, sender))
	k.fenced("claim under a lower one", err, claims.FencedError{Guard: external(7), Status: claims.LeaseSuperseded})
}

// externalIsNoLease: the scope's lease and the scope's external token know nothing of each other.
func externalIsNoLease(k *kit) {
	k.present(external(7))
	if g := k.take(app); g.Token != 1 {
		k.Errorf("the lease's first token is %d", g.Token)
	}
	_, err := k.Backend.Acquire(k.Context(), external(8).Scope, "holder", ttl)
	k.refused("acquire", err, claims.ErrBadScope)
	k.refused("release", k.Backend.Release(k.Context(), external(7)), claims.ErrBadScope)
	k.refused("finish", k.Backend.Finish(k.Context(), external(7)), claims.ErrBadScope)
	for _, scope := range []string{claims.ExternalPrefix, claims.ExternalPrefix + "shop", claims.ExternalPrefix + instance} {
		_, err := k.Backend.Renew(k.Context(), claims.Guard{Scope: scope, Token: 1}, ttl)
		k.refused("present "+scope, err, claims.ErrBadScope)
	}
}
