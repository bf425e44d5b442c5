package claimstest

import (
	"errors"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var lossRules = []rule{
	{"loss/quarantine", lossQuarantine},
	{"loss/quarantine-lets-evidence-pass", lossLetsEvidencePass},
	{"loss/leases-end", lossEndsLeases},
	{"loss/tokens-jump", lossJumpsTokens},
	{"loss/get-tells", lossIsTold},
	{"loss/claim-of-an-earlier-era", lossRefusesOldClaims},
}

// CannotLose excepts the rules of a store that cannot lose what it acknowledged in any way that it could notice.
func CannotLose(reason string) map[string]string {
	out := map[string]string{}
	for _, r := range lossRules {
		out[r.name] = reason
	}
	return out
}

func (k *kit) quarantined(what string, err error, left time.Duration) {
	k.Helper()
	q, ok := errors.AsType[*claims.QuarantineError](err)
	if !ok || q.Left != left {
		k.Errorf("%s: %v, want a quarantine of %s", what, err, left)
	} else if !claims.Refused(err) {
		k.Errorf("%s: %v does not count as refused", what, err)
	}
}

func lossQuarantine(k *kit) {
	sender, g := k.take(instance), k.take(app)
	r := k.put(record(call("c"), claims.StateOpen))
	window := k.Lose()
	for _, left := range []time.Duration{window, tick} { // at its start and just before its end
		_, err := k.Backend.Acquire(k.Context(), "shop:order-2", "holder", ttl)
		k.quarantined("acquire", err, left)
		_, err = k.Backend.Renew(k.Context(), g, ttl)
		k.quarantined("renew", err, left)
		k.quarantined("release", k.Backend.Release(k.Context(), g), left)
		k.quarantined("finish", k.Backend.Finish(k.Context(), g), left)
		_, err = k.Backend.Renew(k.Context(), external(7), ttl)
		k.quarantined("present an external token", err, left)
		for _, c := range []claims.Condition{{Guard: g}, {Sender: sender}} {
			_, err = k.swap(c, claims.Write{Version: r.Version, Next: r})
			k.quarantined("swap", err, left)
		}
		if v := k.get(r.Key, g); v.Quarantine != left {
			k.Errorf("get tells a quarantine of %s, want %s", v.Quarantine, left)
		}
		k.Advance(min(left, window-tick))
	}
	if v := k.get(r.Key, g); v.Quarantine != 0 {
		k.Errorf("get tells a quarantine of %s after its end", v.Quarantine)
	}
	g = k.take("shop:order-2")
	_, err := k.swap(claims.Condition{Guard: g}, claims.Write{Version: r.Version, Next: r})
	k.ok("swap after the quarantine", err)
}

// lossLetsEvidencePass: what is learnt of a call in a quarantine is kept.
func lossLetsEvidencePass(k *kit) {
	r := k.put(record(call("c"), claims.StateUnknown))
	k.Lose()
	r.State = claims.StateSucceeded
	k.put(r)
	k.put(record(call("put-back"), claims.StateUnknown))
	keys, err := k.Backend.Unsettled(k.Context(), claims.Sweep{Limit: 10, Base: time.Second, Max: time.Second})
	k.ok("sweep", err)
	k.equal("swept", keys, []claims.Key{call("put-back")})
	_, err = k.Backend.State(k.Context(), app)
	k.ok("state", err)
}

func lossEndsLeases(k *kit) {
	g := k.take(app)
	k.take(instance)
	k.Lose()
	k.equal("members", k.members(), []claims.Member(nil))
	k.status("taken before", g, claims.LeaseExpired)
	k.status("granted and lost", claims.Guard{Scope: app, Token: g.Token + 1}, claims.LeaseAbsent)
	l, err := k.Backend.State(k.Context(), app)
	k.ok("state", err)
	if l.Status != claims.LeaseExpired {
		k.Errorf("state says %s", l.Status)
	}
}

func lossJumpsTokens(k *kit) {
	g := k.take(app)
	k.Advance(k.Lose())
	if next := k.take(app); next.Token != g.Token+1+claims.TokenJump {
		k.Errorf("after token %d and a loss comes %d", g.Token, next.Token)
	}
	k.cancel("shop:cancelled")
	for _, scope := range []string{"shop:never-seen", "shop:cancelled"} {
		if first := k.take(scope); first.Token != 1+claims.TokenJump {
			k.Errorf("the first token of %s after a loss is %d", scope, first.Token)
		}
	}
	k.Advance(ttl)
	if next := k.take(app); next.Token != g.Token+2+claims.TokenJump {
		k.Errorf("the jump was made twice: %d", next.Token)
	}
	k.Advance(k.Lose() + ttl)
	if next := k.take(app); next.Token != g.Token+3+2*claims.TokenJump {
		k.Errorf("after two losses comes %d", next.Token)
	}
}

func lossIsTold(k *kit) {
	k.put(record(call("old"), claims.StateOpen))
	if v := k.get(call("old"), claims.Guard{}); v.Era != 0 || v.Loss != nil {
		k.Errorf("before any loss: era %d, loss %v", v.Era, v.Loss)
	}
	k.Advance(time.Hour)
	k.Lose()
	at := k.get(call("none"), claims.Guard{}).Now
	told := func(what string, key claims.Key, want bool) {
		k.Helper()
		v := k.get(key, claims.Guard{})
		if v.Era != 1 || (v.Loss != nil) != want {
			k.Errorf("%s: era %d, loss %v", what, v.Era, v.Loss)
		}
		if l := v.Loss; l != nil && (l.At != at || !l.From.Store.Before(at.Store) || l.From.IsZero() || l.From.Wall.IsZero()) {
			k.Errorf("%s: a loss from %v to %v, noticed at %v", what, l.From, l.At, at)
		}
	}
	fresh := record(call("new"), claims.StateOpen)
	fresh.Era = 1
	k.put(fresh)
	told("record of before", call("old"), true)
	told("no record", call("none"), true)
	told("record of after", call("new"), false)
	k.Advance(claims.LossWatch)
	told("no record, a week later", call("none"), true)
	k.Advance(tick)
	told("no record, more than a week later", call("none"), false)
	told("record of before, more than a week later", call("old"), true)
}

// lossRefusesOldClaims: a claim that was decided before the loss was known is decided again.
func lossRefusesOldClaims(k *kit) {
	r := k.put(record(call("c"), claims.StateOpen))
	k.Lose()
	w := claim(call("c"), app, claims.Guard{})
	w.Version = r.Version
	s, err := k.swap(claims.Condition{}, w)
	k.refused("claim of an earlier era", err, claims.ErrLost)
	k.equal("as it stands", s.Records, []claims.Record{r})
	s, err = k.swap(claims.Condition{}, claim(call("none"), app, claims.Guard{}))
	k.refused("fresh claim of an earlier era", err, claims.ErrLost)
	k.equal("as it stands", s.Records, []claims.Record{{}})
	w.Next.Era = 1
	s, err = k.swap(claims.Condition{}, w)
	k.ok("claim of this era", err)
	if len(s.Records) != 1 || s.Records[0].Era != 1 {
		k.Errorf("written: %+v", s.Records)
	}
}
