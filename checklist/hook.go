package checklist

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// HookConfig says where the gateway's notices come in.
type HookConfig struct {
	// Listen is the address to listen on; URL the address as the gateway knows it, for gateways that sign it ("": http:// and Listen).
	Listen, URL string
	// Secrets verify the notices.
	Secrets []gateways.Secret
	// Certificate fetches the certificate that a notice names (scheme certificate); nil: none can be had.
	Certificate func(ctx context.Context, url string) (*x509.Certificate, error)
	// Ready is told the address once it is listened on; nil: nobody is.
	Ready func(addr net.Addr)
}

// maxHeld bounds the notices that are kept until they are taken.
const maxHeld = 1000

// told is one notice.
type told struct {
	at         time.Time
	verified   bool
	accepted   bool
	problem    string
	references []string
	object     string
	outcome    string
	payment    string
}

// hook is a running listener.
type hook struct {
	g    *gateways.Gateway
	cfg  HookConfig
	now  func() time.Time
	srv  *http.Server
	done chan struct{}
	came chan struct{} // one notice at least came since it was last read

	mu   sync.Mutex
	held []told
	// route is the charge's: what a notice says of its calls counts.
	route string
}

// listenHook starts a listener.
func listenHook(ctx context.Context, g *gateways.Gateway, cfg HookConfig, now func() time.Time) (*hook, error) {
	if g.Webhook == nil {
		return nil, errors.New("the gateway declares no webhook: its notices could not be read")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	own := *g
	own.Accounts = []gateways.Account{{Name: tenant, WebhookSecrets: cfg.Secrets}}
	if cfg.URL == "" {
		cfg.URL = "http://" + l.Addr().String()
	}
	h := &hook{g: &own, cfg: cfg, now: now, done: make(chan struct{}), came: make(chan struct{}, 1)}
	h.srv = &http.Server{Handler: h, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() {
		defer close(h.done)
		h.srv.Serve(l)
	}()
	if cfg.Ready != nil {
		cfg.Ready(l.Addr())
	}
	return h, nil
}

func (h *hook) close() {
	h.srv.Close()
	<-h.done
}

// ServeHTTP takes a notice. What is not taken is answered as the intake of a sidecar answers it, and noted: a forged one as the
// gateway's declaration says; one that could not be verified, for want of a secret or certificate, is to come again.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, gateways.MaxNotice))
	if err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d := gateways.Delivery{URL: h.cfg.URL + r.URL.RequestURI(), Body: body, At: h.now(), Certificate: h.cfg.Certificate}
	for name, vs := range r.Header {
		for _, v := range vs {
			d.Header = append(d.Header, claims.Field{Name: name, Value: v})
		}
	}
	ns, err := h.g.OpenNotice(r.Context(), tenant, d)
	if err != nil {
		h.hold(told{at: d.At, problem: err.Error()})
		w.WriteHeader(h.refusal(err))
		return
	}
	for _, n := range ns {
		h.hold(h.read(n, d.At))
	}
	io.WriteString(w, h.g.Webhook.Accept)
}

// refusal is the status for a notice that is not taken.
func (h *hook) refusal(err error) int {
	switch {
	case errors.Is(err, gateways.ErrForged):
		return h.g.Webhook.Refuse
	case errors.Is(err, gateways.ErrMalformed):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// read makes what the checklist needs of a notice.
func (h *hook) read(n gateways.Notice, at time.Time) told {
	t := told{at: at, verified: n.Signed, accepted: true, references: n.References, object: n.Object}
	if !n.Signed {
		t.problem = "it is not signed, or the signature does not cover it"
	}
	h.mu.Lock()
	route := h.route
	h.mu.Unlock()
	if o, payment, ok := n.Reading(route); ok {
		t.outcome, t.payment = o.String(), payment
	}
	return t
}

func (h *hook) of(route string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.route = route
}

func (h *hook) hold(t told) {
	h.mu.Lock()
	if len(h.held) < maxHeld {
		h.held = append(h.held, t)
	}
	h.mu.Unlock()
	select {
	case h.came <- struct{}{}:
	default:
	}
}

// take returns what came since it was last called.
func (h *hook) take() []told {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.held)
	h.held = nil
	return out
}
