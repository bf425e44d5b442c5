package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// WebhookPath is the beginning of the addresses that gateways tell: /webhooks/{tenant}/{gateway}/{account}.
const WebhookPath = "/webhooks/"

// What became of a notice. taken, known, noted and conflict are claims.Hearing's.
const (
	NoticeTaken     = "taken"
	NoticeKnown     = "known"
	NoticeNoted     = "noted"
	NoticeConflict  = "conflict"
	NoticeWoken     = "woken"     // it says nothing that counts: the gateway is asked
	NoticeMismatch  = "mismatch"  // the call is another account's, or of another amount: the gateway is asked
	NoticeKept      = "kept"      // no call is known: it waits for one
	NoticeEarly     = "early"     // a failure that may not count yet: it waits
	NoticeIgnored   = "ignored"   // it is about no call and tells nothing
	NoticeRefused   = "refused"   // the record's rules take no such notice
	NoticeForged    = "forged"    // a wrong, missing or old signature
	NoticeMalformed = "malformed" // it cannot be read
	NoticeFailed    = "failed"    // the store, or a secret, was away: it comes again
	NoticeFull      = "full"      // too many are kept: it comes again, or is dropped where no call is known for it
	NoticeOrphan    = "orphan"    // kept, and no call came: dropped
)

// NoticeResults are all of them.
var NoticeResults = []string{
	NoticeTaken, NoticeKnown, NoticeNoted, NoticeConflict, NoticeWoken, NoticeMismatch, NoticeKept, NoticeEarly, NoticeIgnored,
	NoticeRefused, NoticeForged, NoticeMalformed, NoticeFailed, NoticeFull, NoticeOrphan,
}

const (
	maxReading    = 256 // deliveries that are read at once: their bodies are in memory
	maxDeliveries = 64  // that are worked on at once
	maxHits       = 20  // calls that one handle finds
	maxSwaps      = 20  // tries of one write
)

// IntakeConfig is what an Intake works with.
type IntakeConfig struct {
	Store  claims.Store
	Finder claims.Finder
	Inbox  claims.Inbox
	// Reconciler asks the gateway where a notice says nothing that counts.
	Reconciler *Reconciler
	// PublicURL is the beginning of the addresses as gateways know them; "": what the request says.
	PublicURL string
	Log       *slog.Logger
	// Result, if set, is told what became of every notice; Happened that an event may have been written.
	Result   func(gateway, result string)
	Happened func()

	Timeout  time.Duration // of one delivery's work at the store; default 10 s
	Interval time.Duration // between two tries of the notices that are kept; default the Reconciler's
	Keep     time.Duration // how long they are kept; default 72 h
}

// Intake takes in what gateways tell of late outcomes. A notice that is signed counts as evidence; any other has the gateway
// asked. None ever makes a send.
type Intake struct {
	IntakeConfig
	certs         map[string]*certificates
	reading, busy chan struct{}
	wakes         wakes
	mu            sync.Mutex
	warned        map[string]time.Time
}

// NewIntake makes an Intake. Gateways, tenants and the ways to a gateway are the Reconciler's.
func NewIntake(cfg IntakeConfig) *Intake {
	cfg.Timeout = orElse(cfg.Timeout, 10*time.Second)
	cfg.Interval = orElse(cfg.Interval, cfg.Reconciler.Interval)
	cfg.Keep = orElse(cfg.Keep, 72*time.Hour)
	in := &Intake{
		IntakeConfig: cfg, certs: map[string]*certificates{}, warned: map[string]time.Time{},
		reading: make(chan struct{}, maxReading), busy: make(chan struct{}, maxDeliveries),
	}
	in.wakes.init(cfg.Reconciler.Pace)
	for _, g := range cfg.Reconciler.Gateways.All() {
		if g.Webhook != nil && g.Webhook.Signature != nil && g.Webhook.Signature.Scheme == gateways.SchemeCertificate {
			in.certs[g.Name] = newCertificates(cfg.Reconciler.Links[g.Name])
		}
	}
	return in
}

// place is whose notices an address is for.
type place struct {
	tenant  string
	g       *gateways.Gateway
	account string
}

// place reads an address; false: none that is served here.
func (in *Intake) place(path string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(path, WebhookPath)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return p, false
	}
	for i, s := range parts {
		var err error
		if parts[i], err = url.PathUnescape(s); err != nil {
			return p, false
		}
	}
	p.tenant, p.account = parts[0], parts[2]
	if p.g, ok = in.Reconciler.Gateways.ByName(parts[1]); !ok || p.g.Webhook == nil {
		return p, false
	}
	served := slices.Contains(in.Reconciler.Tenants, p.tenant)
	return p, served && slices.ContainsFunc(p.g.Accounts, func(a gateways.Account) bool { return a.Name == p.account })
}

// ServeHTTP takes one delivery. 200 is said only once what it tells is as lasting as the store can make it; whatever else
// happens, the gateway is to send it again.
func (in *Intake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, ok := in.place(r.URL.EscapedPath())
	switch {
	case !ok:
		say(w, http.StatusNotFound, "")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		say(w, http.StatusMethodNotAllowed, "")
		return
	}
	if !enter(in.reading) {
		in.again(w, p, NoticeFailed)
		return
	}
	defer leave(in.reading)
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, gateways.MaxNotice))
	if err != nil {
		status := http.StatusBadRequest
		if is[*http.MaxBytesError](err) {
			status = http.StatusRequestEntityTooLarge
		}
		in.result(p.g.Name, NoticeMalformed)
		say(w, status, "")
		return
	}
	if !enter(in.busy) { // only now, so that slow senders take no place of it
		in.again(w, p, NoticeFailed)
		return
	}
	defer leave(in.busy)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.Timeout) // a write under way is not given up
	defer cancel()
	in.take(ctx, w, p, in.delivery(r, p, body))
}

// bodyTime is how long a body may take, so that slow senders leave soon: they need no signature for it.
const bodyTime = 5 * time.Second

func enter(room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(room chan struct{}) { <-room }

func (in *Intake) delivery(r *http.Request, p place, body []byte) gateways.Delivery {
	d := gateways.Delivery{URL: in.url(r), Body: body, At: time.Now()}
	for name, vs := range r.Header {
		for _, v := range vs {
			d.Header = append(d.Header, claims.Field{Name: name, Value: v})
		}
	}
	if c := in.certs[p.g.Name]; c != nil {
		d.Certificate = c.get
	}
	return d
}

// url is the address as the gateway knows it.
func (in *Intake) url(r *http.Request) string {
	if in.PublicURL != "" {
		return strings.TrimSuffix(in.PublicURL, "/") + r.URL.RequestURI()
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + r.URL.RequestURI()
}

// take verifies and applies a delivery, and answers.
func (in *Intake) take(ctx context.Context, w http.ResponseWriter, p place, d gateways.Delivery) {
	notices, err := p.g.OpenNotice(ctx, p.account, d)
	switch {
	case errors.Is(err, gateways.ErrForged):
		in.result(p.g.Name, NoticeForged)
		in.warn(p, "a notice was refused: its signature is wrong, missing or out of its time")
		say(w, p.g.Webhook.Refuse, "")
		return
	case errors.Is(err, gateways.ErrMalformed):
		in.result(p.g.Name, NoticeMalformed)
		in.warn(p, "a notice was refused: it cannot be read")
		say(w, http.StatusBadRequest, "")
		return
	case err != nil:
		in.warn(p, err.Error())
		in.again(w, p, NoticeFailed)
		return
	}
	lasting, failed := true, ""
	for i := range notices { // one that fails keeps no other from being taken
		result, err := in.apply(ctx, p, &notices[i], false)
		switch {
		case errors.Is(err, claims.ErrInboxFull):
			in.warn(p, err.Error())
			failed = NoticeFull
			continue
		case err != nil:
			in.Log.Warn("a notice was not taken; it is to come again", "tenant", p.tenant, "gateway", p.g.Name, "account", p.account, "error", err)
			failed = NoticeFailed
			continue
		}
		in.result(p.g.Name, result)
		lasting = lasting && slices.Contains([]string{NoticeIgnored, NoticeWoken, NoticeMismatch, NoticeFull}, result) // nothing is relied on
	}
	if failed != "" {
		in.again(w, p, failed)
		return
	}
	if !lasting {
		if err := in.Store.Confirm(ctx); err != nil {
			in.warn(p, "a notice is not answered yet, it may not last: "+err.Error())
			in.again(w, p, NoticeFailed)
			return
		}
	}
	say(w, http.StatusOK, p.g.Webhook.Accept)
}

// again asks the gateway to send it again.
func (in *Intake) again(w http.ResponseWriter, p place, result string) {
	in.result(p.g.Name, result)
	w.Header().Set("Retry-After", "30")
	say(w, http.StatusServiceUnavailable, "")
}

func say(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (in *Intake) result(gateway, result string) {
	if in.Result != nil {
		in.Result(gateway, result)
	}
}

// warn logs once a minute for each address and text: anybody can send anything here.
func (in *Intake) warn(p place, text string) {
	now, what := time.Now(), fmt.Sprint(p.tenant, "/", p.g.Name, "/", p.account, " ", text)
	in.mu.Lock()
	recent := now.Sub(in.warned[what]) < time.Minute
	if !recent {
		if len(in.warned) > 1000 {
			clear(in.warned)
		}
		in.warned[what] = now
	}
	in.mu.Unlock()
	if !recent {
		in.Log.Warn(text, "tenant", p.tenant, "gateway", p.g.Name, "account", p.account)
	}
}

// Run tries the notices that are kept, and asks gateways about the calls that were woken, until ctx ends.
func (in *Intake) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range workers {
		wg.Go(func() { in.wakes.run(ctx, in.ask) })
	}
	for {
		if err := in.Retry(ctx); err != nil && ctx.Err() == nil {
			in.Log.Warn("notices that are kept", "error", err)
		}
		t := time.NewTimer(in.Interval)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

func (in *Intake) ask(ctx context.Context, k claims.Key) {
	if err := in.Reconciler.Call(ctx, k); err != nil && ctx.Err() == nil {
		in.Log.Warn("reconcile after a notice", "tenant", k.Tenant, "call", k.Call, "error", err)
	}
}
