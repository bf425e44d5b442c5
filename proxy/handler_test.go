package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// stand is a proxy on a real port between a test and a sandbox.
type stand struct {
	t     *testing.T
	gw    *sandbox.Server
	store *memory.Store
	proxy *Proxy
	reg   *prometheus.Registry
	url   string
}

func newStand(t *testing.T, bend func(*gateways.Gateway), cfg Config) *stand {
	s := &stand{t: t, gw: sandbox.New(sandbox.Config{}), store: memory.New(memory.Config{}), reg: prometheus.NewRegistry()}
	addr, err := s.gw.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.gw.Close() })
	g := gateways.Stripe()
	g.BaseURL, g.AttemptTimeout = s.gw.URL(addr), 5*time.Second
	if bend != nil {
		bend(g)
	}
	if cfg.Gateways, err = gateways.NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(g.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEgress(EgressConfig{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	log := slog.New(slog.DiscardHandler)
	instance := claims.NewInstance(s.store, claims.SystemClock, claims.LeaseTimes{TTL: time.Hour}, "test", log)
	if err := instance.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.Fence = claims.New(claims.Config{
		Store: s.store, Leases: s.store, Keys: memory.Ring{}, Instance: instance, Clock: claims.SystemClock, Log: log,
	})
	cfg.Egress, cfg.Log, cfg.Metrics, cfg.Realm = map[string]*Egress{"stripe": e}, log, NewMetrics(s.reg), "r"
	if s.proxy, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(s.proxy.Any(), ServerConfig{Log: log})
	done := make(chan struct{})
	go func() { srv.Serve(Listen(l, 0)); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done })
	s.url = "http://" + l.Addr().String() + "/stripe"
	return s
}

// do makes a request with a client that repeats nothing.
func (s *stand) do(method, path, body string, header ...string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_x")
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

const chargeForm = "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa"

func (s *stand) posts() int { return len(s.gw.Sends(http.MethodPost)) }

func (s *stand) records() int {
	rs, err := s.store.List(s.t.Context(), "", nil, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(rs)
}

func TestHandler_chargeAndReplay(t *testing.T) {
	s := newStand(t, nil, Config{})
	status, h, first := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k")
	if status != 200 || h.Get(HeaderOutcome) != "succeeded" || h.Get(HeaderResult) != "sent" || h.Get(HeaderLease) != "instance" ||
		h.Get(HeaderAttempt) != "1" || h.Get(HeaderCall) != "default:k" || h.Get("Proxy-Status") != "fence-sidecar; received-status=200" {
		t.Fatalf("%d %v", status, h)
	}
	status, h, again := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k")
	if status != 200 || h.Get(HeaderResult) != "replayed" || again != first {
		t.Errorf("repeat: %d %v %s", status, h, again)
	}
	if s.posts() != 1 || s.gw.Moved() != 1 {
		t.Errorf("%d sends, %d charges; want one of each", s.posts(), s.gw.Moved())
	}
}

// The breaker is asked before the claim: while it is open nothing is stored and nothing leaves.
func TestHandler_breaker(t *testing.T) {
	s := newStand(t, func(g *gateways.Gateway) { g.BaseURL = "http://127.0.0.1:1" }, Config{Breaker: BreakerConfig{Failures: 3, Open: time.Hour}})
	for i := range 3 {
		if status, h, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, fmt.Sprint(i)); status != 502 || h.Get(HeaderOutcome) != "not-executed" {
			t.Fatalf("%d %v", status, h)
		}
	}
	before := s.records()
	status, h, body := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "x")
	if status != 503 || !strings.Contains(body, "breaker-open") || h.Get("Retry-After") == "" || h.Get(HeaderOutcome) != "not-executed" {
		t.Errorf("%d %v %s", status, h, body)
	}
	if s.records() != before {
		t.Error("a refused call left a record")
	}
	// A replay asks no gateway, so an open breaker does not stand in its way; here there is none, only a conflict.
	if status, _, _ := s.do("POST", "/v1/payment_intents", chargeForm+"&x=1", HeaderKey, "0"); status != 422 {
		t.Errorf("status %d behind an open breaker, want the conflict's 422", status)
	}
}

func TestHandler_untagged(t *testing.T) {
	s := newStand(t, nil, Config{})
	if status, _, body := s.do("POST", "/v1/payment_intents", chargeForm); status != 403 || !strings.Contains(body, HeaderKey) {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := s.do("POST", "/v1/payment_intents", chargeForm, "Fence-Timeout", "9"); status != 400 || !strings.Contains(body, HeaderKey) {
		t.Errorf("%d %s", status, body)
	}
	if s.posts() != 0 || s.records() != 0 {
		t.Errorf("%d sends, %d records", s.posts(), s.records())
	}
	if status, h, _ := s.do("GET", "/v1/payment_intents?limit=3", ""); status != 200 || h.Get(HeaderResult) != "" {
		t.Errorf("a safe method: %d %v", status, h)
	}
	p := newStand(t, func(g *gateways.Gateway) { g.Untagged = gateways.UntaggedPass }, Config{})
	if status, h, _ := p.do("POST", "/v1/payment_intents", chargeForm); status != 200 || h.Get(HeaderOutcome) != "" {
		t.Errorf("untagged: pass: %d %v", status, h)
	}
	if p.posts() != 1 || p.records() != 0 {
		t.Errorf("untagged: pass: %d sends, %d records", p.posts(), p.records())
	}
}

func TestHandler_tenantsAndTokens(t *testing.T) {
	s := newStand(t, func(g *gateways.Gateway) { g.Tokens = gateways.TokensRequired }, Config{Tenants: []string{"a", "b"}})
	lease, err := s.store.Acquire(t.Context(), claims.ScopeKey("b", "order 42"), "app", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	token := lease.Guard.String()
	for _, tt := range []struct {
		name   string
		header []string
		status int
		slug   string
	}{
		{"tenant not served", []string{HeaderKey, "k", HeaderTenant, "c", HeaderToken, token}, 403, "tenant-not-served"},
		{"token missing", []string{HeaderKey, "k"}, 400, "bad-request"},
		{"token of another tenant", []string{HeaderKey, "k", HeaderTenant, "a", HeaderToken, token}, 409, "fenced"},
		{"token never granted", []string{HeaderKey, "k", HeaderTenant, "b", HeaderToken, token + "7"}, 409, "fenced"},
		{"live token", []string{HeaderKey, "k", HeaderTenant, "b", HeaderToken, token}, 200, ""},
	} {
		status, h, body := s.do("POST", "/v1/payment_intents", chargeForm, tt.header...)
		if status != tt.status || !strings.Contains(body, tt.slug) {
			t.Errorf("%s: %d %s", tt.name, status, body)
		}
		if tt.status == 200 && h.Get(HeaderLease) != "live" {
			t.Errorf("lease %q", h.Get(HeaderLease))
		}
	}
	if s.posts() != 1 {
		t.Errorf("%d sends, want 1", s.posts())
	}
}

// With several tenants a request must say which: the order of a list must not decide which record a repeat meets.
func TestHandler_severalTenants(t *testing.T) {
	s := newStand(t, nil, Config{Tenants: []string{"a", "b"}})
	if status, _, body := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k"); status != 400 || !strings.Contains(body, HeaderTenant) {
		t.Errorf("%d %s", status, body)
	}
	if s.posts() != 0 || s.records() != 0 {
		t.Errorf("%d sends, %d records", s.posts(), s.records())
	}
}

// What a gateway could take for another method does not pass as a safe one, and nothing of it counts against the gateway.
func TestHandler_disguisedMethods(t *testing.T) {
	s := newStand(t, nil, Config{Breaker: BreakerConfig{Failures: 1, Open: time.Hour}})
	for _, tt := range []struct{ method, header, value string }{
		{"GET", "X-HTTP-Method-Override", "POST"}, {"HEAD", "X-Http-Method", "DELETE"}, {"POST", "X-Method-Override", "PUT"},
		{"get", "Accept", "*/*"}, {"post", HeaderKey, "k"}, {"Post", HeaderKey, "k"},
	} {
		if status, _, _ := s.do(tt.method, "/v1/payment_intents", "", tt.header, tt.value); status != 400 {
			t.Errorf("%s with %s: status %d, want 400", tt.method, tt.header, status)
		}
	}
	if n := len(s.gw.Sends()); n != 0 || s.records() != 0 {
		t.Errorf("%d sends, %d records", n, s.records())
	}
	if status, _, body := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k"); status != 200 {
		t.Errorf("a charge after them: %d %s", status, body)
	}
}

// No request, whatever its path, key, method or host, makes a new series (field report R70).
func TestHandler_seriesStayConstant(t *testing.T) {
	s := newStand(t, nil, Config{})
	round := func(n int) {
		for i := range n {
			s.do("POST", fmt.Sprintf("/v1/made/up/%d", i), "", HeaderKey, fmt.Sprintf("key-%d", i))
			s.do(fmt.Sprintf("FOO%d", i), fmt.Sprintf("/v9/%d", i), "", HeaderKey, fmt.Sprintf("other-%d", i))
			s.do("GET", fmt.Sprintf("/v1/x%d", i), "")
			s.do("POST", "/v1/payment_intents", "")
		}
	}
	count := func() (n int) {
		mfs, err := s.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, mf := range mfs {
			n += len(mf.GetMetric())
		}
		return n
	}
	round(2)
	before := count()
	round(40)
	if after := count(); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
}
