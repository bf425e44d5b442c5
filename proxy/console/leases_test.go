package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestAcquire(t *testing.T) {
	k := newKit(t)
	r := k.post("acquire", "", `{"tenant":"default","id":"order 42/ü","holder":"pod-1"}`)
	k.wants(r, 200, "")
	k.same("lease", r.body, map[string]any{
		"fence_token": "default:order%2042%2F%C3%BC#1", "scope": "default:order%2042%2F%C3%BC", "tenant": "default", "id": "order 42/ü",
		"token": 1.0, "status": "live", "holder": "pod-1", "trusted_for_ms": 29000.0, "cancelled": false,
	})
	for name, want := range map[string]string{
		"Fence-Token": "default:order%2042%2F%C3%BC#1", "Fence-Trusted-For-Ms": "29000", "Fence-Cancelled": "false",
	} {
		k.same(name, r.header.Get(name), want)
	}
	if n := metric(t, k.reg, `fence_leases_total{event="acquired"}`); n != "1" {
		t.Errorf("%s acquired are counted", n)
	}
}

func TestAcquire_held(t *testing.T) {
	k := newKit(t)
	k.acquire("a", "pod-1")
	k.clock.Advance(28*time.Second + 500*time.Millisecond)
	r := k.post("acquire", "", `{"id":"a","holder":"pod-2"}`)
	k.wants(r, 409, "held")
	k.same("holder", r.text("holder"), "pod-1")
	k.same("retry_after_ms", r.num("retry_after_ms"), 1500.0)
	k.same("Retry-After", r.header.Get("Retry-After"), "2")
	if !strings.Contains(r.text("detail"), "by pod-1") {
		t.Errorf("detail %q", r.text("detail"))
	}
	if n := metric(t, k.reg, `fence_lease_refusals_total{reason="held"}`); n != "1" {
		t.Errorf("%s refusals are counted", n)
	}
}

// The first holder's time runs out, another one takes over: every word of the first is refused from then on.
func TestHandOver(t *testing.T) {
	k := newKit(t)
	first := k.acquire("a", "pod-1")
	k.clock.Advance(30 * time.Second)
	k.same("fenced", k.get("fenced", first).body, map[string]any{"fenced": true, "status": "expired", "token": 1.0})
	k.wants(k.post("confirm", first, ""), 409, "fenced") // an expired lease is not renewed, though nobody took it
	second := k.acquire("a", "pod-2")
	k.same("second token", second, "default:a#2")
	for _, op := range []string{"confirm", "release", "finish"} {
		r := k.post(op, first, "")
		k.wants(r, 409, "fenced")
		k.same("lease_status", r.text("lease_status"), "superseded")
	}
	k.same("fenced", k.get("fenced", first).body, map[string]any{"fenced": true, "status": "superseded", "token": 2.0})
	k.same("not fenced", k.get("fenced", second).body, map[string]any{"fenced": false, "status": "live", "token": 2.0})
	k.same("never granted", k.get("fenced", "default:a#3").body, map[string]any{"fenced": true, "status": "absent", "token": 2.0})
	k.wants(k.post("confirm", second, ""), 200, "")
}

func TestConfirm(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "pod-1")
	k.clock.Advance(20 * time.Second)
	r := k.post("confirm", token, "")
	k.wants(r, 200, "")
	k.same("trusted", r.num("trusted_for_ms"), 29000.0)
	k.same("holder", r.text("holder"), "pod-1")
	k.clock.Advance(29 * time.Second)
	k.wants(k.post("confirm", token, `{"ttl_ms":60000}`), 200, "")
	k.clock.Advance(59 * time.Second)
	k.same("after a longer one", k.get("fenced", token).body["fenced"], false)
	// A shorter one does not shorten the lease, but more than what was asked for is not trusted.
	r = k.post("confirm", token, `{"ttl_ms":5000}`)
	k.same("trusted after a shorter one", r.num("trusted_for_ms"), 4000.0)
	k.wants(k.post("confirm", "default:never#1", ""), 409, "fenced")
}

func TestTrustedFor(t *testing.T) {
	c := New(Config{Times: claims.LeaseTimes{TTL: 10 * time.Second, Margin: 2 * time.Second}})
	for _, tt := range []struct {
		status    claims.LeaseStatus
		remaining time.Duration
		want      time.Duration
	}{
		{claims.LeaseLive, 10 * time.Second, 8 * time.Second},
		{claims.LeaseLive, time.Hour, 8 * time.Second},
		{claims.LeaseLive, 3 * time.Second, time.Second},
		{claims.LeaseLive, time.Second, 0},
		{claims.LeaseLive, -time.Second, 0},
		{claims.LeaseExpired, 10 * time.Second, 0},
	} {
		if got := c.trustedFor(claims.Lease{Status: tt.status, Remaining: tt.remaining}, 10*time.Second); got != tt.want {
			t.Errorf("%s, %s left: trusted for %s, want %s", tt.status, tt.remaining, got, tt.want)
		}
	}
	k := newKit(t, func(c *Config) { c.Times.TTL = 30*time.Second + 999*time.Microsecond })
	k.same("rounded down", k.post("acquire", "", `{"id":"a"}`).num("trusted_for_ms"), 29000.0)
}

func TestRelease(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "pod-1")
	want := map[string]any{
		"fence_token": "default:a#1", "scope": "default:a", "tenant": "default", "id": "a", "token": 1.0, "status": "released", "trusted_for_ms": 0.0,
	}
	for range 2 { // the second time because an answer can be lost
		r := k.post("release", token, "")
		k.wants(r, 200, "")
		k.same("released", r.body, want)
	}
	if n := metric(t, k.reg, `fence_leases_total{event="released"}`); n != "1" {
		t.Errorf("%s released are counted", n)
	}
	k.wants(k.post("confirm", token, ""), 409, "fenced")
	k.wants(k.post("finish", token, ""), 409, "fenced")
	k.same("next", k.acquire("a", "pod-2"), "default:a#2")
	k.wants(k.post("release", token, ""), 409, "fenced")
}

func TestFinish(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "pod-1")
	for range 2 {
		r := k.post("finish", token, `{}`)
		k.wants(r, 200, "")
		k.same("status", r.text("status"), "finished")
	}
	for _, op := range []string{"confirm", "release"} {
		r := k.post(op, token, "")
		k.wants(r, 410, "scope-finished")
		k.same("lease_status", r.text("lease_status"), "finished")
	}
	k.wants(k.post("acquire", "", `{"id":"a"}`), 410, "scope-finished")
	k.wants(k.post("cancel", "", `{"id":"a"}`), 410, "scope-finished")
	k.same("state", k.get("state?id=a", "").text("status"), "finished")
	k.same("fenced", k.get("fenced", token).body, map[string]any{"fenced": true, "status": "finished", "token": 1.0})
}

// A lease is not given up while money may be on its way.
func TestCallsInFlight(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "pod-1")
	rec := claimstest.FullRecord(claims.Key{Tenant: "default", Call: "charge:a"})
	rec.State, rec.Scope, rec.Undoes, rec.Part, rec.Undos = claims.StatePending, "default:a", "", "", nil
	out, err := k.store.Swap(t.Context(), claims.Condition{}, claims.Write{Next: rec})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []claims.State{claims.StatePending, claims.StateUnknown} {
		next := out.Records[0]
		next.State = state
		if out, err = k.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: next.Version, Next: next}); err != nil {
			t.Fatal(err)
		}
		for _, op := range []string{"release", "finish"} {
			r := k.post(op, token, "")
			k.wants(r, 409, "calls-in-flight")
			if r.header.Get("Retry-After") == "" {
				t.Errorf("%s while a call is %s: no Retry-After", op, state)
			}
		}
	}
	k.wants(k.post("confirm", token, ""), 200, "")
	next := out.Records[0]
	next.State = claims.StateSucceeded
	if _, err := k.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: next.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	k.wants(k.post("finish", token, ""), 200, "")
}

// A mark is seen by whoever holds the scope, now and after a take.
func TestCancel(t *testing.T) {
	k := newKit(t)
	r := k.post("cancel", "", `{"id":"never"}`)
	k.wants(r, 200, "")
	k.same("never taken", r.body, map[string]any{
		"scope": "default:never", "tenant": "default", "id": "never", "token": 0.0, "status": "absent", "holder": "", "remaining_ms": 0.0, "cancelled": true,
	})
	k.same("at the first take", k.post("acquire", "", `{"id":"never"}`).body["cancelled"], true)

	token := k.acquire("a", "pod-1")
	k.clock.Advance(time.Second)
	r = k.post("cancel", "", `{"id":"a"}`)
	k.wants(r, 200, "")
	k.same("the current holder's", r.body, map[string]any{
		"scope": "default:a", "tenant": "default", "id": "a", "token": 1.0, "status": "live", "holder": "pod-1", "remaining_ms": 29000.0, "cancelled": true,
	})
	r = k.post("confirm", token, "")
	k.wants(r, 200, "")
	k.same("confirm", r.body["cancelled"], true)
	k.same("header", r.header.Get("Fence-Cancelled"), "true")
	k.wants(k.post("cancel", "", `{"id":"a"}`), 200, "")
	k.clock.Advance(30 * time.Second)
	r = k.post("acquire", "", `{"id":"a","holder":"pod-2"}`)
	k.same("after a take", r.body["cancelled"], true)
	k.same("fenced", k.get("fenced", token).body["fenced"], true)
}

func TestState(t *testing.T) {
	k := newKit(t)
	k.same("never taken", k.get("state?tenant=default&id=a%2Fb", "").body, map[string]any{
		"scope": "default:a%2Fb", "tenant": "default", "id": "a/b", "token": 0.0, "status": "absent", "holder": "", "remaining_ms": 0.0, "cancelled": false,
	})
	k.acquire("a/b", "pod-1")
	k.clock.Advance(10 * time.Second)
	want := map[string]any{
		"scope": "default:a%2Fb", "tenant": "default", "id": "a/b", "token": 1.0, "status": "live", "holder": "pod-1", "remaining_ms": 20000.0, "cancelled": false,
	}
	k.same("live", k.get("state?id=a%2Fb", "").body, want)
	k.clock.Advance(20 * time.Second)
	want["status"], want["remaining_ms"] = "expired", 0.0
	k.same("expired", k.get("state?id=a%2Fb", "").body, want)
}

func TestLog(t *testing.T) {
	k := newKit(t)
	k.same("nothing yet", k.get("log?id=a", "").body, map[string]any{"events": []any{}, "omitted": 0.0})
	token := k.acquire("a", "pod-1")
	k.clock.Advance(30*time.Second + 250*time.Millisecond)
	token2 := k.acquire("a", "pod-2 [x]")
	k.post("confirm", token, "")
	k.post("release", token2, "")
	r := k.get("log?id=a", "")
	k.wants(r, 200, "")
	event := func(token float64, event, holder, at string) map[string]any {
		return map[string]any{"token": token, "event": event, "holder": holder, "at": at}
	}
	k.same("log", r.body["events"], []any{
		event(1, "take", "pod-1", "2026-03-01T12:00:00.000Z"),
		event(2, "takeover", "pod-2 [x]", "2026-03-01T12:00:30.250Z"),
		event(2, "release", "pod-2 [x]", "2026-03-01T12:00:30.250Z"),
	})
}

func TestLog_isBounded(t *testing.T) {
	k := newKit(t)
	for i := range maxEvents/2 + 2 {
		k.Leases.Release(t.Context(), claims.Guard{Scope: "default:a", Token: uint64(i)})
		if _, err := k.Leases.Acquire(t.Context(), "default:a", "me", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	r := k.get("log?id=a", "")
	events := r.body["events"].([]any)
	last := events[len(events)-1].(map[string]any)
	if len(events) != maxEvents || r.num("omitted") != 3 || last["token"] != float64(maxEvents/2+2) {
		t.Errorf("%d events, %v omitted, the last is %v", len(events), r.num("omitted"), last)
	}
}

// The nonce behind the holder is ours: whatever a client calls itself comes back as it was.
func TestHolder(t *testing.T) {
	for i, holder := range []string{"", " ", "pod", "pod ", "[]", "pod [AAAAAAAAAAAAAAAAAAAAAAAAAA]", strings.Repeat("x", maxHolder)} {
		if got := shown(marked(holder)); got != holder {
			t.Errorf("%q came back as %q", holder, got)
		}
		k := newKit(t)
		id := fmt.Sprint("h", i)
		k.acquire(id, holder)
		k.same("holder", k.get("state?id="+id, "").text("holder"), holder)
	}
	for _, other := range []string{"host/1 6c1d6505-0000-4000-8000-000000000000", "", "x [aaaaaaaaaaaaaaaaaaaaaaaaaa]"} {
		if got := shown(other); got != other {
			t.Errorf("%q, which has no nonce, came back as %q", other, got)
		}
	}
	if a, b := marked("a"), marked("a"); a == b {
		t.Error("two requests have one nonce")
	}
}

func TestTenants(t *testing.T) {
	k := newKit(t, func(c *Config) { c.Tenants = []string{"north", "south"} })
	k.wants(k.post("acquire", "", `{"id":"a"}`), 400, "bad-request")
	k.wants(k.post("acquire", "", `{"tenant":"south","id":"a"}`), 200, "")
	k.same("apart", k.get("state?tenant=north&id=a", "").text("status"), "absent")
	for _, op := range []string{"acquire", "cancel"} {
		k.wants(k.post(op, "", `{"tenant":"east","id":"a"}`), 403, "tenant-not-served")
	}
	for _, op := range []string{"confirm", "release", "finish"} {
		k.wants(k.post(op, "east:a#1", ""), 403, "tenant-not-served")
	}
	k.wants(k.post("pong", "east:a#1", `{"watch":"w","n":1}`), 403, "tenant-not-served")
	for _, op := range []string{"fenced", "watch"} {
		k.wants(k.get(op, "east:a#1"), 403, "tenant-not-served")
	}
	for _, op := range []string{"state", "log"} {
		k.wants(k.get(op+"?tenant=east&id=a", ""), 403, "tenant-not-served")
	}
}

func TestDraining(t *testing.T) {
	draining := false
	k := newKit(t, func(c *Config) { c.Draining = func() bool { return draining } })
	token := k.acquire("a", "me")
	draining = true
	r := k.post("acquire", "", `{"id":"b"}`)
	k.wants(r, 503, "draining")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	k.wants(k.get("watch", token), 503, "draining")
	k.wants(k.post("confirm", token, ""), 200, "")
	k.wants(k.post("release", token, ""), 200, "")
	draining = false
	k.Close()
	k.Close()
	k.wants(k.post("acquire", "", `{"id":"c"}`), 503, "draining")
	k.same("nothing was granted", k.get("state?id=b", "").text("status"), "absent")
}
