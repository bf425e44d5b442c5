package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// watch is one stream that tells a holder how its lease stands. It lives in this process only.
//
// It renews nothing by itself: a lease that a sidecar kept up for a process that hangs would never come free. Only a pong, which
// the application sends, renews.
type watch struct {
	id    string
	guard claims.Guard
	ttl   time.Duration
	wake  chan struct{} // capacity 1: what is below changed

	mu        sync.Mutex
	n         int64 // the newest ping; 0: none
	trust     claims.Trust
	cancelled bool
	trouble   claims.Reason // why the store does not answer; "": it does
	lost      *lostEvent
}

// The data of the stream's events.
type (
	pingEvent struct {
		N     int64  `json:"n"`
		Watch string `json:"watch"`
	}
	lostEvent struct {
		Status string `json:"status"`
		Reason string `json:"reason"`
	}
	storeEvent struct {
		TrustedFor int64         `json:"trusted_for_ms"`
		Reason     claims.Reason `json:"reason"`
	}
)

// watch serves a stream. Nothing is renewed by opening one.
func (c *Console) watch(x *exchange) error {
	_, g, err := x.guard()
	if err != nil {
		return err
	}
	ttl, err := x.queryTTL()
	if err != nil {
		return err
	}
	if c.Draining() || c.isClosed() {
		return refusal(claims.Draining, "the sidecar is shutting down: no watch is opened")
	}
	asked := c.Clock()
	l, err := x.read(g.Scope)
	if err != nil {
		return err
	}
	if status := standing(l, g); status != claims.LeaseLive {
		return fencedProblem(status)
	}
	w := &watch{id: rand.Text(), guard: g, ttl: ttl, wake: make(chan struct{}, 1)}
	w.seen(asked, l, c.Times.Margin)
	c.add(w)
	defer c.drop(w)
	s := &stream{c: c, w: w, rc: http.NewResponseController(x.w), out: x.w}
	s.out.Header().Set("Content-Type", "text/event-stream")
	s.out.WriteHeader(http.StatusOK)
	s.run(x.r.Context())
	return nil
}

func (x *exchange) queryTTL() (time.Duration, error) {
	q, err := x.query("ttl_ms")
	if err != nil {
		return 0, err
	}
	v := q["ttl_ms"]
	if v == nil {
		return x.c.ttl(nil)
	}
	ms, err := strconv.ParseInt(*v, 10, 64)
	if err != nil || strconv.FormatInt(ms, 10) != *v {
		return 0, bad("ttl_ms: want a whole number")
	}
	return x.c.ttl(&ms)
}

func (c *Console) add(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w.id] = w
	c.Metrics.watching(1)
}

func (c *Console) drop(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, w.id)
	c.Metrics.watching(-1)
}

func (c *Console) find(id string, g claims.Guard) *watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watches[id]; w != nil && w.guard == g {
		return w
	}
	return nil
}

// pong answers a ping: it renews the lease. Only the newest ping counts, so that what piled up while an application hung
// renews nothing; that one may be answered again, because an answer can be lost.
func (c *Console) pong(x *exchange) error {
	s, g, err := x.guard()
	if err != nil {
		return err
	}
	b, err := x.body("watch", "n")
	if err != nil {
		return err
	}
	if b.Watch == nil || b.N == nil {
		return bad("watch and n are wanted")
	}
	w := c.find(*b.Watch, g)
	if w == nil {
		return refusal(claims.UnknownWatch, "this process has no such watch of this lease; open a new one")
	}
	switch newest := w.newest(); {
	case *b.N < 1 || *b.N > newest:
		return bad("n: no such ping was sent")
	case *b.N < newest:
		return refusal(claims.StalePing, "ping "+strconv.FormatInt(newest, 10)+" is the newest; nothing was renewed")
	}
	asked := c.Clock()
	l, err := x.renew(g, w.ttl)
	if err != nil {
		w.failed(err)
		return err
	}
	w.seen(asked, l, c.Times.Margin)
	x.lease(s, l, w.ttl)
	return nil
}

func (w *watch) newest() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// left is how long the lease may be trusted still.
func (w *watch) left(now claims.Reading) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trust.Left(now)
}

// seen notes a live lease that the store told of; asked is a reading from before it was asked.
func (w *watch) seen(asked claims.Reading, l claims.Lease, margin time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := claims.Trust{From: asked, For: l.Remaining - margin}
	if t.Left(asked) > w.trust.Left(asked) {
		w.trust = t
	}
	w.cancelled = w.cancelled || l.Cancelled
	w.trouble = ""
	w.poke()
}

// failed notes that the store refused or did not answer.
func (w *watch) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, ok := errors.AsType[*claims.FencedError](err); ok {
		w.lose(f.Status)
	} else {
		w.trouble = asProblem(err).Reason
	}
	w.poke()
}

func (w *watch) lose(status claims.LeaseStatus) {
	if w.lost == nil {
		w.lost = &lostEvent{status.String(), lostReasons[status]}
	}
}

var lostReasons = map[claims.LeaseStatus]string{
	claims.LeaseAbsent:     "the store does not know the token",
	claims.LeaseExpired:    "the lease ran out at the store",
	claims.LeaseSuperseded: "the scope was taken under a newer token",
	claims.LeaseReleased:   "the lease was released",
	claims.LeaseFinished:   "the scope was finished",
}

// poke wakes the stream.
func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// look reads the scope, so that an end or a hand-over by others is told without a pong.
func (c *Console) look(ctx context.Context, w *watch) {
	ctx, cancel := context.WithTimeout(ctx, min(storeTimeout, max(w.ttl/6, time.Second)))
	defer cancel()
	asked := c.Clock()
	l, err := c.Leases.State(ctx, w.guard.Scope)
	if err != nil {
		if ctx.Err() != context.Canceled {
			w.failed(err)
		}
		return
	}
	if status := standing(l, w.guard); status != claims.LeaseLive {
		w.failed(&claims.FencedError{Guard: w.guard, Status: status})
		return
	}
	w.seen(asked, l, c.Times.Margin)
}

// stream writes a watch's events. One goroutine runs it; a second one lives only while the store is asked, so that a store that
// hangs does not keep the end of trust from being told.
type stream struct {
	c   *Console
	w   *watch
	rc  *http.ResponseController
	out http.ResponseWriter

	nextPing, nextLook time.Time
	cancelled, trouble bool // told
	err                error
}

// run writes until the lease is lost, the client is gone or does not read, or the process shuts down.
func (s *stream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	looked := make(chan struct{}, 1)
	looking := false
	defer func() {
		cancel()
		if looking {
			<-looked
		}
	}()
	s.nextLook = time.Now().Add(s.w.ttl / 6)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if over := s.tell(); over || s.err != nil {
			return
		}
		if !looking && !time.Now().Before(s.nextLook) {
			looking, s.nextLook = true, time.Now().Add(s.w.ttl/6)
			go func() { s.c.look(ctx, s.w); looked <- struct{}{} }()
		}
		next := min(time.Until(s.nextPing), s.w.left(s.c.Clock())) // anew: a slow reader takes time
		if !looking {
			next = min(next, time.Until(s.nextLook))
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-s.c.closed:
			s.event("draining", struct{}{})
			return
		case <-looked:
			looking = false
		case <-s.w.wake:
		case <-timer.C:
		}
	}
}

// tell writes what there is to tell, and says whether the stream is over.
func (s *stream) tell() (over bool) {
	w := s.w
	w.mu.Lock()
	left := w.trust.Left(s.c.Clock())
	if left <= 0 && w.lost == nil {
		w.lost = &lostEvent{claims.LeaseExpired.String(), "the lease was not renewed in time: it may not be trusted any more"}
	}
	lost, cancelled, trouble := w.lost, w.cancelled, w.trouble
	ping := lost == nil && !time.Now().Before(s.nextPing)
	if ping {
		w.n++
	}
	n := w.n
	w.mu.Unlock()

	if lost != nil {
		if own := lost.Status == claims.LeaseReleased.String() || lost.Status == claims.LeaseFinished.String(); !own {
			s.c.Metrics.count(eventLost)
			s.c.event(context.Background(), "lease lost", w.guard, slog.String("status", lost.Status))
		}
		s.event("lost", lost)
		return true
	}
	if ping {
		s.nextPing = time.Now().Add(w.ttl / 3)
		s.event("ping", pingEvent{n, w.id})
	}
	if cancelled && !s.cancelled {
		s.event("cancelled", struct{}{})
	}
	if trouble != "" && !s.trouble {
		s.event("store", storeEvent{left.Milliseconds(), trouble})
	}
	s.cancelled, s.trouble = cancelled, trouble != ""
	return false
}

// event writes one event at once. A client that does not read ends the stream when the deadline passes.
func (s *stream) event(name string, data any) {
	if s.err != nil {
		return
	}
	b, err := json.Marshal(data)
	if err != nil { // our own structs
		panic(err)
	}
	s.rc.SetWriteDeadline(time.Now().Add(ioTimeout))
	if _, s.err = fmt.Fprintf(s.out, "event: %s\ndata: %s\n\n", name, b); s.err == nil {
		s.err = s.rc.Flush()
	}
}
