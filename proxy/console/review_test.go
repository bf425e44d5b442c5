package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func word(version int64, word, why string) string {
	return fmt.Sprintf(`{"version":%d,"word":%q,"why":%q}`, version, word, why)
}

// Each word does what the command's does, once, with who, when and why in the record.
func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		word    string
		to      claims.State
		outcome string
		event   string
	}{
		{"executed", claims.StateSucceeded, "succeeded", "a review>succeeded "},
		{"not-executed", claims.StateOpen, "not-executed", "a review>open "},
		{"look-again", claims.StateUnknown, "unknown", ""},
	} {
		t.Run(tt.word, func(t *testing.T) {
			k := newKit(t, operated)
			k.call("a", claims.StateReview)
			k.clock.Advance(time.Hour)
			body := fmt.Sprintf(`{"version":1,"word":%q,"why":"customer asked","evidence":"ch_1 in the dashboard"}`, tt.word)
			r := k.tell("resolve", adaToken, body, "key", "a")
			k.wants(r, 200, "")
			e := r.call()["evidence"].([]any)[0].(map[string]any)
			k.same("evidence", e, map[string]any{
				"revision": 1.0, "attempt": 1.0, "outcome": tt.outcome, "source": "operator", "at": e["at"], "by": "ada",
				"note": "customer asked; evidence: ch_1 in the dashboard [of version 1]",
			})
			if at, err := time.Parse(time.RFC3339, e["at"].(string)); err != nil || !at.Equal(k.clock.Now().Wall) {
				t.Errorf("at %v, want %v", e["at"], k.clock.Now().Wall)
			}
			again := k.tell("resolve", adaToken, body, "key", "a")
			k.wants(again, 200, "")
			rec := k.record("a")
			if r.body["repeated"] != false || again.body["repeated"] != true || rec.State != tt.to || rec.Version != 2 || len(rec.Evidence) != 1 {
				t.Errorf("%v, %v, %s, version %d, %d words", r.body["repeated"], again.body["repeated"], rec.State, rec.Version, len(rec.Evidence))
			}
			k.same("events", strings.Join(k.eventsOf(), ","), tt.event)
			if n := metric(t, k.reg, `fence_calls_resolved_total{word="`+tt.word+`"}`); n != "1" {
				t.Errorf("%s words are counted", n)
			}
			// The same word by another, or another word, was not said before.
			for _, p := range []reply{k.tell("resolve", bobToken, body, "key", "a"), k.tell("resolve", adaToken, word(1, tt.word, "other"), "key", "a")} {
				k.wants(p, 409, "record-changed")
				if p.call()["version"] != 2.0 {
					t.Errorf("the present state is not told: %s", p.raw)
				}
			}
		})
	}
}

func TestResolve_refused(t *testing.T) {
	k := newKit(t, operated)
	k.call("fresh", claims.StateReview)
	k.wants(k.tell("resolve", adaToken, word(1, "not-executed", "w"), "key", "fresh"), 409, "not-resolvable") // it may still be executed
	k.call("paid", claims.StateReview, func(r *claims.Record) {
		r.Evidence = []claims.Evidence{{Revision: 1, Outcome: claims.Succeeded, Source: "answer", Read: true}}
	})
	k.clock.Advance(time.Hour)
	k.wants(k.tell("resolve", adaToken, word(1, "not-executed", "w"), "key", "paid"), 409, "not-resolvable")
	for _, state := range []claims.State{claims.StatePending, claims.StateUnknown, claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateCancelled} {
		k.call(string(state), state)
		k.wants(k.tell("resolve", adaToken, word(1, "executed", "w"), "key", string(state)), 409, "not-resolvable")
	}
	for _, version := range []int64{2, 7} {
		k.wants(k.tell("resolve", adaToken, word(version, "executed", "w"), "key", "fresh"), 409, "record-changed")
	}
	k.wants(k.tell("resolve", adaToken, word(1, "executed", "w"), "key", "nobody"), 404, "no-such-call")
	for _, body := range []string{
		``, `{}`, `{"version":1,"word":"executed"}`, `{"version":1,"why":"w"}`, `{"word":"executed","why":"w"}`, word(0, "executed", "w"), word(1, "paid", "w"), word(1, "", "w"),
		word(1, "executed", ""), word(1, "executed", "a\nb"), word(1, "executed", strings.Repeat("x", maxText+1)), `{"version":"1","word":"executed","why":"w"}`,
		`{"version":1,"word":"executed","why":"w","evidence":""}`, `{"version":1,"word":"executed","why":"w","evidence":{}}`, `{"version":1,"word":"executed","why":"w","who":"bob"}`,
	} {
		k.wants(k.tell("resolve", adaToken, body, "key", "fresh"), 400, "bad-request")
	}
	if r := k.record("fresh"); r.Version != 1 || r.State != claims.StateReview {
		t.Errorf("changed: %+v", r)
	}
	k.same("events", len(k.eventsOf()), 0)
}

// The store's answer was lost: the word counts once, and is not told before it is sure.
func TestResolve_perhapsApplied(t *testing.T) {
	body := word(1, "executed", "w")
	t.Run("applied", func(t *testing.T) {
		k := newKit(t, operated)
		k.call("a", claims.StateReview)
		k.store.breaks(nil, fail(errCut, "swap"))
		r := k.tell("resolve", adaToken, body, "key", "a")
		k.wants(r, 200, "")
		if rec := k.record("a"); rec.Version != 2 || len(rec.Evidence) != 1 || r.call()["state"] != "succeeded" {
			t.Errorf("%+v", rec)
		}
	})
	t.Run("not applied", func(t *testing.T) {
		k := newKit(t, operated)
		k.call("a", claims.StateReview)
		k.store.breaks(fail(errCut, "swap"), nil)
		k.wants(k.tell("resolve", adaToken, body, "key", "a"), 503, "store-unavailable")
		if rec := k.record("a"); rec.Version != 1 {
			t.Errorf("%+v", rec)
		}
		k.store.breaks(nil, nil)
		k.wants(k.tell("resolve", adaToken, body, "key", "a"), 200, "")
	})
	t.Run("not sure", func(t *testing.T) {
		k := newKit(t, operated)
		k.call("a", claims.StateReview)
		k.store.breaks(fail(errCut, "confirm"), fail(errCut, "swap"))
		for range 2 { // the second sees what the first wrote, and does not know whether it lasts
			k.wants(k.tell("resolve", adaToken, body, "key", "a"), 503, "store-unavailable")
		}
		k.store.breaks(nil, nil)
		if r := k.tell("resolve", adaToken, body, "key", "a"); r.status != 200 || r.body["repeated"] != true {
			t.Errorf("%d %s", r.status, r.raw)
		}
	})
	t.Run("overtaken", func(t *testing.T) {
		k := newKit(t, operated)
		k.call("a", claims.StateReview)
		once := true
		k.store.breaks(func(op string) error {
			if op == "swap" && once { // somebody else writes between our reading and our writing
				once = false
				rec := k.record("a")
				k.put(claims.Write{Version: rec.Version, Next: rec})
			}
			return nil
		}, nil)
		k.wants(k.tell("resolve", adaToken, body, "key", "a"), 409, "record-changed")
		if rec := k.record("a"); rec.State != claims.StateReview || len(rec.Evidence) != 0 {
			t.Errorf("%+v", rec)
		}
	})
}

// The same words about a later version are another word.
func TestResolve_anotherTime(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateReview)
	k.wants(k.tell("resolve", adaToken, word(1, "look-again", "credential renewed"), "key", "a"), 200, "")
	rec := k.record("a")
	rec.State, rec.Review = claims.StateReview, &claims.Review{Reason: "still"}
	rec = k.put(claims.Write{Version: rec.Version, Next: rec})
	body := word(rec.Version, "look-again", "credential renewed")
	rec = k.put(claims.Write{Version: rec.Version, Next: rec})
	k.wants(k.tell("resolve", adaToken, body, "key", "a"), 409, "record-changed")
	k.wants(k.tell("resolve", adaToken, word(rec.Version, "look-again", "credential renewed"), "key", "a"), 200, "")
}
