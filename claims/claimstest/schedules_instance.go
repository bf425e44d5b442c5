package claimstest

import (
	"fmt"
	"iter"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// patience is how often an instance comes back to what it could not have.
const patience = 2

// instance does what a sidecar does for one request of an application that holds a lease: it takes the scope, reads, decides,
// claims, looks at the fence, sends, settles, and ends the scope.
func (p *play) instance(proc *process, r role) iter.Seq[string] {
	return func(yield func(string) bool) {
		var guard claims.Guard
		switch {
		case r.shared:
			guard = p.shared(claims.ScopeKey(p.tenant, r.scope))
		case r.scope != "":
			if guard = p.take(proc, r, yield); guard.IsZero() {
				return
			}
		}
		for range patience + 1 {
			done, alive := p.request(proc, r, guard, yield)
			if !alive {
				return
			}
			if done {
				break
			}
			if !yield("waits") {
				return
			}
		}
		if guard.IsZero() || r.shared || !yield("ends its scope") {
			return
		}
		p.leave(guard, r)
	}
}

// take acquires the role's scope, as an application does by the lease API. Zero: it is not to be had.
func (p *play) take(proc *process, r role, yield func(string) bool) (g claims.Guard) {
	m := p.m
	scope := claims.ScopeKey(p.tenant, r.scope)
	for range patience + 1 {
		if !yield("takes its scope") {
			return g
		}
		l, err := m.h.Backend.Acquire(m.ctx, scope, fmt.Sprint(proc.n), ttl)
		same("acquire", err, m.w.acquire(scope, fmt.Sprint(proc.n), ttl))
		if err == nil {
			if l.Guard != m.w.current(scope) {
				wrong("every token is granted once (P1)", "granted %s, want %s", l.Guard, m.w.current(scope))
			}
			return l.Guard
		}
	}
	return g
}

// shared is the token of an application that keeps its lease while the sidecars come and go.
func (p *play) shared(scope string) claims.Guard {
	m := p.m
	if m.w.scopes[scope] == nil {
		_, err := m.h.Backend.Acquire(m.ctx, scope, "app", 8*freeze)
		same("acquire", err, m.w.acquire(scope, "app", 8*freeze))
	}
	return m.w.current(scope)
}

func (p *play) leave(g claims.Guard, r role) {
	m := p.m
	as, end := claims.LeaseReleased, m.h.Backend.Release
	if r.finish {
		as, end = claims.LeaseFinished, m.h.Backend.Finish
	}
	err := end(m.ctx, g)
	same("the end of a lease", err, m.w.finish(g, as))
}

// request works on one request until it is answered. done: it need not be repeated; alive: the instance goes on.
func (p *play) request(proc *process, r role, g claims.Guard, yield func(string) bool) (done, alive bool) {
	m := p.m
	j := p.job(proc, r, g)
	proc.jobs[0] = j
	for proc.jobs[0] == j {
		if !yield(stepName(j)) {
			return false, false
		}
		switch j.stage {
		case waiting:
			p.carry(j)
			continue
		case fresh:
			if m.decide(j); j.dec.Action == claims.Reconcile {
				if !p.look(j, yield) {
					return false, false
				}
			}
			continue
		}
		m.progress(j, step{})
	}
	why := j.dec.Refusal
	return why == nil || why.Reason == claims.Fenced || why.Reason == claims.ScopeFinished || why.Reason == claims.NothingToUndo, true
}

func stepName(j *job) string {
	switch j.stage {
	case fresh:
		return "reads"
	case decided:
		return "writes " + j.dec.Action.String()
	case pending:
		return "looks at its fence and sends"
	case waiting:
		return "waits for the gateway"
	}
	return "settles"
}

// look asks the gateway and applies the verdict, with time for others in between.
func (p *play) look(j *job, yield func(string) bool) bool {
	if !yield("looks the call up") {
		return false
	}
	key := j.dec.Look
	l := p.ask(key)
	if l == nil {
		return true
	}
	if !yield("applies the verdict: " + l.verdict.Kind.String()) {
		return false
	}
	p.m.lookup = l
	p.m.conclude()
	return true
}

// job is the role's request.
func (p *play) job(proc *process, r role, g claims.Guard) *job {
	m := p.m
	j := &job{p: proc}
	q := claims.Request{
		Key: claims.Key{Tenant: p.tenant, Call: r.call}, Revision: 1, Guard: g, Facts: m.gateway.facts(), Policy: m.gateway.policy(),
	}
	if r.undoes != "" {
		j.target = claims.Key{Tenant: p.tenant, Call: r.undoes}
		q.Key.Call, q.Undoes = "undo "+r.undoes, r.undoes
	}
	if q.Guard.IsZero() {
		proc.own = m.hold(proc.scope())
		q.Guard = proc.own
	}
	q.Facts.GatewayKey = fmt.Sprintf("%s#%d", q.Key, q.Revision)
	q.Facts.Reference = q.Facts.GatewayKey
	q.Canonical, q.CanonicalVersion = fmt.Append(nil, q.Key), 1
	j.req, j.name = q, fmt.Sprintf("%c %q", 'A'+proc.n, q.Key.Call)
	return j
}

// carry brings the job's request to the gateway and its answer back; what is no longer under way was dropped, or executed late.
func (p *play) carry(j *job) {
	g := &p.m.gateway
	for i, x := range g.net {
		if x.job != j || x.rec.Claim != j.mine.Claim {
			continue
		}
		g.net = append(g.net[:i:i], g.net[i+1:]...)
		word, _ := g.arrive(x, 0, p.m.w.now.Store)
		if p.muted < p.mute {
			p.muted++
			word = claims.Sent{Cause: "timeout"}
		}
		j.stage, j.word = got, word
		return
	}
	j.stage, j.word = got, claims.Sent{Cause: "timeout"}
}
