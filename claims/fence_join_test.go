package claims_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// slowly lets the gateway take its time for an answer.
func (w *world) slowly(d time.Duration, word func(p claims.Pass) claims.Sent) {
	w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
		time.Sleep(d)
		return word(p)
	}
}

// asked is the process that a second request comes to. The caller must call the function.
func (w *world) asked(where string) (p *process, end func()) {
	if where == "same process" {
		return w.p, func() {}
	}
	p = w.process("p2")
	w.keep(p)
	return p, func() { w.drain(p) }
}

// TestJoin: a request that meets an attempt in flight waits for it, in this process without asking the store, and gets its result.
func TestJoin(t *testing.T) {
	refusedThere := claims.Sent{Outcome: claims.NotExecuted, Answer: &claims.Answer{Status: 400, Body: []byte("bad amount")}}
	boom := claims.Sent{Answer: &claims.Answer{Status: 500, Body: []byte("boom")}, Cause: "unlisted", Error: true}
	for name, c := range map[string]struct {
		word  func(w *world, p claims.Pass) claims.Sent
		check func(t *testing.T, r claims.Result)
		done  int
	}{
		"succeeded": {func(w *world, p claims.Pass) claims.Sent { return w.gw.charge(p) },
			func(t *testing.T, r claims.Result) {
				wantAnswer(t, r, claims.SourceJoined, claims.Succeeded, "paid gk:a")
			}, 1},
		"declined": {func(*world, claims.Pass) claims.Sent {
			return claims.Sent{Outcome: claims.Declined, Answer: &claims.Answer{Status: 402, Body: []byte("no")}}
		}, func(t *testing.T, r claims.Result) { wantAnswer(t, r, claims.SourceJoined, claims.Declined, "no") }, 0},
		"refused": {func(*world, claims.Pass) claims.Sent { return refusedThere },
			func(t *testing.T, r claims.Result) {
				wantAnswer(t, r, claims.SourceJoined, claims.NotExecuted, "bad amount")
			}, 0},
		"unsent": {func(*world, claims.Pass) claims.Sent { return claims.Sent{Unsent: true, Cause: "dial"} },
			func(t *testing.T, r claims.Result) { wantRefusal(t, r, claims.NotSent, claims.NotExecuted) }, 0},
		"in doubt": {func(w *world, p claims.Pass) claims.Sent { w.gw.charge(p); return claims.Sent{Cause: "cut"} },
			func(t *testing.T, r claims.Result) { wantRefusal(t, r, claims.InDoubt, claims.Unknown) }, 1},
		"server error": {func(*world, claims.Pass) claims.Sent { return boom },
			func(t *testing.T, r claims.Result) { wantAnswer(t, r, claims.SourceJoined, claims.Unknown, "boom") }, 0},
	} {
		for _, where := range []string{"same process", "another process"} {
			if name == "server error" && where == "another process" {
				continue // its answer is not in the record: that request says in-doubt
			}
			t.Run(name+" "+where, func(t *testing.T) {
				bubble(t, func(w *world) {
					w.keep(w.p)
					other, end := w.asked(where)
					defer end()
					w.slowly(5*time.Second, func(p claims.Pass) claims.Sent { return c.word(w, p) })
					first := make(chan claims.Result, 1)
					call := w.call("a")
					call.Policy.Probe = false
					go func() { first <- w.p.fence.Do(context.Background(), call) }()
					time.Sleep(time.Second)
					var reads atomic.Int64 // both requests read
					w.tap.set(func(tp *tap) { tp.onGet = func(context.Context) error { reads.Add(1); return nil } })
					call.Wait = 10 * time.Second
					r := other.fence.Do(context.Background(), call)
					c.check(t, r)
					doubt := name == "in doubt" || name == "server error" // looked into after the join
					if n := reads.Load(); where == "same process" && !doubt && n > 2 || n > 40 {
						t.Errorf("%d reads for one join", n)
					}
					<-first
					w.sends(1)
					w.executed("a", c.done)
				})
			})
		}
	}
}

func TestJoinEnds(t *testing.T) {
	t.Run("with its own time", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.slowly(8*time.Second, w.gw.charge)
			go w.do(w.call("a"))
			synctest.Wait()
			for wait, want := range map[time.Duration]time.Duration{0: 0, 3 * time.Second: 3 * time.Second} {
				began := time.Now()
				c := w.call("a")
				c.Wait = wait
				wantRefusal(t, w.do(c), claims.InFlight, claims.Unknown)
				if d := time.Since(began); d != want {
					t.Errorf("waited %s of %s", d, wait)
				}
			}
		})
	})
	t.Run("with the drain", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.slowly(8*time.Second, w.gw.charge)
			go w.do(w.call("a"))
			synctest.Wait()
			c := w.call("a")
			c.Wait = time.Hour
			done := make(chan claims.Result, 1)
			go func() { done <- w.do(c) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			w.p.fence.Drain(ctx)
			if r := <-done; r.Answer != nil {
				t.Errorf("%s", show(r))
			}
		})
	})
}

// TestJoinersFence: a joiner whose lease is lost while it waits learns nothing of the result, in this process and from another.
func TestJoinersFence(t *testing.T) {
	for _, where := range []string{"same process", "another process"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				other, end := w.asked(where)
				defer end()
				c := w.call("a")
				c.Guard = w.lease("shop:run", time.Hour)
				w.slowly(5*time.Second, w.gw.charge)
				go w.do(c)
				synctest.Wait()
				j := c
				j.Wait = 10 * time.Second
				done := make(chan claims.Result, 1)
				go func() { done <- other.fence.Do(context.Background(), j) }()
				time.Sleep(time.Second)
				w.takeAway(c.Guard)
				r := <-done
				wantRefusal(t, r, claims.Fenced, claims.Unknown)
				if r.Answer != nil || r.Lease != "lost" {
					t.Errorf("%s", show(r))
				}
				w.sends(1)
			})
		})
	}
}

// TestJoinerNeverClaims: however often the attempts that it joins come to nothing, only those who claimed send.
func TestJoinerNeverClaims(t *testing.T) {
	bubble(t, func(w *world) {
		w.slowly(time.Second, func(claims.Pass) claims.Sent { return claims.Sent{Unsent: true, Cause: "dial"} })
		go w.do(w.call("a"))
		synctest.Wait()
		c := w.call("a")
		c.Wait = time.Minute
		done := make(chan claims.Result, 10)
		for range 10 {
			go func() { done <- w.do(c) }()
		}
		for range 10 {
			wantRefusal(t, <-done, claims.NotSent, claims.NotExecuted)
		}
		w.sends(1)
	})
}
