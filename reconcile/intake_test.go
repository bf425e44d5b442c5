package reconcile_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

const settledEvent = `call.settled charge:order:42: unknown to succeeded, succeeded, payment "done"`

// A signed notice settles a doubt, with the answer that its event makes; sent again, by many at once, it changes nothing more.
func TestIntakeTakes(t *testing.T) {
	d := newDesk(t, nil)
	was := d.doubt(key, "charges_create")
	d.tell(paid(key).json(), 200)
	r := d.record(key)
	d.want(r, claims.StateSucceeded)
	if r.Payment != "done" || r.Object != "ch_"+key || r.Answer == nil || r.Answer.Status != 200 || !strings.HasPrefix(string(r.Answer.Body), `{"id":"ch_`) {
		t.Errorf("payment %q, object %q, answer %+v", r.Payment, r.Object, r.Answer)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { d.tell(paid(key).json(), 200) })
	}
	wg.Wait()
	if now := d.record(key); now.Version != was.Version+1 || len(now.Evidence) != 1 {
		t.Errorf("version %d after %d, %d words", now.Version, was.Version, len(now.Evidence))
	}
	if got := d.told(); strings.Count(got, "taken") != 1 || strings.Count(got, "known") != 50 {
		t.Errorf("%s", got)
	}
	d.wantEvents(settledEvent)
	d.noSend()
}

// What no address serves, nobody signed, or was signed long ago, reaches no record.
func TestIntakeRefuses(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) { g.Webhook.Refuse = 498 })
	was := d.doubt(key, "charges_create")
	body, now := paid(key).json(), time.Now()
	for _, tt := range []struct {
		name, path, secret, result string
		at                         time.Time
		want                       int
	}{
		{"another tenant", "/webhooks/t3/stripe/shop", hookSecret, "", now, 404},
		{"another gateway", "/webhooks/t/strip/shop", hookSecret, "", now, 404},
		{"another account", "/webhooks/t/stripe/shop2", hookSecret, "", now, 404},
		{"less", "/webhooks/t/stripe", hookSecret, "", now, 404},
		{"more", "/webhooks/t/stripe/shop/x", hookSecret, "", now, 404},
		{"a hidden slash", "/webhooks/t/stripe%2Fshop", hookSecret, "", now, 404},
		{"dots", "/webhooks/t/x/../stripe/shop", hookSecret, "", now, 404},
		{"elsewhere", "/", hookSecret, "", now, 404},
		{"forged", shopPath, "whsec_wrong", "forged", now, 498},
		{"of the other account's secret", shopPath, "whsec_other", "forged", now, 498},
		{"replayed later", shopPath, hookSecret, "forged", now.Add(-6 * time.Minute), 498},
		{"from the future", shopPath, hookSecret, "forged", now.Add(6 * time.Minute), 498},
	} {
		if status, answer := d.post(tt.path, body, tt.secret, tt.at); status != tt.want || answer != "" {
			t.Errorf("%s: %d %q, want %d", tt.name, status, answer, tt.want)
		}
		d.wantTold(tt.result)
	}
	if status, _ := d.raw(http.MethodGet, shopPath, "", ""); status != 405 {
		t.Errorf("GET: %d", status)
	}
	if status, _ := d.raw(http.MethodPost, shopPath, strings.Repeat("x", gateways.MaxNotice+1), ""); status != 413 {
		t.Errorf("too large: %d", status)
	}
	if status, _ := d.post(shopPath, "{", hookSecret, now); status != 400 {
		t.Errorf("no JSON: %d", status)
	}
	d.wantTold("malformed malformed")
	if r := d.record(key); r.Version != was.Version || len(d.kept()) != 0 {
		t.Errorf("something was written: %+v", r)
	}
	for _, secret := range []string{"ada@", hookSecret, "ch_" + key, "v1="} {
		if strings.Contains(d.log.String(), secret) {
			t.Errorf("%q is in the log:\n%s", secret, d.log.String())
		}
	}
	d.noSend()
}

// A notice of one account, or for one tenant, does not count for another's call, whoever signed it.
func TestIntakeKeepsApart(t *testing.T) {
	d := newDesk(t, nil)
	was := d.doubt(key, "charges_create")
	if status, _ := d.post("/webhooks/t/stripe/other", paid(key).json(), "whsec_other", time.Now()); status != 200 {
		t.Errorf("another account: %d", status)
	}
	d.wantTold("mismatch")
	if status, _ := d.post("/webhooks/t2/stripe/shop", paid(key).json(), hookSecret, time.Now()); status != 200 {
		t.Errorf("another tenant: %d", status)
	}
	d.wantTold("kept")
	if es := d.kept(); len(es) != 1 || es[0].Tenant != "t2" {
		t.Errorf("kept %+v", es)
	}
	if err := d.in.Retry(t.Context()); err != nil {
		t.Error(err)
	}
	if r := d.record(key); r.Version != was.Version {
		t.Errorf("it counted: %+v", r)
	}
	d.noSend()
}

// A call that went to another address than the gateway has now: what this one's notices say is not about it.
func TestIntakeOtherAddress(t *testing.T) {
	d := newDesk(t, nil)
	base := d.g.BaseURL
	d.g.BaseURL = "http://127.0.0.1:2"
	was := d.doubt(key, "charges_create")
	d.g.BaseURL = base
	d.tell(paid(key).json(), 200)
	d.wantTold("early") // perhaps the address is just being changed: it is kept
	if d.record(key).Version != was.Version {
		t.Error("it counted")
	}
}

// An amount or a currency that is not the call's: the notice does not count, the gateway is asked.
func TestIntakeOtherAmount(t *testing.T) {
	d := newDesk(t, nil)
	d.run(t)
	e := paid(key)
	e.kind, e.object = "payment_intent.succeeded", "pi_x"
	e.amount = 1
	was := d.doubt(key, "payment_intents_create")
	d.tell(e.json(), 200)
	d.wantTold("mismatch")
	soon(t, "the gateway is asked", func() bool { return len(d.gw.Sends(http.MethodGet)) > 0 })
	if r := d.record(key); r.Version != was.Version {
		t.Errorf("it counted: %+v", r)
	}
	e.amount = 4990
	d.tell(strings.Replace(e.json(), `"eur"`, `"usd"`, 1), 200)
	d.wantTold("mismatch")
	d.tell(e.json(), 200)
	d.want(d.record(key), claims.StateSucceeded)
}

// What is not signed, or speaks of no call of the route, has the gateway asked at once. Its word decides.
func TestIntakeWakes(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) { g.Webhook.Signature, g.Webhook.Answer, g.Webhook.Accept = nil, nil, "[ok]" })
	d.run(t)
	d.doubt(key, "payment_intents_create")
	d.doubt("missing", "payment_intents_create")
	d.charge(key, "4990")
	for _, call := range []string{key, "missing", "nobody's"} {
		e := event{id: "evt_" + call, kind: "payment_intent.succeeded", object: "pi_1", status: "succeeded", call: call}
		for range 20 {
			if status, answer := d.raw(http.MethodPost, shopPath, e.json(), ""); status != 200 || answer != "[ok]" {
				t.Errorf("%d %s", status, answer)
			}
		}
	}
	soon(t, "the doubt is settled by a lookup", func() bool { return d.record(key).State == claims.StateSucceeded })
	r := d.record(key)
	if len(r.Evidence) != 0 || !r.Reconciled {
		t.Errorf("an unsigned notice counted: %+v", r.Evidence)
	}
	d.want(d.record("missing"), claims.StateUnknown)
	if got := d.told(); strings.Count(got, "woken") != 40 || strings.Count(got, "ignored") != 20 || len(d.kept()) != 0 {
		t.Errorf("%s; %d kept", got, len(d.kept()))
	}
	if n := len(d.gw.Sends(http.MethodPost)); n != 1 {
		t.Errorf("%d sends, want the test's own", n)
	}
}

// A notice that contradicts what was settled goes to a person, is answered, and changes nothing when it comes again.
func TestIntakeConflict(t *testing.T) {
	d := newDesk(t, nil)
	d.doubt(key, "charges_create")
	d.tell(paid(key).json(), 200)
	first := d.record(key)
	for range 3 {
		d.tell(failed(key).json(), 200)
	}
	d.wantTold("taken conflict conflict conflict")
	r := d.record(key)
	if d.want(r, claims.StateReview); r.Review == nil || !r.Review.Alarm || r.Version != first.Version+1 || string(r.Answer.Body) != string(first.Answer.Body) {
		t.Errorf("%+v", r)
	}
	d.wantEvents(settledEvent, `call.review charge:order:42: succeeded to review, unknown, payment "done"`)
	d.noSend()
}

// 200 is answered only once what the notice told lasts; any error of a write means that it is to come again, and then counts once.
func TestIntakeAnswersLast(t *testing.T) {
	d := newDesk(t, nil)
	was := d.doubt(key, "charges_create")
	d.store.set(func(f *frail) { f.down = true })
	d.tell(paid(key).json(), 503)
	d.store.set(func(f *frail) { f.down, f.half = false, true })
	d.tell(paid(key).json(), 503) // it was written
	d.wantTold("failed failed")
	d.store.set(func(f *frail) { f.confirm = errors.New("no standby") })
	d.tell(paid(key).json(), 503)
	d.store.set(func(f *frail) { f.confirm = nil })
	d.told()
	d.tell(paid(key).json(), 200)
	d.wantTold("known")
	if r := d.record(key); r.Version != was.Version+1 || r.State != claims.StateSucceeded {
		t.Errorf("%+v", r)
	}
	d.store.set(func(f *frail) { f.full = true })
	d.tell(paid("later").json(), 200) // a claim is written before its send, so that it is somebody else's
	d.wantTold("full")
	d.doubt("declined", "charges_create")
	early := event{id: "evt_9", kind: "charge.failed", object: "ch_9", status: "failed", call: "declined"}
	d.tell(early.json(), 503) // of a call of ours it comes again
	d.wantTold("full")
	d.store.set(func(f *frail) { f.full, f.confirm = false, errors.New("no standby") })
	d.tell(paid("later").json(), 503)
	d.store.set(func(f *frail) { f.confirm = nil })
	d.tell(paid("later").json(), 200)
	if len(d.kept()) != 1 {
		t.Errorf("%d kept", len(d.kept()))
	}
}

// A write that another one outran is decided anew, as often as it takes within reason.
func TestIntakeRaces(t *testing.T) {
	d := newDesk(t, nil)
	d.doubt(key, "charges_create")
	d.store.set(func(f *frail) { f.lost = 1000 })
	d.tell(paid(key).json(), 503)
	d.store.set(func(f *frail) { f.lost = 5 })
	d.tell(paid(key).json(), 200)
	d.want(d.record(key), claims.StateSucceeded)
	d.wantTold("failed taken")
}

// By its object alone a notice counts for the one call of a route that it names; for two of them the gateway is asked.
func TestIntakeByObject(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) {
		g.Webhook.Cases = append(g.Webhook.Cases, gateways.NoticeCase{When: []gateways.Condition{{At: "/type", In: []string{"all.done"}}}, Outcome: "succeeded"})
	})
	refund := func(call string) {
		r := d.doubt(call, "refunds_create")
		r.Object = "re_1"
		if _, err := d.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r}); err != nil {
			t.Fatal(err)
		}
	}
	refund("a")
	d.tell(event{id: "evt_0", kind: "all.done", object: "re_1", status: "succeeded", call: "nobody's"}.json(), 200)
	d.wantTold("woken") // the object may be that of calls of other routes
	told := event{id: "evt_1", kind: "refund.updated", object: "re_1", status: "succeeded", call: "nobody's"}
	d.tell(told.json(), 200)
	d.wantTold("taken")
	d.want(d.record("a"), claims.StateSucceeded)
	refund("b")
	told.id = "evt_2"
	d.tell(told.json(), 200)
	d.wantTold("woken")
	d.want(d.record("b"), claims.StateUnknown)
	told.kind, told.id = "charge.succeeded", "evt_3" // of other routes
	d.tell(told.json(), 200)
	d.wantTold("woken")
	d.noSend()
}

// The reference tells the revision: a late success of an earlier one is no word about the current one.
func TestIntakeRevisions(t *testing.T) {
	d := newDesk(t, nil)
	for _, tt := range []struct {
		call, ref string
		want      claims.State
		result    string
	}{{"now", "now", claims.StateSucceeded, "taken"}, {"earlier", "before-earlier", claims.StateReview, "conflict"}} {
		r := d.doubt(tt.call, "charges_create")
		past := r.Facts
		past.Reference = "ref-before-" + tt.call
		r.Revision = 2
		r.Past = []claims.Past{{Revision: 1, State: claims.StateOpen, Facts: past, FirstStarted: r.FirstStarted, Attempts: r.Attempts}}
		if _, err := d.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r}); err != nil {
			t.Fatal(err)
		}
		e := paid(tt.call)
		e.call = tt.ref
		d.tell(e.json(), 200)
		d.wantTold(tt.result)
		d.want(d.record(tt.call), tt.want)
	}
	d.noSend()
}

// Two processes take the same notice at once: one change, one event.
func TestIntakesOfTwoProcesses(t *testing.T) {
	d := newDesk(t, nil)
	other := newSecond(t, d)
	for _, call := range []string{"c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"} {
		was := d.doubt(call, "charges_create")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { d.tell(paid(call).json(), 200) })
			wg.Go(func() { other.tell(paid(call).json(), 200) })
		}
		wg.Wait()
		if r := d.record(call); r.Version != was.Version+1 || r.State != claims.StateSucceeded || len(r.Evidence) != 1 {
			t.Errorf("version %d after %d: %+v", r.Version, was.Version, r.Evidence)
		}
	}
	if n := len(d.events()); n != 8 {
		t.Errorf("%d events, want 8", n)
	}
}

// Of a notice's answer only what the route keeps is stored.
func TestIntakeKeepsFields(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) { g.Keep = &gateways.Kept{Fields: []string{"/id"}} })
	d.doubt(key, "charges_create")
	d.tell(paid(key).json(), 200)
	if r := d.record(key); r.Answer == nil || string(r.Answer.Body) != `{"id":"ch_`+key+`"}` {
		t.Errorf("%+v", r.Answer)
	}
}

// The longer settling time counts, the record's or the one that is configured now.
func TestIntakeSettling(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) { g.SettleAfter = time.Hour })
	d.doubt(key, "charges_create") // 10 min
	d.advance(30 * time.Minute)
	d.tell(failed(key).json(), 200)
	d.wantTold("early")
	d.advance(time.Hour)
	d.retry()
	d.want(d.record(key), claims.StateDeclined)
}

// A reference that cannot be one of ours is nobody's here: it takes no place among those that wait for their call.
func TestIntakeForeignReferences(t *testing.T) {
	d := newDesk(t, func(g *gateways.Gateway) {
		for _, r := range g.Routes {
			if r.Reference != nil {
				r.Reference.Owned = true
			}
		}
	})
	d.tell(paid("foreign").json(), 200)
	d.wantTold("ignored")
	if n := len(d.kept()); n != 0 {
		t.Errorf("%d kept", n)
	}
	for reference, want := range map[string]bool{"ref-foreign": false, "": false, strings.Repeat("0a", 16): true, strings.Repeat("0A", 16): false, strings.Repeat("0a", 17): false} {
		if got := d.g.MayBeOurs(reference); got != want {
			t.Errorf("%q: %v", reference, got)
		}
	}
}
