package claimstest

import (
	"fmt"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// gateway counts what it executes. It answers a repeat of a key with what it stored under it, for as long as it keeps keys.
type gateway struct {
	storesFailures, probe, noKeys, search, noLookup bool

	keys     map[string]*gatewayKey
	executed map[claims.Key]int // by call, over all revisions
	undone   map[claims.Key][]executedUndo
	net      []*message
}

type executedUndo struct {
	call claims.Key
	part string
}

type gatewayKey struct {
	first, at, since time.Time // of the first claim whose request came in, of the execution, of the first answer
	executed, failed bool
	stored           claims.Outcome
}

// message is a request under way. Its sender may have given up, or be dead.
type message struct {
	job    *job
	rec    claims.Record
	target claims.Key
	part   string
}

func newGateway(n int) gateway {
	return gateway{
		storesFailures: n%2 == 0, probe: n/2%3 < 2, noKeys: n%13 == 12, search: n/6%5 == 3, noLookup: n/6%5 == 4,
		keys: map[string]*gatewayKey{}, executed: map[claims.Key]int{}, undone: map[claims.Key][]executedUndo{},
	}
}

func (g *gateway) kind() string {
	return fmt.Sprintf("stores failures %v, probe %v, no keys %v, search only %v, no lookup %v",
		g.storesFailures, g.policy().Probe, g.noKeys, g.search, g.noLookup)
}

func (g *gateway) facts() claims.Facts {
	f := claims.Facts{Gateway: "sim", Endpoint: "https://sim.example", Retention: keepKeys, SettleAfter: 2 * unit}
	if g.noKeys {
		f.Retention = 0
	}
	return f
}

func (g *gateway) policy() claims.Policy {
	return claims.Policy{AttemptTimeout: unit, MaxAttempts: 4, Probe: g.probe && !g.noKeys, Margin: margin}
}

func (g *gateway) rules() claims.LookupRules {
	return claims.LookupRules{
		Proves: !g.search && !g.noLookup, Misses: 1, MissGap: unit, Keyed: !g.noKeys, FirstStored: g.storesFailures && !g.noKeys,
		NoWay: g.noLookup && !g.policy().Probe,
	}
}

func (g *gateway) key(name string) *gatewayKey {
	if g.keys[name] == nil {
		g.keys[name] = &gatewayKey{}
	}
	return g.keys[name]
}

// send takes a request on its way.
func (g *gateway) send(j *job, now time.Time) {
	k := g.key(j.mine.Facts.GatewayKey)
	if !k.first.IsZero() && !g.noKeys && !now.Before(k.first.Add(keepKeys)) {
		wrong("nothing is sent past the key's retention", "%s sends %s after its first claim", j.name, now.Sub(k.first))
	}
	g.net = append(g.net, &message{job: j, rec: j.mine, target: j.target, part: j.req.Part})
}

// limit is when a request can no longer be executed.
func (x *message) limit() time.Time { return x.rec.Deadline.Add(unit) }

// arrive is what a request comes to; nothing of it is told yet.
func (g *gateway) arrive(x *message, what int, at time.Time) (claims.Sent, string) {
	k := g.key(x.rec.Facts.GatewayKey)
	if k.stored != claims.Unknown && !g.noKeys && at.Sub(k.since) < keepKeys {
		return answered(k.stored, true), "is replayed " + k.stored.String()
	}
	what = pick(what, 0, 0, 0, 0, 1, 2, 3, 4)
	if k.first.IsZero() && what != 2 { // what is refused leaves no key behind
		k.first = x.rec.Deadline.Add(-unit)
	}
	switch what {
	case 0:
		g.execute(x, k, at)
		return answered(claims.Succeeded, !g.noKeys), "is EXECUTED"
	case 1:
		k.failed = true
		if g.storesFailures {
			k.stored, k.since = claims.Declined, at
		}
		return answered(claims.Declined, g.storesFailures && !g.noKeys), "is declined"
	case 2:
		return claims.Sent{Outcome: claims.NotExecuted, Refused: true, Answer: body("refused")}, "is refused"
	case 3:
		return claims.Sent{InUse: true, Cause: "in-use", Answer: body("in use")}, "is told that the key is in use"
	}
	return claims.Sent{Cause: "unlisted", Answer: body("?")}, "gets an unlisted answer"
}

func (g *gateway) execute(x *message, k *gatewayKey, at time.Time) {
	call := x.rec.Key
	g.executed[call]++
	k.executed, k.at, k.stored, k.since = true, at, claims.Succeeded, at
	if g.executed[call] > 1 {
		wrong("a call is executed once", "%q was executed again, in revision %d", call.Call, x.rec.Revision)
	}
	if x.target == (claims.Key{}) {
		return
	}
	if g.executed[x.target] == 0 {
		wrong("only what was executed is undone (P5)", "%q undid %q", call.Call, x.target.Call)
	}
	for _, u := range g.undone[x.target] {
		if u.part == "" || x.part == "" || u.part == x.part {
			wrong("a call is undone once, or once for each part", "%q undid %q after %q", call.Call, x.target.Call, u.call.Call)
		}
	}
	g.undone[x.target] = append(g.undone[x.target], executedUndo{call, x.part})
}

func body(text string) *claims.Answer {
	return &claims.Answer{Status: 200, Body: []byte(text)}
}

func answered(o claims.Outcome, stored bool) claims.Sent {
	return claims.Sent{Outcome: o, Stored: stored, Answer: body(o.String())}
}

// findings are what a lookup may see now.
func (g *gateway) findings(r *claims.Record, now time.Time) []claims.FindingKind {
	k := g.key(r.Facts.GatewayKey)
	switch {
	case g.noLookup:
		return []claims.FindingKind{claims.CouldNotTell}
	case k.executed && now.Sub(k.at) >= unit:
		return []claims.FindingKind{claims.FoundDone, claims.FoundDone, claims.CouldNotTell}
	case k.executed && k.failed:
		return []claims.FindingKind{claims.FoundFailed, claims.Missed, claims.FoundDone}
	case k.executed:
		return []claims.FindingKind{claims.Missed, claims.FoundDone}
	case k.failed:
		return []claims.FindingKind{claims.FoundFailed, claims.Missed}
	}
	return []claims.FindingKind{claims.Missed, claims.Missed, claims.Missed, claims.CouldNotTell}
}

// carry brings a request to the gateway, and its answer back, or loses one of them.
func (m *callMachine) carry(s step) {
	g := &m.gateway
	if len(g.net) == 0 {
		return
	}
	i := s.a % len(g.net)
	x := g.net[i]
	g.net = append(g.net[:i:i], g.net[i+1:]...)
	if s.b%11 == 10 {
		m.say("the request of %s is dropped", x.job.name)
		return
	}
	m.say("the request of %s ", x.job.name)
	word, what := g.arrive(x, s.c, m.w.now.Store)
	m.add("%s", what)
	if s.b%4 == 0 || x.job.stage != waiting || x.job.mine.Claim != x.rec.Claim {
		m.add(", its answer is lost")
		return
	}
	if word.Outcome == claims.Succeeded && s.b%3 == 0 {
		word.Payment = claims.PaymentPending
	}
	x.job.stage, x.job.word = got, word
}

// expire ends what is under way before the time comes in which nothing of it may be executed: dropped, or executed late.
func (m *callMachine) expire(until time.Time, n int) {
	g := &m.gateway
	var left []*message
	for _, x := range g.net {
		switch at := x.limit(); {
		case until.Before(at):
			left = append(left, x)
		case n%3 == 0:
			m.say("the request of %s is dropped", x.job.name)
		default:
			m.say("the request of %s, late by %s, ", x.job.name, at.Sub(x.rec.Deadline))
			at = maxTime(at.Add(-tick), m.w.now.Store)
			_, what := g.arrive(x, 0, at)
			m.add("%s, its answer is lost", what)
		}
	}
	g.net = left
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
