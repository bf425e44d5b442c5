package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	r := &round{f: f, c: c, pause: 250 * time.Millisecond}
	for r.spins = 0; r.spins < 100; r.spins++ {
		res, done := r.step(ctx)
		if done {
			f.twins.note(&c, r.view.Record.State == StateUnknown)
			return r.finish(res)
		}
	}
	return r.finish(refused(&Refusal{Reason: StoreUnavailable, Detail: "the record keeps changing", RetryAfter: time.Second}))
}

// round is one request's progress through run.
type round struct {
	f      *Fence
	c      Call
	asked  bool
	probed bool
	joined bool     // waited for another request's attempt: this one sends nothing
	last   *Sent    // the last attempt of this request, or the one that it joined
	view   View     // as last read
	target *View    // of the call that is undone
	lease  string   // once lost, it stays so
	since  *Reading // when the waiting began
	pause  time.Duration
	poll   time.Duration // of another process's attempt
	spins  int           // steps since the last pause
	sends  int
	sent   ClaimID // of the last attempt that this request sent
	// unwritten counts claims whose write failed and left no trace, since began.
	unwritten int
	began     Reading
	foreign   bool // refused for its scope, not for its lease
}

func (r *round) guard() Guard {
	if r.c.Guard.IsZero() {
		return r.f.Instance.Guard()
	}
	return r.c.Guard
}

func (r *round) request(g Guard) Request {
	c := &r.c
	return Request{
		Key: c.Key, Revision: c.Revision, Guard: g, Instance: r.f.Instance.Guard(),
		Canonical: c.Canonical, CanonicalVersion: c.CanonicalVersion, Also: c.Also, Facts: c.Facts, Policy: c.Policy,
		Claim: NewClaimID(), Working: r.f.Working(r.view.Record.Claim), Asked: r.asked, Probed: r.probed,
		Undoes: c.Undoes, Part: c.Part, Target: r.target,
	}
}

// read takes the snapshots that the decision is about. The target comes first: what is written of the undo's own record is then
// compared with a version that was read later, and both versions are compared when they are written.
func (r *round) read(ctx context.Context, g Guard) error {
	r.target = nil
	if r.c.Undoes != "" {
		t, err := r.f.get(ctx, Key{r.c.Key.Tenant, r.c.Undoes}, g)
		if err != nil {
			return err
		}
		r.target = &t
	}
	view, err := r.f.get(ctx, r.c.Key, g)
	if err != nil {
		return err
	}
	r.view = view
	return nil
}

// step reads, decides and acts once.
func (r *round) step(ctx context.Context) (Result, bool) {
	g := r.guard()
	if g.IsZero() {
		return refused(leaseLost()), true
	}
	if err := r.read(ctx, g); err != nil {
		return refused(storeRefusal(err)), true
	}
	view := &r.view
	if g.External() && view.Quarantine <= 0 && view.Guard.Status == LeaseAbsent { // a token that the store has not seen yet
		if ref := r.f.present(ctx, g); ref != nil {
			return refused(ref), true
		}
		return Result{}, false
	}
	d := Decide(*view, r.request(g), r.f.Keys)
	switch d.Action {
	case Claim:
		return r.mayClaim(ctx, d)
	case Amend:
		return r.amend(ctx, d)
	case Reconcile:
		r.asked = true
		if r.f.Reconcile != nil {
			look, done := r.f.patience(ctx)
			if err := r.f.Reconcile(look, d.Look); err != nil && look.Err() == nil {
				r.f.Log.Warn("reconcile", "call", d.Look.Call, "error", err)
			}
			done()
		}
		return Result{}, false
	case Replay:
		return r.replay(), true
	}
	r.foreign = d.Refusal.Reason == Fenced && view.Guard.Live()
	switch d.Refusal.Reason {
	case InDoubt:
		return r.doubt(ctx, d.Refusal)
	case InFlight:
		return r.join(ctx, d.Refusal)
	}
	return refused(d.Refusal), true
}

// mayClaim claims and sends, unless this request must not: its app is gone, it has sent what the store has lost, or it has only
// waited for another's attempt.
func (r *round) mayClaim(ctx context.Context, d Decision) (Result, bool) {
	rec := &r.view.Record
	switch {
	case r.joined:
		return r.joinedUnsent(ctx)
	case ctx.Err() != nil: // nothing is started for an app that is gone
		return refused(&Refusal{Reason: NotSent, Detail: "the app hung up", Outcome: rec.Outcome()}), true
	case r.sends > 0 && !rec.knows(r.sent): // a restored file: what this request sent is still out there
		return refused(&Refusal{Reason: InDoubt, Detail: "the call was sent, and the store has lost its record", RetryAfter: time.Minute}), true
	case r.f.sending.Err() != nil:
		return refused(&Refusal{Reason: Draining, Detail: "the sidecar is shutting down", RetryAfter: time.Second, Outcome: rec.Outcome()}), true
	case r.f.Instance.Left() <= 0: // nothing could be sent under it
		return refused(leaseLost()), true
	}
	return r.attempt(ctx, d)
}

// amend writes what the decision made of a record, and lets it be made again.
func (r *round) amend(ctx context.Context, d Decision) (Result, bool) {
	was := r.view.Record
	if r.target != nil && d.Next.Key == (Key{r.c.Key.Tenant, r.c.Undoes}) {
		was = r.target.Record
	}
	_, err := r.f.swap(ctx, d.Condition, r.writes(d, change(was, d.Next))...)
	if err != nil && !errors.Is(err, ErrLost) {
		return r.notClaimed(err)
	}
	return Result{}, false
}

// writes are a decision's: its own record's, then that of the call that is undone.
func (r *round) writes(d Decision, own Write) []Write {
	if d.Target == nil {
		return []Write{own}
	}
	return []Write{own, change(r.target.Record, *d.Target)}
}

// change is the write of what became of a record.
func change(was, next Record) Write {
	return Write{Version: was.Version, Next: next, Event: EventOf(was, next)}
}

func (r *round) replay() Result {
	rec := &r.view.Record
	res := Result{Answer: rec.Answer, Outcome: rec.Outcome(), Source: SourceReplayed}
	switch {
	case r.joined:
		res.Source = SourceJoined
	case rec.Reconciled: // made from a lookup: not the bytes that the gateway once sent
		res.Source = SourceReconciled
	}
	return res
}

// doubt asks again while the app is willing to wait. A server error in the gateway's own shape is passed on: every SDK takes
// it for one. Any other unlisted answer could be taken for a definite one, so the app is told that the call is in doubt.
func (r *round) doubt(ctx context.Context, ref *Refusal) (Result, bool) {
	if r.left() > r.pause && r.f.Reconcile != nil && r.f.wait(ctx, r.pause) {
		r.pause = min(2*r.pause, 5*time.Second)
		r.asked, r.spins = false, 0
		return Result{}, false
	}
	if r.last != nil && r.last.Answer != nil && r.last.Answer.Status >= 500 && r.last.Error {
		res := Result{Answer: r.last.Answer, Outcome: Unknown, Source: SourceSent}
		if r.sends == 0 {
			res.Source = SourceJoined
		}
		return res, true
	}
	return refused(ref), true
}

// left is how much longer this request may wait for others; the first question starts the clock.
func (r *round) left() time.Duration {
	now := r.f.Clock()
	if r.since == nil {
		r.since = &now
	}
	return r.c.Wait - now.Sub(*r.since)
}

// finish adds what is the same for every result. A refusal made without the record tells nothing of it; if this request had
// sent before, its call is in doubt, whatever came in the way.
func (r *round) finish(res Result) Result {
	unread := false
	if ref := res.Refusal; ref != nil {
		fenced := ref.Reason == Fenced || ref.Reason == ScopeFinished
		if fenced && !r.foreign { // the caller must learn that it was superseded, also when it had sent
			r.lease = "lost"
		}
		unread = fenced || ref.Reason == StoreUnavailable || ref.Reason == Quarantine || ref.Reason == LeaseLost
		if r.sends > 0 && saysUnsent(ref.Reason) {
			res = refused(&Refusal{Reason: InDoubt, Detail: "the call was sent and its outcome is not known yet: " + ref.Detail, RetryAfter: time.Second})
		}
	}
	if !unread {
		res.Attempt, res.State = r.view.Record.Attempt, r.view.Record.State
	}
	res.Sends = r.sends
	if r.last != nil {
		res.Cause = r.last.Cause
	}
	res.Lease = r.lease
	switch {
	case r.lease != "":
	case r.c.Guard.IsZero():
		res.Lease = "instance"
	case r.c.Guard.External():
		res.Lease = "external"
	default:
		res.Lease = "live"
	}
	return res
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
	return f.Store.Swap(ctx, c, w...)
}
