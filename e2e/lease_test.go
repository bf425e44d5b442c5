package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// lease is what the lease API tells: to a holder about its lease, to anybody about a scope.
type lease struct {
	FenceToken string `json:"fence_token"`
	Scope      string `json:"scope"`
	Token      uint64 `json:"token"`
	Status     string `json:"status"`
	Holder     string `json:"holder"`
	Trusted    int64  `json:"trusted_for_ms"`
	Remaining  int64  `json:"remaining_ms"`
	Cancelled  bool   `json:"cancelled"`
}

// lease reads the reply's body.
func (p reply) lease(t *testing.T) (l lease) {
	t.Helper()
	if err := json.Unmarshal(p.body, &l); err != nil || p.err != nil || p.status != 200 {
		t.Fatalf("want a lease, got %s", p)
	}
	return l
}

// ask makes a request of the lease API; token may be "". A body makes it a POST.
func ask(addr, target, token, body string) reply {
	r := request{target: target, body: body}
	if body == "" {
		r.method = "GET"
	} else {
		r.lines = append(r.lines, "Content-Type: application/json")
	}
	if token != "" {
		r.lines = append(r.lines, "Fence-Token: "+token)
	}
	return send(addr, r)
}

func (s *sidecar) ask(target, token, body string) reply {
	s.t.Helper()
	return ask(s.at("control"), target, token, body)
}

// wanted is the body of an acquire.
func wanted(id, holder string, ttl time.Duration) string {
	return fmt.Sprintf(`{"tenant":"default","id":%q,"holder":%q,"ttl_ms":%d}`, id, holder, ttl.Milliseconds())
}

// acquire takes a scope of the default tenant, waiting while it is held or the store is busy, and returns the token.
func (s *sidecar) acquire(id string, ttl time.Duration) string {
	s.t.Helper()
	var p reply
	eventually(s.t, "scope "+id+" is taken through sidecar "+s.name, func() bool {
		p = s.ask("/v1/leases/acquire", "", wanted(id, "e2e", ttl))
		if slug := p.slug(); p.status != 200 && slug != "held" && slug != "store-unavailable" {
			s.t.Fatalf("acquire: %s", p)
		}
		return p.status == 200
	})
	return p.lease(s.t).FenceToken
}

// release gives a lease back.
func (s *sidecar) release(token string) {
	s.t.Helper()
	s.ask("/v1/leases/release", token, "{}").want(s.t, 200, "")
}

// under is a request with a lease's token.
func (r request) under(token string) request { return r.with("Fence-Token: " + token) }

// leaseOver waits until the store no longer sees the scope of the default tenant live.
func (w *world) leaseOver(id string) {
	w.t.Helper()
	eventually(w.t, "the lease of "+id+" has run out", func() bool {
		l, err := w.store.State(w.t.Context(), claims.ScopeKey("default", id))
		return err == nil && l.Status != claims.LeaseLive
	})
}

// wantFenced fails the test unless the reply is a hand-over's, from which nothing can be learnt of the call.
func (p reply) wantFenced(t *testing.T) {
	t.Helper()
	p.wantFencedAs(t, "lost")
}

// wantFencedAs says how the token itself stands: one of another scope may be live.
func (p reply) wantFencedAs(t *testing.T, lease string) {
	t.Helper()
	p.want(t, 409, "fenced")
	p.wantResult(t, "unknown", "refused")
	var problem struct{ Type, Outcome string }
	json.Unmarshal(p.body, &problem)
	if problem.Type != "https://fence-sidecar.dev/problems/fenced" || problem.Outcome != "unknown" || p.id() != "" ||
		p.header("Fence-Attempt") != "" || p.header("Retry-After") != "" || len(p.values("Idempotent-Replayed")) > 0 {
		t.Errorf("a hand-over tells too much: %s", p)
	}
	if l := p.header("Fence-Lease"); l != lease {
		t.Errorf("Fence-Lease is %q, want %q: %s", l, lease, p)
	}
}

// hold keeps others from writing: in PostgreSQL what the statement locks, in SQLite, where there is one lock, everything.
func (w *world) hold(sql string, args ...any) (release func()) {
	w.t.Helper()
	if w.db.url == "" {
		return lock(w.t, w)
	}
	c, err := pgx.Connect(w.t.Context(), w.db.url)
	if err != nil {
		w.t.Fatal(err)
	}
	tx, err := c.Begin(w.t.Context())
	if err == nil {
		_, err = tx.Exec(w.t.Context(), `SET LOCAL search_path = `+pgx.Identifier{w.db.schema}.Sanitize())
	}
	if err == nil {
		_, err = tx.Exec(w.t.Context(), sql, args...)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := tx.Rollback(w.t.Context()); err != nil {
			w.t.Error(err)
		}
		c.Close(w.t.Context())
	}
}

// holdCalls keeps every record as it is.
func (w *world) holdCalls() (release func()) {
	w.t.Helper()
	return w.hold(`LOCK TABLE calls IN EXCLUSIVE MODE`)
}

// holdLease keeps a scope's lease from being renewed, taken or ended.
func (w *world) holdLease(id string) (release func()) {
	w.t.Helper()
	return w.hold(`SELECT 1 FROM leases WHERE scope = $1 FOR UPDATE`, []byte(claims.ScopeKey("default", id)))
}

// retryAfter is in seconds; 0 where the reply has none.
func (p reply) retryAfter() int {
	n, _ := strconv.Atoi(p.header("Retry-After"))
	return n
}
