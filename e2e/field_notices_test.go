package e2e

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Field reports about notices of a call's outcome. What a notice may never do is counted at the gateway: make a send.

const paidNotice = `{"id":"evt_1","outcome":"succeeded","payment":"done","why":"charge.succeeded"}`

// TestField_R65_beforeTheCall: the notice is faster than the claim. It is not acknowledged, so that it comes again, and counts
// then.
func TestField_R65_beforeTheCall(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		w, a, b, g := hushed(t, d, nil)
		p := b.notice("key=r-9", paidNotice)
		if p.want(t, 404, "no-such-call"); p.retryAfter() < 1 {
			t.Errorf("nobody says when it is to come again: %s", p)
		}
		if n := len(w.all()); n != 0 {
			t.Errorf("%d rows of a call that nobody made", n)
		}
		g.wantSends(0)
		send(a.at("raw"), charge("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
		b.notice("key=r-9", paidNotice).wantHeard(t, "taken")
		got := send(a.at("raw"), charge("r-9"))
		got.want(t, 409, "answer-gone")
		got.wantResult(t, "succeeded", "refused")
		g.wantSends(1)
		g.wantExecuted(1)
	})
}

// TestField_R65_neverSeen: a notice about a reference that nobody gave: no row, counted, logged, and not acknowledged.
func TestField_R65_neverSeen(t *testing.T) {
	t.Parallel()
	w, a, b, g := hushed(t, database{}, nil)
	send(a.at("raw"), charge("other", "Prefer: wait=0")).want(t, 504, "in-doubt")
	was := w.record("other")
	for range 2 {
		p := b.notice("reference=r-9", paidNotice)
		if p.want(t, 404, "no-such-call"); p.retryAfter() < 1 {
			t.Errorf("%s", p)
		}
	}
	if n := b.metric(`fence_notices_total{result="orphan"}`); n != "2" {
		t.Errorf("%s orphans are counted", n)
	}
	if now := w.record("other"); now.Version != was.Version || len(w.all()) != 1 {
		t.Errorf("something was written: %+v", w.all())
	}
	g.wantSends(1)
}

// TestField_R65_twice: the same notice, many times at once through two sidecars, by key and by reference: one change.
func TestField_R65_twice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		w, a, b, g := hushed(t, d, nil)
		send(a.at("raw"), charge("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
		was := w.record("r-9")
		var taken, known atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				query := []string{"key=r-9", "reference=" + was.Facts.Reference}[i/2%2]
				for {
					p := []*sidecar{a, b}[i%2].notice(query, paidNotice)
					switch body := string(p.body); {
					case p.status == 503: // its store was busy; it comes again
						continue
					case p.status == 200 && strings.Contains(body, `"result":"taken"`):
						taken.Add(1)
					case p.status == 200 && strings.Contains(body, `"result":"known"`):
						known.Add(1)
					default:
						t.Errorf("%s", p)
					}
					return
				}
			})
		}
		wg.Wait()
		now := w.record("r-9")
		if taken.Load() > 1 || taken.Load()+known.Load() != 20 || now.Version != was.Version+1 || len(now.Evidence) != 1 || now.State != claims.StateSucceeded {
			t.Errorf("%d counted, %d were known; version %d, was %d; %d words", taken.Load(), known.Load(), now.Version, was.Version, len(now.Evidence))
		}
		g.wantSends(1)
		g.wantExecuted(1)
	})
}

// TestField_R65_otherOutcome: a notice that contradicts what was settled. A person decides, the first answer stays, and the notice is
// not acknowledged as if all were well.
func TestField_R65_otherOutcome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		notice string
	}{
		"success, then declined":     {200, `{"id":"evt_1","outcome":"declined"}`},
		"success, then not executed": {200, `{"id":"evt_1","outcome":"not-executed"}`},
		"declined, then success":     {402, `{"id":"evt_1","outcome":"succeeded"}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRaw(t, func(c *rawCall) verdict {
				if c.method() == http.MethodGet || tc.status == 200 {
					return behave
				}
				return c.reply(tc.status, "Content-Type: application/json\r\n", `{"error":"no"}`)
			})
			w := rawWorld(t, settings{gateway: []use{rawUse(g)}, extra: adaOperates(t)})
			a := w.start("A")
			if p := send(a.at("raw"), charge("r-9")); p.status != tc.status {
				t.Fatalf("%s", p)
			}
			was := w.record("r-9")
			for range 2 {
				p := a.notice("key=r-9", tc.notice)
				p.want(t, 409, "notice-conflict")
				if c := p.asCall(t); c.State != "review" || c.Outcome != "unknown" || len(c.Evidence) != 1 || c.Evidence[0].By != "ada" {
					t.Errorf("the present state: %+v", c)
				}
			}
			now := w.record("r-9")
			if now.Version != was.Version+1 || now.Review == nil || !now.Review.Alarm {
				t.Errorf("version %d, was %d; review %+v", now.Version, was.Version, now.Review)
			}
			if now.Answer == nil || was.Answer == nil || now.Answer.Status != tc.status || string(now.Answer.Body) != string(was.Answer.Body) || now.Attempts[0].Outcome != was.Attempts[0].Outcome {
				t.Errorf("the first answer was overwritten: %+v", now.Answer)
			}
			send(a.at("raw"), charge("r-9")).want(t, 409, "needs-review")
			if n := a.metric(`fence_notices_total{result="conflict"}`); n != "2" {
				t.Errorf("%s conflicts are counted", n)
			}
			g.wantSends(1)
		})
	}
}

// TestField_R65_noSend: a notice that nothing was executed opens the call; only the app's own repeat sends it.
func TestField_R65_noSend(t *testing.T) {
	t.Parallel()
	var dropped atomic.Int64
	g := newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet || dropped.Add(1) > 2 {
			return behave
		}
		return c.fin()
	})
	u := rawUse(g)
	u.settle = "1500ms"
	w := rawWorld(t, settings{gateway: []use{u}, extra: adaOperates(t)})
	a := w.start("A")
	r, other := charge("r-9", "Prefer: wait=0"), charge("other", "Prefer: wait=0")
	r.target, other.target = "/v1/searched", "/v1/searched" // a search proves nothing: only the notice tells
	send(a.at("raw"), r).want(t, 504, "in-doubt")
	send(a.at("raw"), other).want(t, 504, "in-doubt")
	eventually(t, "the notice is taken once the gateway can no longer execute the call", func() bool {
		p := a.notice("key=r-9", `{"id":"evt_1","outcome":"not-executed"}`)
		if p.slug() == "notice-early" && p.retryAfter() >= 1 {
			return false
		}
		p.wantHeard(t, "taken")
		return true
	})
	w.wantState("r-9", claims.StateOpen)
	was := g.lookups()
	eventually(t, "the other call was asked about again", func() bool {
		send(a.at("raw"), other).want(t, 504, "in-doubt")
		return g.lookups() >= was+3
	})
	g.wantSends(2) // one of each call
	send(a.at("raw"), r).wantResult(t, "succeeded", "sent")
	g.wantSends(3)
	g.wantExecuted(1)
}
