package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// The calls API of the built program.

const operatorToken = "e2e-operator-token-0123456789"

// adaOperates is the configuration of one operator, ada, whose token is in a file.
func adaOperates(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(operatorToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("operators: [{name: ada, token: {file: %q}}]\n", file)
}

// callsPath is an operation's target for a call.
func callsPath(op, key string) string { return "/v1/calls/" + op + "?key=" + url.QueryEscape(key) }

// decide posts to the calls API; token may be "".
func (s *sidecar) decide(target, token, body string) reply {
	s.t.Helper()
	auth := "Authorization: "
	if token != "" {
		auth += "Bearer " + token
	}
	return send(s.at("control"), request{target: target, body: body, lines: []string{"Content-Type: application/json", auth}})
}

func (s *sidecar) resolve(key, token string, version int64, word, why string) reply {
	s.t.Helper()
	return s.decide(callsPath("resolve", key), token, fmt.Sprintf(`{"version":%d,"word":%q,"why":%q}`, version, word, why))
}

func (s *sidecar) notice(query, body string) reply {
	s.t.Helper()
	return s.decide("/v1/calls/evidence?"+query, operatorToken, body)
}

// asCall reads the member call of a reply.
func (p reply) asCall(t *testing.T) (c shownCall) {
	t.Helper()
	var v struct{ Call *shownCall }
	v.Call = &c
	if err := json.Unmarshal(p.body, &v); err != nil || p.err != nil || c.Call == "" {
		t.Fatalf("want a call, got %s", p)
	}
	return c
}

// wantHeard fails the test unless a notice was heard so.
func (p reply) wantHeard(t *testing.T, result string) {
	t.Helper()
	var v struct{ Result string }
	if err := json.Unmarshal(p.body, &v); err != nil || p.status != 200 || v.Result != result {
		t.Errorf("want a notice that is %s, got %s", result, p)
	}
}

// hushed is a world with two sidecars and a gateway that executes the first charge, says nothing, and shows it to no lookup
// until told to.
func hushed(t *testing.T, d database, edit func(*settings)) (w *world, a, b *sidecar, g *rawGateway) {
	t.Helper()
	var seen atomic.Bool
	g = newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet || seen.Swap(true) {
			return behave
		}
		c.book()
		return c.fin()
	})
	g.hide(true)
	s := settings{store: d, gateway: []use{rawUse(g)}, extra: adaOperates(t)}
	if edit != nil {
		edit(&s)
	}
	w = rawWorld(t, s)
	a, b = w.pair()
	return w, a, b, g
}

// TestCallsAPI: a review is looked at and resolved over HTTP, by an operator only, and only as it was seen.
func TestCallsAPI(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		const key = "pay:42/é?x"
		w, a, b, g := hushed(t, d, func(s *settings) { s.gateway[0].retention = "1s" })
		send(a.at("raw"), plain(key, "/plain/pay")).want(t, 410, "retention-passed")
		w.wantState(key, claims.StateReview)
		seen := b.ask(callsPath("show", key), "", "").asCall(t)
		if seen.State != "review" || seen.Review == "" || len(seen.Attempts) != 1 {
			t.Errorf("shown %+v", seen)
		}
		if cli := w.shown("show", key)[0]; fmt.Sprint(cli) != fmt.Sprint(seen) {
			t.Errorf("the command shows\n%+v\nthe API\n%+v", cli, seen)
		}
		said := string(send(a.at("control"), request{method: "GET", target: callsPath("explain", key), lines: []string{"Accept: text/plain"}}).body)
		if cli, _, _ := w.cli("calls", "explain", key); said != cli || !strings.Contains(said, "a person decides") {
			t.Errorf("the command explains\n%s\nthe API\n%s", cli, said)
		}
		if p := a.ask("/v1/calls?state=review", "", ""); p.status != 200 || !strings.Contains(string(p.body), seen.GatewayKey) {
			t.Errorf("list: %s", p)
		}
		version := w.record(key).Version
		for token, want := range map[string]int{"": 401, operatorToken + "0": 401, secret: 401} {
			p := a.resolve(key, token, version, "executed", "w")
			if p.want(t, want, "unauthorized"); !strings.HasPrefix(p.header("WWW-Authenticate"), "Bearer ") {
				t.Errorf("%s", p)
			}
		}
		a.resolve(key, operatorToken, version-1, "executed", "w").want(t, 409, "record-changed")
		a.resolve(key, operatorToken, version+1, "executed", "w").want(t, 409, "record-changed")
		if now := w.record(key); now.Version != version {
			t.Fatalf("it was changed: %+v", now)
		}
		for _, s := range []*sidecar{a, b} { // the second asks because the answer was lost
			p := s.resolve(key, operatorToken, version, "executed", "ch_1 in the dashboard")
			if c := p.asCall(t); p.status != 200 || c.State != "succeeded" {
				t.Errorf("resolved: %s", p)
			}
		}
		a.resolve(key, operatorToken, version, "look-again", "on an old screen").want(t, 409, "record-changed")
		trail := a.ask(callsPath("show", key), "", "").asCall(t).Evidence
		if len(trail) != 1 || trail[0].By != "ada" || trail[0].Source != "operator" || trail[0].Outcome != "succeeded" || !strings.Contains(trail[0].Note, "ch_1 in the dashboard") {
			t.Errorf("audit trail %+v", trail)
		}
		send(b.at("raw"), plain(key, "/plain/pay")).want(t, 409, "answer-gone")
		g.wantSends(1)
		if n := a.metric(`fence_calls_api_refusals_total{reason="unauthorized"}`); n != "3" {
			t.Errorf("%s refusals are counted", n)
		}
		if log := a.logs() + b.logs(); strings.Contains(log, operatorToken) || !strings.Contains(log, "a change was refused") || !strings.Contains(log, "call resolved") {
			t.Error("the log holds the token, or not what was done")
		}
	})
}

// TestCallsAPI_noOperators: without any, nothing is changed over HTTP.
func TestCallsAPI_noOperators(t *testing.T) {
	t.Parallel()
	w, a, _, _ := hushed(t, database{}, func(s *settings) { s.extra = "" })
	send(a.at("raw"), charge("k", "Prefer: wait=0")).want(t, 504, "in-doubt")
	a.resolve("k", operatorToken, w.record("k").Version, "executed", "w").want(t, 403, "no-operators")
	a.notice("key=k", `{"id":"1","outcome":"succeeded"}`).want(t, 403, "no-operators")
	w.wantState("k", claims.StateUnknown)
}

// news reads a sidecar's stream of events.
func (s *sidecar) news(query, last string) <-chan event {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.at("control")+"/v1/events"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("events: %v %+v", err, resp)
	}
	events, done := make(chan event, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		var e event
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			switch name, v, _ := strings.Cut(in.Text(), ": "); name {
			case "event":
				e.name = v
			case "data":
				e.data = v
			case "id":
				e.id = v
			case "":
				if e.data != "" {
					events <- e
				}
				e = event{}
			}
		}
	}()
	s.t.Cleanup(func() { resp.Body.Close(); <-done })
	return events
}

// TestEventStream: a doubt that settles in another process of the store is told, once, and again to who comes back for it.
func TestEventStream(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		w, a, b, g := hushed(t, d, nil)
		stream := a.news("", "")
		for _, key := range []string{"k1", "k2"} {
			send(b.at("raw"), charge(key, "Prefer: wait=0"))
		}
		send(b.at("raw"), charge("k3", "Prefer: wait=0"))
		doubt := w.record("k1")
		if doubt.State != claims.StateUnknown {
			t.Fatalf("the first call is %s", doubt.State)
		}
		b.notice("key=k1", `{"id":"evt_1","outcome":"succeeded","payment":"pending"}`).wantHeard(t, "taken")
		b.notice("reference="+doubt.Facts.Reference, `{"id":"evt_2","payment":"done"}`).wantHeard(t, "taken")
		b.notice("key=k1", `{"id":"evt_3","outcome":"declined"}`).want(t, 409, "notice-conflict")
		var first event
		for i, want := range []struct{ name, part string }{
			{"settled", `"from":"unknown","state":"succeeded","outcome":"succeeded","payment":"pending"`},
			{"payment", `"payment":"done"`},
			{"review", `"from":"succeeded","state":"review","outcome":"unknown"`},
		} {
			e := next(t, stream)
			if e.name != want.name || !strings.Contains(e.data, `"call":"k1"`) || !strings.Contains(e.data, want.part) || e.id == "" {
				t.Errorf("event %+v, want %+v", e, want)
			}
			if i == 0 {
				first = e
			}
		}
		for name, again := range map[string]<-chan event{"header": b.news("", first.id), "address": b.news("?after="+first.id, "")} {
			if e := next(t, again); e.name != "payment" {
				t.Errorf("by %s: %+v", name, e)
			}
		}
		if e := next(t, b.news("?after=start", "")); e != first {
			t.Errorf("from the start: %+v", e)
		}
		g.wantSends(3)
		if code := a.term(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		for e := range stream {
			if e.name != "draining" {
				t.Errorf("at the end: %+v", e)
			}
		}
	})
}

// TestEventStream_reconciled: what the sweeper finds out is told, too.
func TestEventStream_reconciled(t *testing.T) {
	t.Parallel()
	w, a, b, g := hushed(t, database{}, nil)
	streams := []<-chan event{a.news("", ""), b.news("", "")}
	send(b.at("raw"), charge("k1", "Prefer: wait=0")).want(t, 504, "in-doubt")
	g.hide(false)
	w.wantState("k1", claims.StateSucceeded)
	for _, s := range streams {
		if e := next(t, s); e.name != "settled" || !strings.Contains(e.data, `"call":"k1"`) || !strings.Contains(e.data, `"from":"unknown"`) {
			t.Errorf("event %+v", e)
		}
	}
	g.wantSends(1)
}
