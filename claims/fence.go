package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotCounted tells a circuit breaker that an admitted call was neither a success nor a failure of the gateway: its
// claim was lost or its fence refused.
var ErrNotCounted = errors.New("nothing was learnt about the gateway")

// Call is one fenced request, with the means to send it.
type Call struct {
	Key              Key
	Revision         int
	Guard            Guard // zero: the process's own lease guards the call
	Canonical        []byte
	CanonicalVersion int
	Also             [][]byte // see Request
	Facts            Facts
	Policy           Policy
	// Undoes is the call key, of the same tenant, of the call that this one undoes; Part what of it.
	Undoes string
	Part   string
	// Wait is how long a call in flight is joined, and a doubt looked into, while the app waits.
	Wait time.Duration
	// Keep cuts an answer down to what may be stored; nil: all of it may.
	Keep func(*Answer) *Answer
	// Send makes one attempt. It must call gate immediately before the first byte and pass nothing if gate fails. ctx
	// ends with the attempt's time.
	Send func(ctx context.Context, a Pass, gate func() error) Sent
	// Admit asks the circuit breaker. done takes nil, ErrNotCounted, or what speaks against the gateway.
	Admit func() (done func(error), err error)
}

// Pass is what a sender needs to know of the attempt that was claimed for it.
type Pass struct {
	Facts    Facts // as stored
	Revision int
	Attempt  int
	Claim    ClaimID
}

// Source says where a request's result came from.
type Source string

const (
	SourceSent       Source = "sent"
	SourceReplayed   Source = "replayed"
	SourceReconciled Source = "reconciled"
	SourceJoined     Source = "joined"
	SourceRefused    Source = "refused"
)

// Result is what one request gets: an answer or a refusal.
type Result struct {
	Answer  *Answer
	Refusal *Refusal
	Outcome Outcome // of the call
	Source  Source
	Attempt int    // the call's current attempt, 0: not read
	Lease   string // live, lost, instance, external
	State   State
	Sends   int    // attempts that this request sent
	Cause   string // of the last attempt that this request sent
}

// Config is what a Fence works with.
type Config struct {
	Store    Store
	Leases   Leases
	Keys     Ring
	Instance *Instance
	Clock    Clock
	Times    LeaseTimes
	Log      *slog.Logger
	// Reconcile looks a call up and applies the verdict; nil: nothing can be looked up.
	Reconcile func(context.Context, Key) error
	// Twin is told of a call that is claimed for the first time while another one with the very same request is in doubt in this
	// process; nil: nobody is.
	Twin func(call, inDoubt Key)
	// Happened is called when an event was written; nil: nobody waits for it.
	Happened func()
	// StoreTimeout bounds one store request. Default 5 s.
	StoreTimeout time.Duration
}

// Fence stands around every call of one process: decide, ask the breaker, claim, check the fence, send once, settle.
type Fence struct {
	Config

	sending, life context.Context // ended by Drain: first the sends, then what is still to be stored
	cut, end      context.CancelFunc

	wg       sync.WaitGroup
	mu       sync.Mutex
	working  map[ClaimID]*flight
	draining bool
	inflight atomic.Int64
	twins    twins
}

// New makes a Fence.
func New(cfg Config) *Fence {
	if cfg.StoreTimeout == 0 {
		cfg.StoreTimeout = 5 * time.Second
	}
	cfg.Times = cfg.Times.Defaults()
	f := &Fence{Config: cfg, working: map[ClaimID]*flight{}}
	f.sending, f.cut = context.WithCancel(context.Background())
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// Working reports whether this process still works on a claim.
func (f *Fence) Working(id ClaimID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.working[id] != nil
}

// InFlight is how many requests are being worked on.
func (f *Fence) InFlight() int64 { return f.inflight.Load() }

// enter admits a request unless the process drains.
func (f *Fence) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	f.inflight.Add(1)
	f.wg.Add(1) // before Drain may wait
	return true
}

// Drain refuses new calls and waits for those under way. When ctx ends it cuts the sends that are left, so that they are
// recorded as unknown, and gives that one more store timeout.
func (f *Fence) Drain(ctx context.Context) error {
	f.mu.Lock()
	f.draining = true
	f.mu.Unlock()
	done := make(chan struct{})
	go func() { f.wg.Wait(); close(done) }()
	defer f.end()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	f.cut()
	last, cancel := context.WithTimeout(context.Background(), f.StoreTimeout)
	defer cancel()
	select {
	case <-done:
		return nil
	case <-last.Done():
		return fmt.Errorf("%d calls could not be recorded before the end", f.InFlight())
	}
}

// GiveUpOwn moves a pending record of this process, past its deadline and worked on by nobody, to unknown.
func (f *Fence) GiveUpOwn(ctx context.Context, v View) error {
	r := &v.Record
	own := f.Instance.Guard()
	if r.State != StatePending || r.Sender != own || v.Now.Store.Before(r.Deadline) || f.Working(r.Claim) {
		return nil
	}
	_, err := f.swap(ctx, Condition{Sender: own}, change(*r, GiveUp(*r)))
	return err
}

// Do runs one request. ctx is the app's patience: when it ends Do returns, and an attempt that was claimed goes on and
// is settled all the same.
func (f *Fence) Do(ctx context.Context, c Call) Result {
	if !f.enter() {
		return refused(&Refusal{Reason: Draining, Detail: "the sidecar is shutting down", RetryAfter: time.Second})
	}
	done := make(chan Result, 1)
	go func() {
		defer f.wg.Done()
		defer f.inflight.Add(-1)
		done <- f.run(ctx, c)
	}()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	select { // both may be ready
	case r := <-done:
		return r
	default:
		return refused(&Refusal{
			Reason: InDoubt, Detail: "the app's time ended before the outcome was known; repeat the call to learn it", RetryAfter: time.Second,
		})
	}
}

func refused(r *Refusal) Result {
	return Result{Refusal: r, Outcome: r.Outcome, Source: SourceRefused}
}

// run is the loop of one request: read, decide, act, until there is a result.
func (f *Fence) run(ctx context.Context, c Call) Result {
	r := &round{f: f, c: c, pause: 250 * time.Millisecond, since: f.Clock()}
	for r.spins = 0; r.spins < 100; r.spins++ {
		res, done := r.step(ctx)
		if done {
			f.twins.note(&c, r.view.Record.State == StateUnknown)
			return r.finish(res)
		}
	}
	return r.finish(refused(&Refusal{Reason: StoreUnavailable, Detail: "the record keeps changing", RetryAfter: time.Second}))
}

// saysUnsent reports whether a refusal is read as "nothing was sent".
func saysUnsent(why Reason) bool {
	switch why {
	case StoreUnavailable, Quarantine, LeaseLost, BreakerOpen, Draining, NotSent:
		return true
	}
	return false
}

func leaseLost() *Refusal {
	return &Refusal{Reason: LeaseLost, Detail: "the sidecar does not hold its own lease; it takes it again", RetryAfter: time.Second}
}

func storeRefusal(err error) *Refusal {
	if q, ok := errors.AsType[*QuarantineError](err); ok {
		return &Refusal{Reason: Quarantine, Detail: q.Error(), RetryAfter: max(q.Left, time.Second)}
	}
	if errors.Is(err, ErrUnreadable) {
		return &Refusal{Reason: Unreadable, Detail: err.Error(), RetryAfter: 30 * time.Second}
	}
	return &Refusal{Reason: StoreUnavailable, Detail: "the store did not answer: this request sent nothing", RetryAfter: time.Second}
}

// present shows the store an external token that is higher than any before.
func (f *Fence) present(ctx context.Context, g Guard) *Refusal {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.StoreTimeout)
	defer cancel()
	_, err := f.Leases.Renew(ctx, g, f.Times.TTL)
	if _, fenced := errors.AsType[*FencedError](err); err != nil && !fenced { // fenced: read why
		return storeRefusal(err)
	}
	return nil
}

// patience is ctx, ended earlier when the process cuts its sends. The caller must call the function.
func (f *Fence) patience(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(f.sending, cancel)
	return ctx, func() { stop(); cancel() }
}

// wait sleeps; false: the app is gone or the process cuts its sends.
func (f *Fence) wait(ctx context.Context, d time.Duration) bool {
	ctx, done := f.patience(ctx)
	defer done()
	return sleep(ctx, d)
}

func (f *Fence) get(ctx context.Context, k Key, g Guard) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, f.StoreTimeout)
	defer cancel()
	return f.Store.Get(ctx, k, g)
}

// swap writes without the app's patience: a write that left is waited for.
func (f *Fence) swap(ctx context.Context, c Condition, w ...Write) (Swapped, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.StoreTimeout)
	defer cancel()
	sw, err := f.Store.Swap(ctx, c, w...)
	if err == nil && f.Happened != nil && slices.ContainsFunc(w, func(w Write) bool { return w.Event != nil }) {
		f.Happened()
	}
	return sw, err
}
