package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// shownCall is what the command prints of a call.
type shownCall struct {
	Tenant, Call, State, Outcome, Gateway, Route, GatewayKey, Review string
	Attempts                                                         []struct {
		Number         int
		Outcome, Cause string
		Wrote          bool
	}
	Evidence []struct{ Source, Outcome, By, Note string }
}

// lostPayment is a world with a call of a route that has neither lookup nor probe, whose answer was lost.
func lostPayment(t *testing.T, key, settle, retention string, status int, slug string) (*world, *sidecar, *rawGateway, request) {
	t.Helper()
	var seen atomic.Bool
	g := newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet || seen.Swap(true) {
			return behave
		}
		c.book()
		return c.fin()
	})
	u := rawUse(g)
	u.settle, u.retention = settle, retention
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	r := plain(key, "/plain/pay")
	send(a.at("raw"), r).want(t, status, slug)
	return w, a, g, r
}

func (w *world) shown(args ...string) (out []shownCall) {
	w.t.Helper()
	stdout, stderr, ok := w.cli(append([]string{"calls"}, args...)...)
	if !ok {
		w.t.Fatalf("calls %v: %s", args, stderr)
	}
	d := json.NewDecoder(strings.NewReader(stdout))
	for d.More() {
		var c shownCall
		if err := d.Decode(&c); err != nil {
			w.t.Fatalf("calls %v: %v in %s", args, err, stdout)
		}
		out = append(out, c)
	}
	return out
}

// TestCalls_inDoubt: list, show and explain of a call in doubt.
func TestCalls_inDoubt(t *testing.T) {
	const key = "charge:Käufer \u202eevil\u202c"
	w, _, g, _ := lostPayment(t, key, "10m", "24h", 504, "in-doubt")
	for _, args := range [][]string{{"list", "--json"}, {"show", key}, {"list", "--json", "--state", "unknown"}, {"list", "--json", "--tenant", "default"}} {
		cs := w.shown(args...)
		if len(cs) != 1 || cs[0].Call != key || cs[0].State != "unknown" || cs[0].Outcome != "unknown" || cs[0].Route != "plain" ||
			len(cs[0].Attempts) != 1 || !cs[0].Attempts[0].Wrote || cs[0].Attempts[0].Cause == "" {
			t.Errorf("%v: %+v", args, cs)
		}
		if len(cs) == 0 {
			continue
		}
		if got := g.sends("")[0].header("Idempotency-Key"); cs[0].GatewayKey != got {
			t.Errorf("%v shows gateway key %q, the gateway saw %q", args, cs[0].GatewayKey, got)
		}
	}
	if cs := w.shown("list", "--json", "--state", "succeeded"); len(cs) != 0 {
		t.Errorf("want none, got %+v", cs)
	}
	if cs := w.shown("list", "--json", "--tenant", "other"); len(cs) != 0 {
		t.Errorf("want none, got %+v", cs)
	}
	for _, args := range [][]string{{"list"}, {"explain", key}} {
		out, _, ok := w.cli(append([]string{"calls"}, args...)...)
		if !ok || !strings.Contains(out, "unknown") {
			t.Errorf("%v: %s", args, out)
		}
		if strings.ContainsRune(out, '\u202e') {
			t.Errorf("%v prints a character that turns the line around: %q", args, out)
		}
	}
	if out, _, _ := w.cli("calls", "explain", key); !strings.Contains(out, "in doubt") || !strings.Contains(out, "Next: ") {
		t.Errorf("explain says too little: %s", out)
	}
	if _, errs, ok := w.cli("calls", "show", "nobody"); ok || !strings.Contains(errs, "no call") {
		t.Errorf("a call that is not there: %v %s", ok, errs)
	}
	if _, errs, ok := w.cli("calls", "resolve", key, "--executed", "--seen", "x"); ok || !strings.Contains(errs, "review") {
		t.Errorf("a call that is not in review was resolved: %v %s", ok, errs)
	}
}

// TestCalls_resolve: a person's word, and what a repeat gets after it.
func TestCalls_resolve(t *testing.T) {
	t.Parallel()
	const key = "pay:1"
	toReview := func(t *testing.T, settle string) (*world, *sidecar, *rawGateway, request) {
		w, a, g, r := lostPayment(t, key, settle, "1s", 410, "retention-passed") // in doubt, and the key's time is over
		w.wantState(key, claims.StateReview)                                     // by the sweeper, when the key's retention has passed
		send(a.at("raw"), r).want(t, 409, "needs-review")
		return w, a, g, r
	}
	resolve := func(w *world, words ...string) (string, bool) {
		_, errs, ok := w.cli(append([]string{"calls", "resolve", key}, words...)...)
		return errs, ok
	}
	t.Run("executed", func(t *testing.T) {
		w, a, g, r := toReview(t, "10m")
		cs := w.shown("list", "--json", "--state", "review")
		if len(cs) != 1 || cs[0].Review == "" {
			t.Fatalf("want one call in review with a reason: %+v", cs)
		}
		if out, _, _ := w.cli("calls", "explain", key); !strings.Contains(out, "a person decides") || !strings.Contains(out, "calls resolve") {
			t.Errorf("explain does not say what to do: %s", out)
		}
		if errs, ok := resolve(w, "--executed"); ok {
			t.Errorf("a word without what was seen was taken: %s", errs)
		}
		if errs, ok := resolve(w, "--executed", "--not-executed", "--seen", "x"); ok {
			t.Errorf("two words were taken: %s", errs)
		}
		if errs, ok := resolve(w, "--executed", "--seen", "ch_1 in the dashboard", "--by", "ops"); !ok {
			t.Fatalf("resolve: %s", errs)
		}
		got := send(a.at("raw"), r)
		got.want(t, 409, "answer-gone")
		got.wantResult(t, "succeeded", "refused")
		if c := w.shown("show", key)[0]; c.State != "succeeded" || len(c.Evidence) != 1 || c.Evidence[0].Source != "operator" || c.Evidence[0].By != "ops" || c.Evidence[0].Note != "ch_1 in the dashboard" {
			t.Errorf("the word is not in the record: %+v", c)
		}
		g.wantSends(1)
	})
	t.Run("not executed, too early", func(t *testing.T) {
		w, a, g, r := toReview(t, "10m")
		if errs, ok := resolve(w, "--not-executed", "--seen", "nothing there"); ok || !strings.Contains(errs, "may still execute") {
			t.Errorf("taken too early: %v %s", ok, errs)
		}
		send(a.at("raw"), r).want(t, 409, "needs-review")
		g.wantSends(1)
	})
	t.Run("not executed", func(t *testing.T) {
		w, a, g, r := contradiction(t, key)
		eventually(t, "the settling time has passed", func() bool {
			errs, ok := resolve(w, "--not-executed", "--seen", "nothing there")
			if !ok && !strings.Contains(errs, "may still execute") {
				t.Fatalf("resolve: %s", errs)
			}
			return ok
		})
		if s := w.state(key); s != claims.StateOpen {
			t.Fatalf("state %s", s)
		}
		send(a.at("raw"), r).wantResult(t, "succeeded", "sent")
		g.wantSends(2)
		g.wantExecuted(1)
		if s := g.sends(""); s[0].header("Idempotency-Key") != s[1].header("Idempotency-Key") {
			t.Error("the second attempt went out under another key")
		}
	})
	t.Run("look again", func(t *testing.T) {
		w, _, g, _ := toReview(t, "10m")
		if errs, ok := resolve(w, "--look-again", "--seen", "unsure"); !ok {
			t.Fatalf("resolve: %s", errs)
		}
		w.wantState(key, claims.StateReview) // looked at, and again nobody can tell
		if c := w.shown("show", key)[0]; len(c.Evidence) != 1 {
			t.Errorf("the word is not in the record: %+v", c)
		}
		g.wantSends(1)
	})
}

// contradiction is a call in review whose key is still good: it was dropped unread, and the lookup shows a charge of
// another amount under its reference.
func contradiction(t *testing.T, key string) (*world, *sidecar, *rawGateway, request) {
	t.Helper()
	var dropped atomic.Bool
	g := newRaw(t, func(c *rawCall) verdict {
		switch {
		case c.method() == http.MethodGet:
			ref := c.target()[strings.LastIndexByte(c.target(), '/')+1:]
			return c.reply(200, "", booked{ID: "ch_x", Reference: ref, Amount: "1"}.json())
		case !dropped.Swap(true):
			return c.fin()
		}
		return behave
	})
	u := rawUse(g)
	u.settle = "10ms"
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	r := charge(key, "Prefer: wait=0")
	send(a.at("raw"), r).want(t, 409, "needs-review")
	w.wantState(key, claims.StateReview)
	return w, a, g, r
}
