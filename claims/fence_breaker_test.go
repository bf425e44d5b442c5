package claims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func TestBreaker(t *testing.T) {
	type told struct{ err error }
	admit := func(got *[]told) func() (func(error), error) {
		return func() (func(error), error) {
			return func(err error) { *got = append(*got, told{err}) }, nil
		}
	}
	t.Run("open: nothing is claimed", func(t *testing.T) {
		bubble(t, func(w *world) {
			c := w.call("a")
			c.Admit = func() (func(error), error) { return nil, errors.New("circuit breaker is open") }
			wantRefusal(t, w.do(c), claims.BreakerOpen, claims.NotExecuted)
			if r := w.record("a"); r.Exists() {
				t.Error("claimed")
			}
			w.sends(0)
		})
	})
	t.Run("not asked for a replay", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.do(w.call("a"))
			c := w.call("a")
			c.Admit = func() (func(error), error) { t.Error("asked"); return func(error) {}, nil }
			w.do(c)
		})
	})
	t.Run("lost claim is not counted", func(t *testing.T) {
		bubble(t, func(w *world) {
			var got []told
			c := w.call("a")
			c.Admit = admit(&got)
			w.tap.set(func(tp *tap) {
				tp.onSwap = func(n int, _ claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
					if n == 1 { // another process is quicker
						w.tap.set(func(tp *tap) { tp.onSwap = nil })
						w.do(w.call("a"))
					}
					return do()
				}
			})
			wantAnswer(t, w.do(c), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
			if len(got) != 1 || !errors.Is(got[0].err, claims.ErrNotCounted) {
				t.Errorf("told %v", got)
			}
			w.sends(1)
		})
	})
	t.Run("gate refusal is not counted", func(t *testing.T) {
		bubble(t, func(w *world) {
			var got []told
			c := w.call("a")
			c.Admit = admit(&got)
			w.gw.before = func(claims.Pass) { w.p.clock.bend(0, 0, time.Hour) }
			w.do(c)
			if len(got) != 1 || !errors.Is(got[0].err, claims.ErrNotCounted) {
				t.Errorf("told %v", got)
			}
			w.sends(0)
		})
	})
	for _, tc := range []struct {
		name string
		s    claims.Sent
		good bool
	}{
		{"success", claims.Sent{Outcome: claims.Succeeded, Answer: answer(200, "ok")}, true},
		{"decline", claims.Sent{Outcome: claims.Declined, Answer: answer(402, "no")}, true},
		{"500", claims.Sent{Cause: "unlisted", Answer: answer(500, "boom")}, false},
		{"no answer", claims.Sent{Cause: "cut"}, false},
		{"no connection", claims.Sent{Unsent: true, Cause: "dial"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var got []told
				c := w.call("a")
				c.Admit, c.Policy.Probe = admit(&got), false
				c.Send = func(context.Context, claims.Pass, func() error) claims.Sent { return tc.s }
				w.do(c)
				if len(got) != 1 || (got[0].err == nil) != tc.good || errors.Is(got[0].err, claims.ErrNotCounted) {
					t.Errorf("told %v", got)
				}
			})
		})
	}
}

// TestSentIsNeverToldUnsent: a request whose own first attempt left is not told, by what stops its probe, that nothing was
// sent.
func TestSentIsNeverToldUnsent(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }
		c := w.call("a")
		asked := 0
		c.Admit = func() (func(error), error) {
			if asked++; asked > 1 {
				return nil, errors.New("circuit breaker is open")
			}
			return func(error) {}, nil
		}
		wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
		if asked != 2 {
			t.Errorf("the breaker was asked %d times: the case was not met", asked)
		}
		w.sends(1)
	})
}
