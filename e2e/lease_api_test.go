package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The lease API of the built program, through two sidecars of one store.

func TestLeaseAPI(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		const ttl = 20 * time.Second
		p := s.a.ask("/v1/leases/acquire", "", wanted("order 1", "pod-1", ttl))
		l := p.lease(t)
		if l.Scope != "default:order%201" || l.Token != 1 || l.FenceToken != l.Scope+"#1" || l.Status != "live" || l.Holder != "pod-1" || l.Cancelled {
			t.Errorf("acquired %s", p)
		}
		wantTrusted(t, p, l, ttl)
		held := s.b.ask("/v1/leases/acquire", "", wanted("order 1", "pod-2", ttl))
		held.want(t, 409, "held")
		if r := held.retryAfter(); r < 1 || r > 20 || !strings.Contains(string(held.body), `"holder":"pod-1"`) {
			t.Errorf("held: %s", held)
		}
		one := l.FenceToken
		p = s.b.ask("/v1/leases/confirm", one, fmt.Sprintf(`{"ttl_ms":%d}`, (2*ttl).Milliseconds()))
		confirmed := p.lease(t)
		if confirmed.FenceToken != one || confirmed.Status != "live" {
			t.Errorf("a lease that was taken through A was confirmed through B: %s", p)
		}
		wantTrusted(t, p, confirmed, 2*ttl)
		if st := s.scopeState("order%201"); st.Status != "live" || st.Token != 1 || st.Holder != "pod-1" || st.Remaining <= ttl.Milliseconds() || st.FenceToken != "" {
			t.Errorf("state %+v", st)
		}
		s.wantStanding(one, false, "live", 1)

		if c := s.b.ask("/v1/leases/cancel", "", `{"id":"order 1"}`).lease(t); !c.Cancelled || c.Status != "live" || c.Token != 1 {
			t.Errorf("marked %+v", c)
		}
		if p := s.a.ask("/v1/leases/confirm", one, "{}"); !p.lease(t).Cancelled || p.header("Fence-Cancelled") != "true" {
			t.Errorf("the holder is not told that its scope was marked: %s", p)
		}
		for range 2 { // the answer may have been lost
			if r := s.b.ask("/v1/leases/release", one, "{}").lease(t); r.Status != "released" || r.Trusted != 0 {
				t.Errorf("released %+v", r)
			}
		}
		s.wantStanding(one, true, "released", 1)
		s.a.ask("/v1/leases/confirm", one, "{}").want(t, 409, "fenced")
		s.leaseAPINextHolder(t, one, ttl)
	})
}

// leaseAPINextHolder goes on with TestLeaseAPI: the second lease of the scope, and its end.
func (s scoped) leaseAPINextHolder(t *testing.T, one string, ttl time.Duration) {
	two := s.b.ask("/v1/leases/acquire", "", wanted("order 1", "pod-2", ttl)).lease(t)
	if two.Token != 2 || !two.Cancelled {
		t.Errorf("acquired again: %+v", two)
	}
	s.wantStanding(one, true, "superseded", 2)
	for _, end := range []string{"confirm", "release", "finish"} {
		s.b.ask("/v1/leases/"+end, one, "{}").want(t, 409, "fenced")
	}
	s.wantStanding(two.FenceToken, false, "live", 2)
	for _, x := range []*sidecar{s.a, s.b} { // the second asks because the answer was lost
		if f := x.ask("/v1/leases/finish", two.FenceToken, "{}").lease(t); f.Status != "finished" {
			t.Errorf("finished %+v", f)
		}
	}
	s.wantStanding(two.FenceToken, true, "finished", 2)
	s.a.ask("/v1/leases/acquire", "", wanted("order 1", "pod-3", ttl)).want(t, 410, "scope-finished")
	var log struct {
		Events []struct {
			Token         uint64
			Event, Holder string
		}
	}
	if err := json.Unmarshal(s.a.ask("/v1/leases/log?id=order%201", "", "").body, &log); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(log.Events); got != "[{1 take pod-1} {1 cancel pod-1} {1 release pod-1} {2 take pod-2} {2 finish pod-2}]" {
		t.Errorf("log %s", got)
	}
}

// wantTrusted fails the test unless a lease may be trusted for some time, and less than it was asked for.
func wantTrusted(t *testing.T, p reply, l lease, ttl time.Duration) {
	t.Helper()
	if l.Trusted <= 0 || l.Trusted >= ttl.Milliseconds() || p.header("Fence-Trusted-For-Ms") != fmt.Sprint(l.Trusted) || p.header("Fence-Token") != l.FenceToken {
		t.Errorf("trusted for %d ms of %s: %s", l.Trusted, ttl, p)
	}
}

// scopeState asks how a scope stands.
func (s scoped) scopeState(id string) lease {
	s.t.Helper()
	return s.b.ask("/v1/leases/state?tenant=default&id="+id, "", "").lease(s.t)
}

// wantStanding fails the test unless both sidecars say this of a token.
func (s scoped) wantStanding(token string, fenced bool, status string, newest uint64) {
	s.t.Helper()
	for _, x := range []*sidecar{s.a, s.b} {
		p := x.ask("/v1/leases/fenced", token, "")
		var v struct {
			Fenced bool
			Status string
			Token  uint64
		}
		if err := json.Unmarshal(p.body, &v); err != nil || p.status != 200 || v.Fenced != fenced || v.Status != status || v.Token != newest {
			s.t.Errorf("%s is %s, newest %d: got %s", token, status, newest, p)
		}
	}
}

// event is one of a watch.
type event struct {
	name string
	n    int64  // of a ping
	id   string // of the watch
	data string
}

// watch opens a watch of a lease and returns its events; the channel is closed at its end.
func (s *sidecar) watch(token string, ttl time.Duration) <-chan event {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", fmt.Sprintf("http://%s/v1/leases/watch?ttl_ms=%d", s.at("control"), ttl.Milliseconds()), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Fence-Token", token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("watch: %v %+v", err, resp)
	}
	events := make(chan event, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		var e event
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			name, v, _ := strings.Cut(in.Text(), ": ")
			switch name {
			case "event":
				e.name = v
			case "data":
				var d struct {
					N     int64
					Watch string
				}
				json.Unmarshal([]byte(v), &d)
				e.data, e.n, e.id = v, d.N, d.Watch
			case "":
				events <- e
				e = event{}
			}
		}
	}()
	s.t.Cleanup(func() { resp.Body.Close(); <-done })
	return events
}

// next is a watch's next event; the zero event at its end.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
		return event{}
	}
}

func (s *sidecar) pong(token string, ping event) reply {
	s.t.Helper()
	return s.ask("/v1/leases/pong", token, fmt.Sprintf(`{"watch":%q,"n":%d}`, ping.id, ping.n))
}

// TestWatch: a lease lives for as long as its holder answers the pings, and no longer; the stream tells of its end at once.
func TestWatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		const ttl = 3 * time.Second
		kept, silent, ended := s.a.acquire("kept", ttl), s.a.acquire("silent", ttl), s.a.acquire("ended", minute)
		keeping, hanging, ending := s.a.watch(kept, ttl), s.a.watch(silent, ttl), s.a.watch(ended, ttl)
		var last event
		for range 5 { // for more than one lease
			last = next(t, keeping)
			if last.name != "ping" {
				t.Fatalf("the holder answers, and is told %+v", last)
			}
			p := s.a.pong(kept, last)
			wantTrusted(t, p, p.lease(t), ttl)
		}
		if l := s.scopeState("kept"); l.Status != "live" {
			t.Errorf("the holder answered its pings, and its lease is %s", l.Status)
		}
		s.b.pong(kept, last).want(t, 404, "unknown-watch")
		wantLost(t, hanging, "expired")
		s.leaseOver("silent")
		newer := s.b.acquire("silent", minute)
		s.charge(charge("k").under(silent)).wantFenced(t)
		s.charge(charge("k").under(newer)).wantResult(t, "succeeded", "sent")

		s.b.release(ended) // by somebody else: the stream tells within a sixth of its lease
		wantLost(t, ending, "released")
		wantLost(t, keeping, "expired") // nobody answers any more

		draining := s.a.watch(s.a.acquire("drained", minute), minute)
		s.a.signal(syscall.SIGTERM)
		for e := (event{}); e.name != "draining"; {
			if e = <-draining; e.name != "ping" && e.name != "draining" {
				t.Fatalf("the sidecar ends, and the watch says %+v", e)
			}
		}
		if l := s.scopeState("drained"); l.Status != "live" {
			t.Errorf("the lease ended with its sidecar: %s", l.Status)
		}
		if code := s.a.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// wantLost reads a watch to its end, which must be the loss of the lease. Nobody answers its pings.
func wantLost(t *testing.T, events <-chan event, status string) {
	t.Helper()
	var last event
	for end := time.Now().Add(patience); ; {
		e := next(t, events)
		if e.name == "" {
			break
		}
		if last = e; time.Now().After(end) {
			t.Fatalf("the stream goes on without an answer: %+v", last)
		}
	}
	if last.name != "lost" || !strings.Contains(last.data, `"status":"`+status+`"`) {
		t.Errorf("want the loss of a lease that is %s, got %+v", status, last)
	}
}
