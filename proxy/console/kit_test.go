package console

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// kit is a console over a store of tests, with a clock that a test moves.
type kit struct {
	*testing.T
	*Console
	clock *claimstest.Clock
	store *double
	reg   *prometheus.Registry
	h     http.Handler
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newKit(t *testing.T, edit ...func(*Config)) *kit {
	t.Helper()
	clock := claimstest.NewClock()
	k := &kit{T: t, clock: clock, reg: prometheus.NewRegistry()}
	store := memory.New(memory.Config{Now: clock.Now})
	k.store = &double{Backend: store, Spoil: store.Spoil}
	cfg := Config{
		Leases: k.store, Lister: k.store, Confirm: k.store.Confirm, Calls: k.store, Journal: k.store, Log: quiet, Metrics: NewMetrics(k.reg),
		Clock: func() claims.Reading {
			return claims.Reading{Mono: clock.Boot(), Boot: clock.Boot(), Wall: clock.Wall()}
		},
	}
	for _, f := range edit {
		f(&cfg)
	}
	k.Console = New(cfg)
	k.h = k.Console.Handler()
	return k
}

// double is a store whose answers can be lost: before an operation, or after it was applied.
type double struct {
	claims.Backend
	Spoil         func(claims.Key) // makes a record unreadable
	mu            sync.Mutex
	before, after func(op string) error
}

// breaks sets what happens from now on; nil: nothing.
func (d *double) breaks(before, after func(op string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

func (d *double) run(op string, do func() error) error {
	d.mu.Lock()
	before, after := d.before, d.after
	d.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return err
		}
	}
	err := do()
	if after != nil && err == nil {
		err = after(op)
	}
	return err
}

func (d *double) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (l claims.Lease, err error) {
	err = d.run("acquire", func() (err error) { l, err = d.Backend.Acquire(ctx, scope, holder, ttl); return })
	return l, err
}

func (d *double) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (l claims.Lease, err error) {
	err = d.run("renew", func() (err error) { l, err = d.Backend.Renew(ctx, g, ttl); return })
	return l, err
}

func (d *double) Release(ctx context.Context, g claims.Guard) error {
	return d.run("release", func() error { return d.Backend.Release(ctx, g) })
}

func (d *double) Finish(ctx context.Context, g claims.Guard) error {
	return d.run("finish", func() error { return d.Backend.Finish(ctx, g) })
}

func (d *double) Cancel(ctx context.Context, scope string) (l claims.Lease, err error) {
	err = d.run("cancel", func() (err error) { l, err = d.Backend.Cancel(ctx, scope); return })
	return l, err
}

func (d *double) State(ctx context.Context, scope string) (l claims.Lease, err error) {
	err = d.run("state", func() (err error) { l, err = d.Backend.State(ctx, scope); return })
	return l, err
}

func (d *double) Confirm(ctx context.Context) error {
	return d.run("confirm", func() error { return d.Backend.Confirm(ctx) })
}

func (d *double) Log(ctx context.Context, scope string) (es []claims.LeaseEvent, err error) {
	err = d.run("log", func() (err error) { es, err = d.Backend.Log(ctx, scope); return })
	return es, err
}

func (d *double) Get(ctx context.Context, k claims.Key, g claims.Guard) (v claims.View, err error) {
	err = d.run("get", func() (err error) { v, err = d.Backend.Get(ctx, k, g); return })
	return v, err
}

func (d *double) Swap(ctx context.Context, c claims.Condition, ws ...claims.Write) (sw claims.Swapped, err error) {
	err = d.run("swap", func() (err error) { sw, err = d.Backend.Swap(ctx, c, ws...); return })
	return sw, err
}

func (d *double) Events(ctx context.Context, after string, limit int) (es []claims.Event, err error) {
	err = d.run("events", func() (err error) { es, err = d.Backend.Events(ctx, after, limit); return })
	return es, err
}

func (d *double) LastEvent(ctx context.Context) (id string, err error) {
	err = d.run("last-event", func() (err error) { id, err = d.Backend.LastEvent(ctx); return })
	return id, err
}

// fail makes an error for the listed operations only.
func fail(err error, ops ...string) func(string) error {
	return func(op string) error {
		if slices.Contains(ops, op) {
			return err
		}
		return nil
	}
}

// reply is one answer.
type reply struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (r reply) slug() string {
	typ, _ := r.body["type"].(string)
	return strings.TrimPrefix(typ, proxy.ProblemBase)
}

func (r reply) num(member string) float64 { n, _ := r.body[member].(float64); return n }

func (r reply) text(member string) string { s, _ := r.body[member].(string); return s }

// request makes one with the headers that an ordinary client sends.
func request(method, target, token, body string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost:8182"+target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Fence-Token", token)
	}
	return r
}

func serve(h http.Handler, r *http.Request) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	got := reply{status: w.Code, header: w.Header(), raw: w.Body.Bytes(), body: map[string]any{}}
	json.Unmarshal(got.raw, &got.body)
	return got
}

// do sends a request and holds the exchange against the description.
func (k *kit) do(r *http.Request) reply {
	k.Helper()
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(sent)))
	}
	got := serve(k.h, r)
	if err := described(k.T).check(r, sent, got); err != nil {
		k.Errorf("%s %s, %s → %d %s\nis not as described: %v", r.Method, r.URL, sent, got.status, got.raw, err)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		k.Errorf("%s %s: Cache-Control %q", r.Method, r.URL, got.header.Get("Cache-Control"))
	}
	return got
}

func (k *kit) post(op, token, body string) reply {
	k.Helper()
	return k.do(request(http.MethodPost, "/v1/leases/"+op, token, body))
}

func (k *kit) get(op, token string) reply {
	k.Helper()
	return k.do(request(http.MethodGet, "/v1/leases/"+op, token, ""))
}

// acquire takes default:<id> and returns its fence token.
func (k *kit) acquire(id, holder string) string {
	k.Helper()
	r := k.post("acquire", "", `{"id":"`+id+`","holder":"`+holder+`"}`)
	k.wants(r, 200, "")
	return r.text("fence_token")
}

func (k *kit) wants(r reply, status int, slug string) {
	k.Helper()
	if r.status != status || r.slug() != slug {
		k.Fatalf("%d %s, want %d %s: %s", r.status, r.slug(), status, slug, r.raw)
	}
}

func (k *kit) same(what string, got, want any) {
	k.Helper()
	if d := cmp.Diff(want, got); d != "" {
		k.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// body is a reply's members without those that stand in drop.
func (r reply) without(drop ...string) map[string]any {
	out := maps.Clone(r.body)
	for _, d := range drop {
		delete(out, d)
	}
	return out
}

// metric reads one series by its name and labels as they are scraped.
func metric(t *testing.T, reg *prometheus.Registry, series string) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	_, rest, ok := strings.Cut("\n"+w.Body.String(), "\n"+series+" ")
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
