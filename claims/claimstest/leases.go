package claimstest

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var leaseRules = []rule{
	{"lease/tokens-count-takes", tokensCountTakes},
	{"lease/tokens-count-across-release", tokensCountAcrossRelease},
	{"lease/held-is-not-granted", heldIsNotGranted},
	{"lease/free-after-expiry", freeAfterExpiry},
	{"lease/expired-at-expiry", expiredAtExpiry},
	{"lease/wall-clock-decides-nothing", wallClockDecidesNothing},
	{"lease/renewal-extends", renewalExtends},
	{"lease/renewal-never-shortens", renewalNeverShortens},
	{"lease/expired-is-not-renewed", expiredIsNotRenewed},
	{"lease/renewal-refused-by-status", renewalRefusedByStatus},
	{"lease/scopes-are-bytes", scopesAreBytes},
	{"lease/bad-scope", badScope},
	{"lease/state", leaseState},
}

const (
	app      = "shop:order-1"
	instance = claims.InstancePrefix + "6c1d6505"
)

func tokensCountTakes(k *kit) {
	for _, scope := range []string{app, instance} {
		for want := uint64(1); want <= 3; want++ {
			g := k.take(scope)
			k.equal("guard", g, claims.Guard{Scope: scope, Token: want})
			k.Advance(ttl)
		}
	}
}

func tokensCountAcrossRelease(k *kit) {
	for want := uint64(1); want <= 3; want++ {
		g := k.take(app)
		if g.Token != want {
			k.Errorf("take %d has token %d", want, g.Token)
		}
		k.ok("release", k.Backend.Release(k.Context(), g))
	}
}

func heldIsNotGranted(k *kit) {
	g := k.take(app)
	k.Advance(ttl - tick)
	for _, holder := range []string{"holder", "other"} {
		_, err := k.Backend.Acquire(k.Context(), app, holder, ttl)
		k.refused("acquire by "+holder, err, claims.ErrHeld)
	}
	k.status("after refused takes", g, claims.LeaseLive)
}

func freeAfterExpiry(k *kit) {
	old := k.take(app)
	k.Advance(ttl)
	g := k.take(app)
	k.status("the new one", g, claims.LeaseLive)
	k.status("the old one", old, claims.LeaseSuperseded)
}

func expiredAtExpiry(k *kit) {
	g := k.take(app)
	k.Advance(ttl - tick)
	k.equal("just before", k.standing(g), claims.GuardView{Status: claims.LeaseLive, Remaining: tick})
	k.Advance(tick)
	k.equal("at its expiry", k.standing(g), claims.GuardView{Status: claims.LeaseExpired})
	_, err := k.swap(claims.Condition{Guard: g}, claim(call("c"), app, claims.Guard{}))
	k.fenced("swap at the expiry", err, claims.FencedError{Guard: g, Status: claims.LeaseExpired})
}

func wallClockDecidesNothing(k *kit) {
	g := k.take(app)
	for _, d := range []time.Duration{240 * time.Hour, -480 * time.Hour} {
		k.StepWall(d)
		k.status("after a step of the wall clock", g, claims.LeaseLive)
		_, err := k.Backend.Acquire(k.Context(), app, "other", ttl)
		k.refused("acquire", err, claims.ErrHeld)
	}
	k.Advance(ttl)
	k.status("after its time", g, claims.LeaseExpired)
}

func renewalExtends(k *kit) {
	g := k.take(app)
	for range 3 {
		k.Advance(ttl - time.Second)
		l, err := k.Backend.Renew(k.Context(), g, ttl)
		k.ok("renew", err)
		k.equal("renewed", l, claims.Lease{Guard: g, Status: claims.LeaseLive, Holder: "holder", Remaining: ttl})
	}
	k.Advance(ttl - tick)
	k.status("before the new expiry", g, claims.LeaseLive)
	k.Advance(tick)
	k.status("at the new expiry", g, claims.LeaseExpired)
}

func renewalNeverShortens(k *kit) {
	g := k.take(app)
	l, err := k.Backend.Renew(k.Context(), g, time.Second)
	k.ok("renew for less", err)
	if l.Remaining != ttl {
		k.Errorf("after a renewal for less, %s remain of %s", l.Remaining, ttl)
	}
	k.Advance(2 * time.Second)
	k.status("after the shorter time", g, claims.LeaseLive)
}

func expiredIsNotRenewed(k *kit) {
	g := k.take(app)
	k.Advance(ttl)
	_, err := k.Backend.Renew(k.Context(), g, ttl)
	k.fenced("renew at the expiry", err, claims.FencedError{Guard: g, Status: claims.LeaseExpired})
	k.status("after it", g, claims.LeaseExpired)
}

// ended brings about a guard of every status but live.
func (k *kit) ended() map[claims.LeaseStatus]claims.Guard {
	k.Helper()
	dead := map[claims.LeaseStatus]claims.Guard{claims.LeaseAbsent: {Scope: "shop:never", Token: 1}}
	dead[claims.LeaseReleased] = k.take("shop:released")
	k.ok("release", k.Backend.Release(k.Context(), dead[claims.LeaseReleased]))
	dead[claims.LeaseFinished] = k.take("shop:finished")
	k.ok("finish", k.Backend.Finish(k.Context(), dead[claims.LeaseFinished]))
	dead[claims.LeaseExpired] = k.take("shop:expired")
	dead[claims.LeaseSuperseded] = k.take("shop:superseded")
	k.Advance(ttl)
	k.take("shop:superseded")
	return dead
}

func renewalRefusedByStatus(k *kit) {
	for status, g := range k.ended() {
		_, err := k.Backend.Renew(k.Context(), g, ttl)
		k.fenced("renew", err, claims.FencedError{Guard: g, Status: status})
	}
	g := k.take(app)
	g.Token++ // not granted yet
	_, err := k.Backend.Renew(k.Context(), g, ttl)
	k.fenced("renew", err, claims.FencedError{Guard: g, Status: claims.LeaseAbsent})
}

func scopesAreBytes(k *kit) {
	for _, scope := range []string{"shop:a", "shop:A", "Shop:a", "shop:a%20", "shop:%C3%A9", "shop:e%CC%81", "sho:pa"} {
		if g := k.take(scope); g.Token != 1 {
			k.Errorf("%s shares its token with another scope: %d", scope, g.Token)
		}
	}
}

func badScope(k *kit) {
	for _, scope := range []string{
		"", ":", "shop", "shop:", ":a", "shop:a:b", "shop:%c3%a9", "shop:a b", "shop:%61", "@instance:", "@instance", "@Instance:a",
	} {
		_, err := k.Backend.Acquire(k.Context(), scope, "holder", ttl)
		k.refused("acquire "+scope, err, claims.ErrBadScope)
	}
}

func leaseState(k *kit) {
	state := func(what string, want claims.Lease) {
		k.Helper()
		l, err := k.Backend.State(k.Context(), app)
		k.ok("state", err)
		k.equal(what, l, want)
	}
	state("never taken", claims.Lease{Guard: claims.Guard{Scope: app}})
	want := claims.Lease{Guard: k.take(app), Status: claims.LeaseLive, Holder: "holder", Remaining: ttl}
	state("taken", want)
	k.Advance(ttl)
	want.Status, want.Remaining = claims.LeaseExpired, 0
	state("expired", want)
	want.Guard = k.take(app)
	k.ok("release", k.Backend.Release(k.Context(), want.Guard))
	want.Status = claims.LeaseReleased
	state("released", want)
	want.Guard = k.take(app)
	k.ok("finish", k.Backend.Finish(k.Context(), want.Guard))
	want.Status = claims.LeaseFinished
	state("finished", want)
}
