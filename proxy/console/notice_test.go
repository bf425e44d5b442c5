package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

func (k *kit) wantHeard(r reply, result string) {
	k.Helper()
	k.wants(r, 200, "")
	k.same("result", r.text("result"), result)
}

func (k *kit) heardAs(result string) string {
	return metric(k.T, k.reg, `fence_notices_total{result="`+result+`"}`)
}

// A notice counts once, says who passed it on, and makes an event.
func TestEvidence(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateUnknown)
	const body = `{"id":"evt_1","outcome":"succeeded","payment":"pending","why":"charge.succeeded"}`
	r := k.tell("evidence", bobToken, body, "key", "a")
	k.wantHeard(r, "taken")
	if c := r.call(); c["state"] != "succeeded" || c["payment"] != "pending" || c["poll"] != true || c["version"] != 2.0 {
		t.Errorf("%v", c)
	}
	e := r.call()["evidence"].([]any)[0].(map[string]any)
	if e["by"] != "bob" || e["note"] != `notice "evt_1": charge.succeeded` || e["source"] != "notice" || e["payment"] != "pending" {
		t.Errorf("evidence %v", e)
	}
	k.wantHeard(k.tell("evidence", bobToken, body, "key", "a"), "known")
	k.wantHeard(k.tell("evidence", bobToken, body, "reference", "ref-a"), "known")
	k.wantHeard(k.tell("evidence", adaToken, `{"id":"evt_2","payment":"done"}`, "key", "a", "reference", "ref-a"), "taken")
	k.wantHeard(k.tell("evidence", adaToken, `{"id":"evt_3","payment":"pending"}`, "key", "a"), "known") // out of order
	k.wantHeard(k.tell("evidence", adaToken, `{"id":"evt_4","payment":"reversed"}`, "key", "a"), "taken")
	if rec := k.record("a"); rec.Version != 4 || rec.Payment != claims.PaymentReversed || rec.State != claims.StateSucceeded {
		t.Errorf("%+v", rec)
	}
	k.same("events", strings.Join(k.eventsOf(), ","), "a unknown>succeeded pending,a succeeded>succeeded done,a succeeded>succeeded reversed")
	if k.heardAs("taken") != "3" || k.heardAs("known") != "3" {
		t.Errorf("%s taken, %s known", k.heardAs("taken"), k.heardAs("known"))
	}
}

// What nobody knows leaves no row, is counted, and is to come again; then it counts.
func TestEvidence_orphan(t *testing.T) {
	k := newKit(t, operated)
	k.call("other", claims.StateUnknown)
	const body = `{"id":"evt_1","outcome":"succeeded"}`
	for _, params := range [][]string{{"key", "a"}, {"reference", "ref-a"}, {"key", "other", "reference", "ref-a"}} {
		r := k.tell("evidence", adaToken, body, params...)
		k.wants(r, 404, "no-such-call")
		if r.header.Get("Retry-After") != "30" {
			t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
		}
	}
	if rec := k.record("a"); rec.Exists() || k.heardAs("orphan") != "3" || k.record("other").Version != 1 {
		t.Errorf("%s orphans; %+v", k.heardAs("orphan"), rec)
	}
	k.call("a", claims.StateUnknown)
	k.wantHeard(k.tell("evidence", adaToken, body, "reference", "ref-a"), "taken")
	k.wants(k.tell("evidence", adaToken, `{"id":"2","outcome":"declined","attempt":2}`, "key", "other"), 404, "no-such-call")
}

// A call that this version cannot read may be the one that has the reference: nobody can say that there is none.
func TestEvidence_unreadable(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateUnknown)
	k.call("b", claims.StateUnknown)
	k.store.Spoil(claims.Key{Tenant: "default", Call: "b"})
	const body = `{"id":"evt_1","outcome":"succeeded"}`
	k.wants(k.tell("evidence", adaToken, body, "reference", "ref-b"), 503, "unreadable")
	k.wantHeard(k.tell("evidence", adaToken, body, "reference", "ref-a"), "taken")
	k.wants(k.tell("evidence", adaToken, body, "key", "c"), 404, "no-such-call")
	k.same("orphans", k.heardAs("orphan"), "1")
}

// A notice by key alone of a call that was revised is refused: it may be about an earlier revision.
func TestEvidence_revised(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateUnknown, func(r *claims.Record) {
		r.Past = []claims.Past{{Revision: 1, State: claims.StateDeclined, Facts: r.Facts}}
		r.Revision, r.Facts.Reference = 2, "ref-a2"
	})
	const body = `{"id":"evt_1","outcome":"succeeded"}`
	r := k.tell("evidence", adaToken, body, "key", "a")
	k.wants(r, 409, "notice-refused")
	if !strings.Contains(r.text("detail"), "name the reference") || k.record("a").Version != 1 {
		t.Errorf("%s", r.raw)
	}
	k.wantHeard(k.tell("evidence", adaToken, body, "key", "a", "reference", "ref-a2"), "taken")
}

func TestEvidence_conflict(t *testing.T) {
	k := newKit(t, operated)
	k.call("paid", claims.StateSucceeded)
	k.call("declined", claims.StateDeclined)
	for key, body := range map[string]string{"paid": `{"id":"1","outcome":"declined"}`, "declined": `{"id":"1","outcome":"succeeded"}`} {
		was := k.record(key)
		for range 2 {
			r := k.tell("evidence", adaToken, body, "key", key)
			k.wants(r, 409, "notice-conflict")
			if c := r.call(); c["state"] != "review" || c["alarm"] != true || c["answerStatus"] != float64(was.Answer.Status) {
				t.Errorf("%s: %v", key, c)
			}
		}
		rec := k.record(key)
		if rec.Version != 2 || string(rec.Answer.Body) != string(was.Answer.Body) || rec.Attempts[0].Outcome != was.Attempts[0].Outcome {
			t.Errorf("%s: the first answer was overwritten: %+v", key, rec)
		}
	}
	k.same("conflicts", k.heardAs("conflict"), "4")
}

func TestEvidence_early(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateUnknown)
	const body = `{"id":"1","outcome":"not-executed"}`
	r := k.tell("evidence", adaToken, body, "key", "a")
	k.wants(r, 409, "notice-early")
	if r.header.Get("Retry-After") != "610" || r.call()["state"] != "unknown" {
		t.Errorf("Retry-After %q: %s", r.header.Get("Retry-After"), r.raw)
	}
	r = k.tell("evidence", adaToken, `{"id":"2","payment":"done"}`, "key", "a")
	k.wants(r, 409, "notice-early")
	if r.header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
	}
	k.clock.Advance(610 * time.Second)
	k.wantHeard(k.tell("evidence", adaToken, body, "key", "a"), "taken")
	k.same("state", k.record("a").State, claims.StateOpen)
	k.same("early", k.heardAs("early"), "2")
}

func TestEvidence_refused(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateOpen)
	k.wants(k.tell("evidence", adaToken, `{"id":"1","payment":"done"}`, "key", "a"), 409, "notice-refused")
	for i := range 2 { // an application chose the reference, twice
		k.call(fmt.Sprint("twin", i), claims.StateUnknown, func(r *claims.Record) { r.Facts.Reference = "order-7" })
	}
	k.wants(k.tell("evidence", adaToken, `{"id":"1","outcome":"succeeded"}`, "reference", "order-7"), 409, "notice-refused")
	k.wantHeard(k.tell("evidence", adaToken, `{"id":"1","outcome":"succeeded"}`, "reference", "order-7", "key", "twin0"), "taken")
	for _, body := range []string{
		``, `{}`, `{"id":"1"}`, `{"id":"","outcome":"succeeded"}`, `{"outcome":"succeeded"}`, `{"id":"1","outcome":"unknown"}`, `{"id":"1","outcome":"paid"}`,
		`{"id":"1","outcome":"succeeded","payment":"gone"}`, `{"id":"1","payment":""}`, `{"id":"1","outcome":"declined","payment":"done"}`,
		`{"id":"1","outcome":"declined","attempt":0}`, `{"id":"1","outcome":"declined","attempt":-1}`, `{"id":"1","outcome":"succeeded","by":"bob"}`, `{"id":"a\u0000","outcome":"succeeded"}`,
	} {
		k.wants(k.tell("evidence", adaToken, body, "key", "a"), 400, "bad-request")
	}
	for _, params := range [][]string{{}, {"reference", ""}, {"key", ""}, {"key", "a", "more", "1"}, {"reference", "a\x00"}} {
		k.wants(k.tell("evidence", adaToken, `{"id":"1","outcome":"succeeded"}`, params...), 400, "bad-request")
	}
	k.same("version", k.record("a").Version, int64(1))
}

func TestEvidence_perhapsApplied(t *testing.T) {
	const body = `{"id":"1","outcome":"succeeded"}`
	k := newKit(t, operated)
	k.call("a", claims.StateUnknown)
	k.store.breaks(fail(errCut, "confirm"), fail(errCut, "swap"))
	for range 2 {
		k.wants(k.tell("evidence", adaToken, body, "key", "a"), 503, "store-unavailable")
	}
	k.store.breaks(nil, nil)
	k.wantHeard(k.tell("evidence", adaToken, body, "key", "a"), "known")
	if rec := k.record("a"); rec.Version != 2 || len(rec.Evidence) != 1 {
		t.Errorf("%+v", rec)
	}
	k.call("b", claims.StateUnknown)
	k.store.breaks(nil, fail(errCut, "swap"))
	k.wantHeard(k.tell("evidence", adaToken, body, "key", "b"), "known") // it was its own write
	if rec := k.record("b"); rec.Version != 2 {
		t.Errorf("%+v", rec)
	}
}

// Of the settling times that the record has and that is configured now, the longer one counts: for a word and for a notice.
func TestSettlingTime(t *testing.T) {
	var stripe *gateways.Gateway
	for _, g := range gateways.Builtin() {
		if g.Name == "stripe" {
			stripe = g
		}
	}
	reg, err := gateways.NewRegistry(stripe)
	if err != nil {
		t.Fatal(err)
	}
	route := stripe.Routes[0].Name
	after := stripe.LookupRules(route).SettleAfter
	k := newKit(t, operated, func(c *Config) { c.Gateways = reg })
	of := func(r *claims.Record) {
		r.Facts.Gateway, r.Facts.Route, r.Facts.SettleAfter = "stripe", route, time.Second
	}
	k.call("doubt", claims.StateUnknown, of)
	k.call("review", claims.StateReview, of)
	k.clock.Advance(10*time.Second + after - 1)
	const body = `{"id":"1","outcome":"not-executed"}`
	k.wants(k.tell("evidence", adaToken, body, "key", "doubt"), 409, "notice-early")
	k.wants(k.tell("resolve", adaToken, word(1, "not-executed", "w"), "key", "review"), 409, "not-resolvable")
	k.clock.Advance(1)
	k.wantHeard(k.tell("evidence", adaToken, body, "key", "doubt"), "taken")
	k.wants(k.tell("resolve", adaToken, word(1, "not-executed", "w"), "key", "review"), 200, "")
}
