package checklist

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Config says what is asked of which gateway.
type Config struct {
	// Gateway is a validated declaration with Checks.
	Gateway *gateways.Gateway
	// BaseURL is the sandbox: scheme and host. "": the gateway's own.
	BaseURL string
	// Credential returns the bare credential, asked anew for each request; OtherCredential that of a second account.
	Credential      func() (string, error)
	OtherCredential func() (string, error)
	// OtherAccount is the value of the gateway's first account header that selects a second account.
	OtherAccount string
	// Vars fill in what samples name.
	Vars map[string]string
	// ForceLive lets a credential or host through that moves real money.
	ForceLive bool
	// Burst is how many repeats are sent at once; default 20.
	Burst int
	// LookupWait is how long a lookup may take to show an object (default 1m), OutcomeWait how long a late outcome may take
	// (default 2m), AttemptTimeout bounds one request (default 1m).
	LookupWait, OutcomeWait, AttemptTimeout time.Duration
	// Poll is the first pause between two lookups; default 250ms, doubled up to 5s.
	Poll time.Duration
	// State is a file that the evidence is kept in, so that a later run goes on; "": none.
	State string
	// Hook listens for the gateway's notices; nil: nobody does.
	Hook *HookConfig
	// Egress tries the way out; nil: it is not tried.
	Egress *EgressConfig
	// Progress is told what is done; nil: nobody is.
	Progress func(step, text string)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Errors of Run that say that nothing could be asked.
var (
	ErrLive = errors.New("this would move real money")
	// ErrNoCharge: the first charge did not succeed, so there is nothing to repeat.
	ErrNoCharge = errors.New("the first charge did not succeed")
)

const (
	defaultBurst       = 20
	defaultLookupWait  = time.Minute
	defaultOutcomeWait = 2 * time.Minute
	defaultAttempt     = time.Minute
	defaultPoll        = 250 * time.Millisecond
	maxPoll            = 5 * time.Second
)

// run is one run under way.
type run struct {
	cfg     Config
	g       *gateways.Gateway
	base    *url.URL
	wire    *wire
	hook    *hook
	state   *State
	secrets secrets
	began   time.Time
}

// Run goes through the steps and judges. With an error the report, if there is one, holds what was seen so far. The error is
// ErrLive, ErrNoCharge, the context's, or says what is wrong with the input.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r, err := newRun(cfg)
	if err != nil {
		return nil, err
	}
	if r.cfg.Hook != nil {
		if r.hook, err = listenHook(ctx, r.g, *r.cfg.Hook, r.now); err != nil {
			return nil, err
		}
		defer r.hook.close()
	}
	err = r.steps(ctx)
	rep := r.report(err)
	return rep, err
}

// newRun checks the input. Nothing is sent.
func newRun(cfg Config) (*run, error) {
	switch {
	case cfg.Gateway == nil || cfg.Gateway.Checks == nil:
		return nil, errors.New("the gateway declares no checks: nothing is known to send")
	case cfg.Credential == nil:
		return nil, errors.New("no credential")
	case cfg.OtherAccount != "" && len(cfg.Gateway.AccountHeaders) == 0:
		return nil, errors.New("the gateway declares no account header, so that another account needs another credential")
	}
	g := *cfg.Gateway
	cfg.defaults()
	g.Now, g.Rotating, g.Credentials, g.Accounts = cfg.Now, false, gateways.CredentialsApp, nil
	r := &run{cfg: cfg, g: &g, began: cfg.Now()}
	var err error
	if r.base, err = baseURL(cmp.Or(cfg.BaseURL, g.BaseURL)); err != nil {
		return nil, err
	}
	g.BaseURL = r.base.String()
	if err := r.refuseLive(); err != nil {
		return nil, err
	}
	if r.wire, err = newWire(&g, r.base); err != nil {
		return nil, err
	}
	if r.state, err = openState(cfg.State, g.Name, r.base.Host, cfg.Now()); err != nil {
		return nil, err
	}
	return r, r.allVars()
}

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&c.LookupWait, defaultLookupWait)
	set(&c.OutcomeWait, defaultOutcomeWait)
	set(&c.AttemptTimeout, defaultAttempt)
	set(&c.Poll, defaultPoll)
	if c.Burst <= 0 {
		c.Burst = defaultBurst
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Progress == nil {
		c.Progress = func(string, string) {}
	}
}

func baseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("the base URL must be scheme and host, such as https://sandbox.example.com")
	}
	u.Path = ""
	return u, nil
}

// refuseLive refuses what moves real money, and what cannot be told from it.
func (r *run) refuseLive() error {
	c := r.g.Checks
	if r.cfg.ForceLive {
		return nil
	}
	if c.LiveHost(r.base.Host) {
		return fmt.Errorf("%w: every call to %s does", ErrLive, r.base.Host)
	}
	for _, secret := range []func() (string, error){r.cfg.Credential, r.cfg.OtherCredential} {
		if secret == nil {
			continue
		}
		v, err := secret()
		switch {
		case err != nil:
			return fmt.Errorf("credential: %w", err)
		case c.LiveCredential(v):
			return fmt.Errorf("%w: the credential is a live one", ErrLive)
		}
	}
	if len(c.Live)+len(c.LiveHosts) == 0 && !loopback(r.base.Hostname()) {
		return fmt.Errorf("perhaps %w: the gateway's checks declare neither live nor liveHosts, so that a sandbox cannot be told", ErrLive)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// allVars asks for every value that the tester must supply, at once.
func (r *run) allVars() error {
	for name := range r.cfg.Vars {
		if _, ok := r.g.Checks.Vars[name]; !ok {
			return fmt.Errorf("--var %s: the gateway's checks have no such name", name)
		}
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(r.g.Checks.Vars)) {
		v := r.g.Checks.Vars[name]
		if v == "" && r.cfg.Vars[name] == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("values are missing: say --var for %s", strings.Join(missing, ", "))
	}
	return nil
}

func (r *run) now() time.Time { return r.cfg.Now() }

func (r *run) say(step, format string, args ...any) {
	r.cfg.Progress(step, r.secrets.clean(fmt.Sprintf(format, args...)))
}

// exchange sends a request once and keeps what came.
func (r *run) exchange(ctx context.Context, s *Step, role string, q request) (Exchange, *claims.Answer) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AttemptTimeout)
	defer cancel()
	at, began := r.now(), time.Now()
	a, err := r.wire.send(ctx, q.message)
	return r.keep(s, role, q, at, time.Since(began), a, err), a
}

// keep makes evidence of an answer.
func (r *run) keep(s *Step, role string, q request, at time.Time, took time.Duration, a *claims.Answer, err error) Exchange {
	x := Exchange{
		Role: role, At: at.UTC(), Method: q.method, Target: r.secrets.clean(q.target), Key: q.facts.GatewayKey, Account: q.account,
		Amount: q.amount, Currency: q.currency, Took: took.Seconds(), Reference: q.facts.Reference, Outcome: claims.Unknown.String(),
	}
	if q.match.Route == nil {
		x.Outcome, x.Amount, x.Currency = "", "", ""
	}
	if first := s.role(RoleFirst); first != nil {
		x.After = at.Sub(first.At).Seconds()
	}
	if err != nil {
		x.Failure = r.secrets.clean(err.Error())
	}
	if a != nil && q.match.Route == nil {
		x.Status, x.Header, x.Excerpt = a.Status, r.secrets.lines(a.Header), r.secrets.excerpt(a.Body)
	} else if a != nil {
		c := r.g.Classify(q.facts.Route, a)
		x.Status, x.Outcome, x.InUse, x.Transient, x.Payment, x.Object = a.Status, c.Outcome.String(), c.InUse, c.Transient, c.Payment, c.Object
		x.Object = r.secrets.hide(x.Object)
		x.Points = c.Object != "" && c.Outcome != claims.Succeeded
		x.Digest, x.Meaning = digests(a.Body)
		also := []string{}
		if r.g.Replayed != nil {
			also = append(also, r.g.Replayed.Name)
		}
		x.Header, x.Excerpt = r.secrets.lines(a.Header, also...), r.secrets.excerpt(a.Body)
	}
	s.Exchanges = append(s.Exchanges, x)
	return x
}

// newSeed makes what this run's keys, references and unique values derive from.
func newSeed() string { return rand.Text() }
