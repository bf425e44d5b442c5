package console

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func TestWatch_pongRenews(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watch(b.acquire("a"))
		for n := 1; n <= 12; n++ { // two minutes
			e := w.next("ping")
			if want := time.Duration(n-1) * 10 * time.Second; e.at != want || e.data["n"] != float64(n) {
				t.Fatalf("ping %v after %s, want %d after %s", e.data["n"], e.at, n, want)
			}
			time.Sleep(3 * time.Second)
			r := w.pong(n)
			if r.status != 200 || r.num("trusted_for_ms") != 29000 || r.header.Get("Fence-Trusted-For-Ms") != "29000" {
				t.Fatalf("pong: %d %s", r.status, r.raw)
			}
		}
		if l := b.state("a"); l.Remaining != 30*time.Second || l.Token != 1 {
			t.Errorf("%+v", l)
		}
		if n := metric(t, b.reg, `fence_leases_total{event="confirmed"}`); n != "12" {
			t.Errorf("%s renewals are counted", n)
		}
		w.close()
		b.gone()
	})
}

// Nothing but a pong renews. The loss is told when trust ends, before the store lets another one in.
func TestWatch_withoutPongs(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watch(b.acquire("a"))
		for range 3 {
			w.next("ping")
		}
		e := w.next("lost")
		if e.at != 29*time.Second || e.data["status"] != "expired" {
			t.Errorf("lost %v after %s", e.data, e.at)
		}
		w.next("")
		b.gone()
		if l := b.state("a"); l.Remaining != time.Second {
			t.Errorf("somebody renewed: %s left", l.Remaining)
		}
		if r := w.pong(3); r.slug() != "unknown-watch" {
			t.Errorf("a pong after the end: %s", r.raw)
		}
		if n := metric(t, b.reg, `fence_leases_total{event="lost"}`); n != "1" {
			t.Errorf("%s losses are counted", n)
		}
	})
}

func TestWatch_stopsWithThePongs(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watch(b.acquire("a"))
		w.keep(3) // the last one at 20 s
		w.next("ping")
		w.next("ping")
		if e := w.next("lost"); e.at != 49*time.Second {
			t.Errorf("lost after %s, want 29 s after the last pong", e.at)
		}
		w.next("")
	})
}

func TestWatch_pongs(t *testing.T) {
	bubble(t, func(b *bubbled) {
		token := b.acquire("a")
		w := b.watch(token)
		w.next("ping")
		for _, n := range []int{2, 0, -1} {
			if r := w.pong(n); r.slug() != "bad-request" {
				t.Errorf("a pong for ping %d: %s", n, r.raw)
			}
		}
		w.next("ping")
		time.Sleep(time.Second)
		if r := w.pong(1); r.status != 409 || r.slug() != "stale-ping" {
			t.Errorf("a stale pong: %s", r.raw)
		}
		if l := b.state("a"); l.Remaining != 19*time.Second {
			t.Errorf("a stale pong renewed: %s left", l.Remaining)
		}
		for range 2 {
			if r := w.pong(2); r.status != 200 {
				t.Errorf("the newest, answered again: %s", r.raw)
			}
		}
		other := b.acquire("b")
		for _, r := range []reply{
			b.post("pong", other, fmt.Sprintf(`{"watch":%q,"n":2}`, w.id)),
			b.post("pong", token, `{"watch":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","n":2}`),
		} {
			if r.status != 404 || r.slug() != "unknown-watch" {
				t.Errorf("a pong for no watch of this lease: %d %s", r.status, r.raw)
			}
		}
		w.close()
		b.gone()
		if r := w.pong(2); r.slug() != "unknown-watch" {
			t.Errorf("a pong after the stream was closed: %s", r.raw)
		}
	})
}

func TestWatch_ownLength(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watchFor(b.acquire("a"), "?ttl_ms=6000")
		w.next("ping")
		if e := w.next("ping"); e.at != 2*time.Second {
			t.Errorf("second ping after %s", e.at)
		}
		if r := w.pong(2); r.num("trusted_for_ms") != 5000 {
			t.Errorf("trusted for %v", r.num("trusted_for_ms"))
		}
		w.close()
	})
}

// Whoever ends the lease elsewhere: the stream tells it at the next look, or at the next pong if that comes first.
func TestWatch_lostElsewhere(t *testing.T) {
	for _, tt := range []struct {
		status string
		end    func(b *bubbled, g claims.Guard) error
	}{
		{"released", func(b *bubbled, g claims.Guard) error { return b.store.Release(b.Context(), g) }},
		{"finished", func(b *bubbled, g claims.Guard) error { return b.store.Finish(b.Context(), g) }},
		{"superseded", func(b *bubbled, g claims.Guard) error {
			b.store.Release(b.Context(), g)
			_, err := b.store.Acquire(b.Context(), g.Scope, "other", time.Minute)
			return err
		}},
	} {
		for _, byPong := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by pong %v", tt.status, byPong), func(t *testing.T) {
				bubble(t, func(b *bubbled) {
					w := b.watch(b.acquire("a"))
					w.keep(1)
					time.Sleep(6 * time.Second)
					if err := tt.end(b, claims.Guard{Scope: "default:a", Token: 1}); err != nil {
						t.Fatal(err)
					}
					want := 10 * time.Second // the look
					if byPong {
						want = 6 * time.Second
						slug := map[bool]string{true: "scope-finished", false: "fenced"}[tt.status == "finished"]
						if r := w.pong(1); r.slug() != slug || r.text("lease_status") != tt.status {
							t.Errorf("pong: %s", r.raw)
						}
					} else {
						w.next("ping") // at the same instant as the look, and first
					}
					if e := w.next("lost"); e.at != want || e.data["status"] != tt.status || e.data["reason"] == "" {
						t.Errorf("lost %v after %s, want %s after %s", e.data, e.at, tt.status, want)
					}
					w.next("")
					b.gone()
				})
			})
		}
	}
}

func TestWatch_notLiveAtTheStart(t *testing.T) {
	k := newKit(t)
	k.wants(k.get("watch", "default:never#1"), 409, "fenced")
	token := k.acquire("a", "me")
	k.clock.Advance(30 * time.Second)
	r := k.get("watch", token)
	k.wants(r, 409, "fenced")
	k.same("lease_status", r.text("lease_status"), "expired")
	second := k.acquire("a", "other")
	k.same("lease_status", k.get("watch", token).text("lease_status"), "superseded")
	k.wants(k.post("finish", second, ""), 200, "")
	k.wants(k.get("watch", second), 410, "scope-finished")
}

// The mark is told once on each stream: by a look, by a pong, and on the next holder's stream at its start.
func TestWatch_cancelled(t *testing.T) {
	bubble(t, func(b *bubbled) {
		token := b.acquire("a")
		w := b.watch(token)
		w.keep(1)
		b.post("cancel", "", `{"id":"a"}`)
		if e := w.next("cancelled"); e.at != 5*time.Second {
			t.Errorf("told after %s", e.at)
		}
		b.post("cancel", "", `{"id":"a"}`)
		w.keep(3)
		w.close()
		b.post("release", token, "")
		w = b.watch(b.acquire("a"))
		w.next("ping")
		if e := w.next("cancelled"); e.at != 0 {
			t.Errorf("told after %s", e.at)
		}
		w.close()

		w = b.watch(b.acquire("b"))
		w.next("ping")
		b.post("cancel", "", `{"id":"b"}`)
		if r := w.pong(1); r.body["cancelled"] != true {
			t.Errorf("pong: %s", r.raw)
		}
		if e := w.next("cancelled"); e.at != 0 {
			t.Errorf("told after %s", e.at)
		}
		w.close()
	})
}

// While the store does not answer, the lease is trusted for as long as it was granted, and not longer.
func TestWatch_storeOutage(t *testing.T) {
	for err, reason := range map[error]string{errCut: "store-unavailable", &claims.QuarantineError{Left: time.Minute}: "quarantine"} {
		bubble(t, func(b *bubbled) {
			w := b.watch(b.acquire("a"))
			w.keep(1)
			b.store.breaks(fail(err, "state", "renew"), nil)
			e := w.next("store")
			if e.at != 5*time.Second || e.data["trusted_for_ms"] != 24000.0 || e.data["reason"] != reason {
				t.Errorf("store %v after %s", e.data, e.at)
			}
			w.next("ping")
			if r := w.pong(2); r.status != 503 || r.slug() != reason {
				t.Errorf("pong: %s", r.raw)
			}
			synctest.Wait() // for the look of this instant
			b.store.breaks(nil, nil)
			w.next("ping") // at 20 s: the outage was told once
			if r := w.pong(3); r.status != 200 {
				t.Errorf("pong after the outage: %s", r.raw)
			}
			synctest.Wait()
			b.store.breaks(fail(err, "state", "renew"), nil)
			if e := w.next("store"); e.at != 25*time.Second {
				t.Errorf("the second outage was told after %s", e.at)
			}
			w.next("ping")
			w.next("ping")
			if e := w.next("lost"); e.at != 49*time.Second {
				t.Errorf("lost after %s", e.at)
			}
			w.next("")
			b.gone()
		})
	}
}

// A store that hangs keeps neither the pings nor the end of trust from being told.
func TestWatch_storeHangs(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watch(b.acquire("a"))
		b.store.breaks(func(string) error { time.Sleep(7 * time.Second); return errCut }, nil)
		for _, want := range []string{"ping 0s", "ping 10s", "store 12s", "ping 20s", "lost 29s", " 0s"} {
			name, at, _ := strings.Cut(want, " ")
			if e := w.next(name); e.at.String() != at {
				t.Errorf("%s after %s, want %s", e.name, e.at, at)
			}
		}
		b.gone()
	})
}

// A machine that slept counts the time.
func TestWatch_suspended(t *testing.T) {
	bubble(t, func(b *bubbled) {
		w := b.watch(b.acquire("a"))
		w.keep(1)
		synctest.Wait()                                     // the stream sleeps until its next look
		b.store.breaks(fail(errCut, "state", "renew"), nil) // else the store, whose clock did not sleep, would say that it is live
		b.asleep.Store(int64(25 * time.Second))
		if e := w.next("lost"); e.at != 5*time.Second {
			t.Errorf("lost %v after %s", e.data, e.at)
		}
		w.next("")
	})
}

// A holder that confirms instead of answering pings keeps its watch.
func TestWatch_confirmedElsewhere(t *testing.T) {
	bubble(t, func(b *bubbled) {
		token := b.acquire("a")
		w := b.watch(token)
		for range 9 {
			w.next("ping")
			if r := b.post("confirm", token, ""); r.status != 200 {
				t.Fatalf("confirm: %s", r.raw)
			}
		}
		w.close()
		b.gone()
	})
}

func TestWatch_draining(t *testing.T) {
	bubble(t, func(b *bubbled) {
		token := b.acquire("a")
		ws := []*watcher{b.watch(token), b.watch(b.acquire("b"))}
		for _, w := range ws {
			w.next("ping")
		}
		b.Close()
		for _, w := range ws {
			w.next("draining")
			w.next("")
		}
		b.gone()
		if r := ws[0].pong(1); r.slug() != "unknown-watch" {
			t.Errorf("pong: %s", r.raw)
		}
		if r := b.post("confirm", token, ""); r.status != 200 { // the lease itself goes on
			t.Errorf("confirm: %s", r.raw)
		}
	})
}

// A client that stopped reading holds nothing.
func TestWatch_readerStops(t *testing.T) {
	bubble(t, func(b *bubbled) {
		token := b.acquire("a")
		conn := b.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/leases/watch HTTP/1.1\r\nHost: localhost\r\nFence-Token: %s\r\n\r\n", token)
		for lines := bufio.NewScanner(conn); lines.Scan() && !strings.HasPrefix(lines.Text(), "data: "); {
		}
		synctest.Wait()
		if n := metric(t, b.reg, "fence_lease_watches"); n != "1" {
			t.Fatalf("%s watches", n)
		}
		time.Sleep(10*time.Second + ioTimeout + time.Second)
		b.gone()
	})
}

// Many watches end with their clients; the bubble fails for every goroutine that stays.
func TestWatch_many(t *testing.T) {
	bubble(t, func(b *bubbled) {
		var ws []*watcher
		for i := range 200 {
			w := b.watch(b.acquire(fmt.Sprint("a", i)))
			w.next("ping")
			ws = append(ws, w)
		}
		if n := metric(t, b.reg, "fence_lease_watches"); n != "200" {
			t.Errorf("%s watches are counted", n)
		}
		time.Sleep(7 * time.Second) // looks, too
		for _, w := range ws {
			w.close()
		}
		b.gone()
	})
}
