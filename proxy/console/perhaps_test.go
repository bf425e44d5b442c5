package console

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var errCut = errors.New("the connection to the store broke")

// The store's answer to an acquire was lost. What it granted is recognised; what it did not grant is not made up.
func TestAcquire_perhapsApplied(t *testing.T) {
	t.Run("applied", func(t *testing.T) {
		k := newKit(t)
		k.store.breaks(nil, fail(errCut, "acquire"))
		r := k.post("acquire", "", `{"id":"a","holder":"me"}`)
		k.wants(r, 200, "")
		k.same("lease", r.without("scope", "tenant", "id", "trusted_for_ms"), map[string]any{
			"fence_token": "default:a#1", "token": 1.0, "status": "live", "holder": "me", "cancelled": false,
		})
		k.store.breaks(nil, nil)
		k.wants(k.post("confirm", "default:a#1", ""), 200, "")
	})
	t.Run("applied, and answered as held", func(t *testing.T) { // a store that tries again by itself
		k := newKit(t)
		k.store.breaks(nil, fail(claims.ErrHeld, "acquire"))
		k.wants(k.post("acquire", "", `{"id":"a","holder":"me"}`), 200, "")
	})
	t.Run("not applied", func(t *testing.T) {
		k := newKit(t)
		k.store.breaks(fail(errCut, "acquire"), nil)
		r := k.post("acquire", "", `{"id":"a","holder":"me"}`)
		k.wants(r, 503, "store-unavailable")
		if strings.Contains(string(r.raw), errCut.Error()) {
			t.Error("the store's error is told")
		}
		k.store.breaks(nil, nil)
		k.same("token", k.acquire("a", "me"), "default:a#1")
	})
	t.Run("not applied, held by one of the same name", func(t *testing.T) {
		k := newKit(t)
		k.acquire("a", "me")
		k.store.breaks(fail(errCut, "acquire"), nil)
		k.wants(k.post("acquire", "", `{"id":"a","holder":"me"}`), 409, "held")
	})
	t.Run("not known", func(t *testing.T) {
		k := newKit(t)
		k.store.breaks(fail(errCut, "state"), fail(errCut, "acquire"))
		k.wants(k.post("acquire", "", `{"id":"a","holder":"me"}`), 503, "store-unavailable")
		k.store.breaks(nil, nil)
		k.wants(k.post("acquire", "", `{"id":"a","holder":"me"}`), 409, "held") // until it runs out
		k.clock.Advance(30 * time.Second)
		k.same("token", k.acquire("a", "me"), "default:a#2")
	})
	t.Run("held, by whom is not known", func(t *testing.T) {
		k := newKit(t)
		k.acquire("a", "me")
		k.store.breaks(fail(errCut, "state"), nil)
		k.wants(k.post("acquire", "", `{"id":"a"}`), 409, "held")
	})
}

func TestEnd_perhapsApplied(t *testing.T) {
	for op, status := range map[string]string{"release": "released", "finish": "finished"} {
		k := newKit(t)
		token := k.acquire("a", "me")
		k.store.breaks(fail(errCut, op), nil)
		k.wants(k.post(op, token, ""), 503, "store-unavailable")
		k.same("still live", k.get("fenced", token).body["fenced"], false)
		k.store.breaks(nil, fail(errCut, op))
		r := k.post(op, token, "")
		k.wants(r, 200, "")
		k.same("status", r.text("status"), status)
	}
	// Released, and taken by another one before it was looked: that is not told as a release of ours.
	k := newKit(t)
	token := k.acquire("a", "me")
	k.store.breaks(nil, func(op string) error {
		if op != "release" {
			return nil
		}
		k.store.Backend.Acquire(context.Background(), "default:a", "other", time.Minute)
		return errCut
	})
	k.wants(k.post("release", token, ""), 503, "store-unavailable")
}

func TestCancel_perhapsApplied(t *testing.T) {
	k := newKit(t)
	k.store.breaks(fail(errCut, "cancel"), nil)
	k.wants(k.post("cancel", "", `{"id":"a"}`), 503, "store-unavailable")
	k.store.breaks(nil, fail(errCut, "cancel"))
	r := k.post("cancel", "", `{"id":"a"}`)
	k.wants(r, 200, "")
	k.same("cancelled", r.body["cancelled"], true)
}

// What is seen in the store after an answer was lost may be gone after a failover: it is told only once a write was acknowledged.
func TestSeenIsNotAcknowledged(t *testing.T) {
	t.Run("acquire", func(t *testing.T) {
		k := newKit(t)
		k.store.breaks(fail(errCut, "renew"), fail(errCut, "acquire"))
		k.wants(k.post("acquire", "", `{"id":"a","holder":"me"}`), 503, "store-unavailable")
	})
	for _, op := range []string{"release", "finish"} {
		t.Run(op, func(t *testing.T) {
			k := newKit(t)
			token := k.acquire("a", "me")
			k.store.breaks(fail(errCut, "confirm"), fail(errCut, op))
			k.wants(k.post(op, token, ""), 503, "store-unavailable") // applied, and not acknowledged
			k.store.breaks(fail(errCut, "confirm"), nil)
			k.wants(k.post(op, token, ""), 503, "store-unavailable") // found to be done
			k.store.breaks(nil, nil)
			k.wants(k.post(op, token, ""), 200, "")
		})
	}
	t.Run("cancel", func(t *testing.T) {
		k := newKit(t)
		k.store.breaks(fail(errCut, "confirm"), fail(errCut, "cancel"))
		k.wants(k.post("cancel", "", `{"id":"a"}`), 503, "store-unavailable")
	})
}

// A client that hung up does not know its token: the scope is not held for it.
func TestAcquire_clientGone(t *testing.T) {
	k := newKit(t)
	ctx, hangUp := context.WithCancel(t.Context())
	k.store.breaks(nil, func(op string) error {
		if op == "acquire" {
			hangUp()
		}
		return nil
	})
	r := request("POST", "/v1/leases/acquire", "", `{"id":"a","holder":"me"}`).WithContext(ctx)
	if got := k.do(r); got.status != 408 || got.header.Get("Fence-Token") != "" {
		t.Errorf("%d, token %q", got.status, got.header.Get("Fence-Token"))
	}
	k.store.breaks(nil, nil)
	k.same("state", k.get("state?id=a", "").text("status"), "released")
	k.same("next", k.acquire("a", "other"), "default:a#2")
}

// Whatever the store's trouble, it is 503, and no operation takes it for an answer.
func TestStoreTrouble(t *testing.T) {
	everything := []string{"acquire", "renew", "release", "finish", "cancel", "state", "log"}
	for _, tt := range []struct {
		err  error
		slug string
	}{
		{errCut, "store-unavailable"},
		{context.DeadlineExceeded, "store-unavailable"},
		{&claims.QuarantineError{Left: 31500 * time.Millisecond}, "quarantine"},
		{claims.ErrUnreadable, "unreadable"},
	} {
		k := newKit(t)
		token := k.acquire("a", "me")
		k.store.breaks(fail(tt.err, everything...), nil)
		replies := map[string]reply{
			"acquire": k.post("acquire", "", `{"id":"b"}`),
			"cancel":  k.post("cancel", "", `{"id":"b"}`),
			"state":   k.get("state?id=a", ""),
			"log":     k.get("log?id=a", ""),
			"fenced":  k.get("fenced", token),
			"watch":   k.get("watch", token),
		}
		for _, op := range []string{"confirm", "release", "finish"} {
			replies[op] = k.post(op, token, "")
		}
		for op, r := range replies {
			if r.status != 503 || r.slug() != tt.slug || r.header.Get("Retry-After") == "" {
				t.Errorf("%s: %s: %d %s", op, tt.err, r.status, r.raw)
			}
		}
		if tt.slug == "quarantine" && replies["acquire"].header.Get("Retry-After") != "32" {
			t.Errorf("Retry-After %q", replies["acquire"].header.Get("Retry-After"))
		}
		k.store.breaks(nil, nil)
		k.wants(k.post("confirm", token, ""), 200, "") // nothing was done
	}
}

// A store that hangs does not hang the client.
func TestStoreHangs(t *testing.T) {
	bubble(t, func(b *bubbled) {
		b.store.breaks(func(string) error { time.Sleep(storeTimeout); return context.DeadlineExceeded }, nil)
		began := time.Now()
		r := b.post("acquire", "", `{"id":"a"}`)
		if took := time.Since(began); r.status != 503 || took > 2*storeTimeout+time.Second {
			t.Errorf("%d after %s", r.status, took)
		}
	})
}

// A store that is slow does not make the client look gone.
func TestStoreIsSlow(t *testing.T) {
	bubble(t, func(b *bubbled) {
		lost := fail(errCut, "acquire")
		b.store.breaks(nil, func(op string) error { time.Sleep(ioTimeout * 2 / 3); return lost(op) })
		if r := b.post("acquire", "", `{"id":"a"}`); r.status != 200 {
			t.Errorf("%d %s", r.status, r.raw)
		}
	})
}
