package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Config is what a Reconciler works with.
type Config struct {
	Store    claims.Store
	Realm    string // of the store; credentials are known by their hash under it
	Gateways *gateways.Registry
	Tenants  []string // whose calls are looked after; none: everybody's
	// Links are the ways to a gateway, by name; none: a direct one, under the system's certificate authorities.
	Links map[string]Link
	// GiveUp moves an abandoned record of this process to unknown; nil where the process sends nothing.
	GiveUp func(context.Context, claims.View) error
	// Tokens forgets a token that a lookup was turned down with; nil: no account has OAuth2.
	Tokens *Tokens
	Log    *slog.Logger

	// Pace is the shortest time between two lookups of one call that apps wait for; the sweeper is not held back. Default 1 s.
	Pace          time.Duration
	Interval      time.Duration // between sweeps, jittered by a fifth; default 30 s
	Batch         int           // calls a sweep takes from the store at once; default 100
	LookupTimeout time.Duration // for one lookup with all its pages; default 20 s
	// KeepAnswers is how long answers of settled calls are kept; outcomes stay. Default 168 h.
	KeepAnswers time.Duration
	// Effects keeps the results of fenced effects; nil: the store has none. KeepEffects is how long they are kept. Default 24 h.
	Effects     Effects
	KeepEffects time.Duration
	// Verdict, if set, is told of every lookup: gateway, route and what was found.
	Verdict func(gateway, route string, kind claims.FindingKind)
	// Settled, if set, is told of every record that a verdict moved.
	Settled func(claims.Record)
}

// Reconciler reconciles the calls of one store.
type Reconciler struct {
	Config
	clients map[string]*http.Client
	pace    pace
	polls   backlog
	// By gateway. Those of payments are their own: a list that is too long for a poll says nothing of the lookups of doubts.
	doubts, payments map[string]*breaker
}

type breaker = gobreaker.CircuitBreaker[claims.Finding]

func newBreaker(name string) *breaker {
	return gobreaker.NewCircuitBreaker[claims.Finding](gobreaker.Settings{
		Name: name, Timeout: 15 * time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 10 },
		IsExcluded:  func(err error) bool { return errors.Is(err, errGaveUp) },
	})
}

// New makes a Reconciler.
func New(cfg Config) *Reconciler {
	cfg.Interval = orElse(cfg.Interval, 30*time.Second)
	cfg.Batch = orElse(cfg.Batch, 100)
	cfg.Pace = orElse(cfg.Pace, time.Second)
	cfg.LookupTimeout = orElse(cfg.LookupTimeout, 20*time.Second)
	cfg.KeepAnswers = orElse(cfg.KeepAnswers, 168*time.Hour)
	cfg.KeepEffects = orElse(cfg.KeepEffects, 24*time.Hour)
	r := &Reconciler{Config: cfg, clients: map[string]*http.Client{}, doubts: map[string]*breaker{}, payments: map[string]*breaker{}}
	for _, g := range cfg.Gateways.All() {
		r.clients[g.Name] = newClient(cfg.Links[g.Name])
		r.doubts[g.Name] = newBreaker(g.Name + " lookups")
		r.payments[g.Name] = newBreaker(g.Name + " payments")
	}
	return r
}

func orElse[T comparable](v, other T) T {
	if v == *new(T) {
		return other
	}
	return v
}

// Call looks one call up and applies what it found. A verdict that lost a race is thrown away: that is no error.
func (r *Reconciler) Call(ctx context.Context, key claims.Key) error {
	if len(r.Tenants) > 0 && !slices.Contains(r.Tenants, key.Tenant) {
		return nil // its gateways and credentials are others
	}
	v, err := r.Store.Get(ctx, key, claims.Guard{}) // the time is read before the lookup leaves
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return r.call(ctx, v)
}

func (r *Reconciler) call(ctx context.Context, v claims.View) error {
	rec := &v.Record
	if next, moved := claims.ReadEvidence(*rec); rec.Exists() && moved {
		return r.write(ctx, v, next)
	}
	if rec.ToldOnly() {
		if next, brought := claims.Bring(*rec, r.ask(ctx, v)); brought {
			return r.write(ctx, v, next)
		}
	}
	if v.Recheckable() {
		return r.recheck(ctx, v)
	}
	if !rec.Reconcilable(v.Now) {
		return nil
	}
	if r.GiveUp != nil {
		if err := r.GiveUp(ctx, v); err != nil && !claims.Refused(err) {
			return fmt.Errorf("give up: %w", err)
		}
	}
	v, err := r.Store.Get(ctx, rec.Key, claims.Guard{})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !v.Record.Reconcilable(v.Now) { // settled meanwhile
		return nil
	}
	if v.Loss != nil { // an attempt of which the store has no record may have come after the ones it knows
		next := claims.Presume(v, r.attemptTimeout(&v.Record), claims.NewClaimID())
		if err := r.write(ctx, v, next); err != nil {
			return err
		}
		if v, err = r.Store.Get(ctx, v.Record.Key, claims.Guard{}); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if v.Loss != nil {
			return nil // another write came first
		}
	}
	verdict := r.ask(ctx, v)
	next, moved := claims.Apply(v.Record, verdict)
	r.tell(next, verdict)
	if !moved {
		return nil
	}
	return r.write(ctx, v, next)
}

func (r *Reconciler) tell(next claims.Record, d claims.Verdict) {
	r.Log.Debug("lookup", "tenant", next.Key.Tenant, "call", next.Key.Call, "found", d.Kind.String(), "reason", d.Reason,
		"state", string(next.State), "payment", next.Payment)
}

// attemptTimeout is how long an attempt of the call's route may take; of a gateway that is not configured here, the longest of
// all.
func (r *Reconciler) attemptTimeout(rec *claims.Record) time.Duration {
	if g, ok := r.Gateways.ByName(rec.Facts.Gateway); ok {
		if p, ok := g.RoutePolicy(rec.Facts.Route); ok {
			return p.AttemptTimeout
		}
	}
	longest := 10 * time.Minute
	for _, g := range r.Gateways.All() {
		longest = max(longest, g.AttemptTimeout)
	}
	return longest
}

// write writes what became of the record that was seen, with the event that tells of it.
func (r *Reconciler) write(ctx context.Context, v claims.View, next claims.Record) error {
	was := v.Record
	if was.State == claims.StatePending && was.Reconcilable(v.Now) {
		was = claims.GiveUp(was) // its sender said nothing in its time: a doubt comes to rest
	}
	w := claims.Write{Version: v.Record.Version, Next: next, Event: claims.EventOf(was, next)}
	_, err := r.Store.Swap(ctx, claims.Condition{}, w)
	switch {
	case errors.Is(err, claims.ErrLost):
		return nil
	case err != nil:
		return fmt.Errorf("write: %w", err)
	}
	switch was = v.Record; {
	case next.State != was.State:
		r.Log.Info("reconciled", "tenant", was.Key.Tenant, "call", was.Key.Call, "from", string(was.State), "to", string(next.State))
		if r.Settled != nil {
			r.Settled(next)
		}
	case next.Payment != was.Payment:
		r.Log.Info("payment moved", "tenant", was.Key.Tenant, "call", was.Key.Call, "from", was.Payment, "to", next.Payment)
	}
	return nil
}

// ask makes a verdict of one lookup. Whatever goes wrong, it says "could not tell".
func (r *Reconciler) ask(ctx context.Context, v claims.View) claims.Verdict {
	rec := &v.Record
	out := claims.Verdict{Version: rec.Version, Asked: v.Now}
	g, ok := r.Gateways.ByName(rec.Facts.Gateway)
	if !ok {
		out.Reason = "gateway " + rec.Facts.Gateway + " is not configured here"
		return out
	}
	out.Rules, _ = g.RulesOf(gateways.WithObject(rec.Facts, rec.Object))
	if rec.Facts.Endpoint != strings.TrimSuffix(g.BaseURL, "/") {
		out.Reason = "the call was sent to another address than gateway " + g.Name + " has now"
		return out
	}
	out.Finding, out.Looked = r.look(ctx, g, v)
	out.Finding.Answer = g.KeepFor(rec.Facts.Route, out.Finding.Answer)
	if out.Kind == claims.Missed || out.Kind == claims.FoundFailed {
		if why := r.elsewhere(g, rec); why != "" {
			out.Finding, out.Looked = claims.Finding{Reason: why}, false // another process may know better
		}
	}
	if r.Verdict != nil {
		r.Verdict(rec.Facts.Gateway, rec.Facts.Route, out.Kind)
	}
	return out
}

// elsewhere says why what was not found here could still be at the gateway: the account, or the way to find the call, is not
// the one that it was sent with.
func (r *Reconciler) elsewhere(g *gateways.Gateway, rec *claims.Record) string {
	owns, err := g.Owns(rec.Facts.Account, rec.Facts.Credential, r.Realm)
	switch {
	case err != nil:
		return err.Error()
	case !owns:
		return "account " + rec.Facts.Account + " no longer has the credential that the call went with: a miss proves nothing"
	case rec.Facts.LookupForm != g.LookupForm(rec.Facts.Route):
		return "the route is looked up in another way than the call was sent for: a miss proves nothing"
	}
	return ""
}

// errGaveUp is a lookup whose caller did not wait for it: it says nothing of the gateway.
var errGaveUp = errors.New("nobody waited for the lookup")

// look asks the gateway; asked is false where this process could not.
func (r *Reconciler) look(caller context.Context, g *gateways.Gateway, v claims.View) (found claims.Finding, asked bool) {
	rec := &v.Record
	ctx, cancel := context.WithTimeout(caller, r.LookupTimeout)
	defer cancel()
	header, ok, err := g.LookupHeader(ctx, rec.Facts.Account)
	switch {
	case err != nil:
		return claims.Finding{Reason: err.Error()}, false
	case !ok:
		return claims.Finding{Reason: "account " + rec.Facts.Account + " has no lookup credential: only a repeat of the call can tell"}, false
	}
	through, ask := r.doubts[g.Name], g.AskAt
	if rec.State == claims.StateSucceeded {
		through, ask = r.payments[g.Name], g.AskAgain
		if v.Loss == nil {
			ask = g.AskPayment
		}
	}
	f, err := through.Execute(func() (claims.Finding, error) {
		failed := error(nil)
		f, err := ask(ctx, gateways.WithObject(rec.Facts, rec.Object), rec.FirstStarted, v.Now, func(ctx context.Context, target string) (*claims.Answer, error) {
			a, err := r.get(ctx, g, target, header)
			switch {
			case err != nil:
				failed = err
			case a.Status >= 500:
				failed = fmt.Errorf("lookup at %s: status %d", g.Name, a.Status)
			case a.Status == http.StatusUnauthorized:
				r.turnedDown(g, rec.Facts.Account, header)
			}
			return a, err
		})
		if caller.Err() != nil && f.Kind == claims.CouldNotTell {
			return f, errGaveUp
		}
		if err == nil && failed != nil && f.Kind == claims.CouldNotTell {
			return f, failed
		}
		return f, err
	})
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return claims.Finding{Reason: "not asked: lookups at " + g.Name + " failed many times in a row"}, false
	case err != nil:
		return claims.Finding{Reason: "lookup failed: " + err.Error()}, !errors.Is(err, errGaveUp)
	}
	return f, true
}

// turnedDown has the account's token fetched anew, where it has one that is fetched.
func (r *Reconciler) turnedDown(g *gateways.Gateway, account string, header []claims.Field) {
	name, _, _ := strings.Cut(account, "/")
	for _, f := range header {
		if token, ok := strings.CutPrefix(f.Value, "Bearer "); r.Tokens != nil && ok && strings.EqualFold(f.Name, g.CredentialHeader) {
			r.Tokens.Drop(g.Name, name, token)
		}
	}
}
