// Package problems is a stand-in for a sidecar that refuses every call. It shows what a client library makes of each
// refusal: the answers come out of the sidecar's own map, and every request is counted.
package problems

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// Repeatable are the refusals that a client library may repeat by itself: another request may already have the answer, or
// nothing was done because the store or the process was not ready. The product's documentation names these four.
var Repeatable = []claims.Reason{claims.InFlight, claims.StoreUnavailable, claims.LeaseLost, claims.Draining}

// Key is the call key that asks for a refusal: refuse/<slug>/<outcome>/<Retry-After in seconds, 0: as the map has it>. The
// refusal hangs on the call key, not on the path, because some libraries take a host and a port and nothing more.
func Key(slug claims.Reason, outcome claims.Outcome, retryAfter int) string {
	return fmt.Sprintf("refuse/%s/%s/%d", slug, outcome, retryAfter)
}

// outcomes are all that a refusal can say of its call.
var outcomes = []claims.Outcome{claims.Unknown, claims.Succeeded, claims.Declined, claims.NotExecuted}

// Variants are the ways in which each refusal is asked for: with every outcome, and with a Retry-After of two seconds.
func Variants(slug claims.Reason) (keys []string) {
	for _, o := range outcomes {
		keys = append(keys, Key(slug, o, 0))
	}
	return append(keys, Key(slug, claims.Unknown, 2))
}

// Fault is what is left out of the answers.
type Fault string

const (
	NoShape  Fault = "no-shape"  // the gateway's own error shape and headers: a plain problem document
	NoHeader Fault = "no-header" // the gateway's headers that keep its SDKs from resending
	// WrongShape gives another gateway's error shape and headers.
	WrongShape Fault = "wrong-shape"
)

// Handler refuses every request in a gateway's error shape, except that
//
//	GET /_refusals   lists the slugs, with the call keys to ask for each
//	GET /_counts     tells how many requests came in under each call key; "" counts those without one
type Handler struct {
	// Gateway is a built-in gateway's name; "": stripe.
	Gateway string
	// Fault breaks the answers in a way that a check must notice.
	Fault Fault

	mu     sync.Mutex
	counts map[string]int
}

// Counts returns the requests by call key.
func (h *Handler) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, h.counts)
	return out
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g, ok := gateways.Declared(cmp.Or(h.Gateway, "stripe"))
	if !ok {
		http.Error(w, "no such gateway", http.StatusNotImplemented)
		return
	}
	switch r.URL.Path {
	case "/_refusals":
		answer(w, list(g))
		return
	case "/_counts":
		answer(w, h.Counts())
		return
	}
	h.refuse(w, r, g)
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, g *gateways.Gateway) {
	key := r.Header.Get(proxy.HeaderKey)
	h.mu.Lock()
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	h.counts[key]++
	h.mu.Unlock()
	io.Copy(io.Discard, r.Body)
	ref, err := refusal(key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	w.Header().Set(proxy.HeaderOutcome, ref.Outcome.String())
	w.Header().Set(proxy.HeaderResult, string(claims.SourceRefused))
	switch h.Fault {
	case NoShape:
		g = nil
	case NoHeader:
		g.Error.Header = nil
	case WrongShape:
		g.Error = other(g).Error
	}
	proxy.WriteProblem(w, ref, g)
}

// other is a gateway whose errors look different.
func other(g *gateways.Gateway) *gateways.Gateway {
	if g.Name == "stripe" {
		return gateways.CheckoutCom()
	}
	return gateways.Stripe()
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// listed is one refusal as /_refusals shows it.
type listed struct {
	Slug   claims.Reason `json:"slug"`
	Status int           `json:"status"`
	Keys   []string      `json:"keys"`
}

func list(g *gateways.Gateway) (all []listed) {
	for _, slug := range claims.Reasons {
		all = append(all, listed{slug, proxy.StatusOf(slug, g), Variants(slug)})
	}
	return all
}

// refusal reads a call key that Key made.
func refusal(key string) (*claims.Refusal, error) {
	part := strings.Split(key, "/")
	if len(part) != 4 || part[0] != "refuse" {
		return nil, fmt.Errorf("call key %q does not ask for a refusal", key)
	}
	i := slices.IndexFunc(outcomes, func(o claims.Outcome) bool { return o.String() == part[2] })
	after, err := strconv.Atoi(part[3])
	if i < 0 || err != nil || !slices.Contains(claims.Reasons, claims.Reason(part[1])) {
		return nil, fmt.Errorf("call key %q asks for a refusal that is not known", key)
	}
	return &claims.Refusal{
		Reason: claims.Reason(part[1]), Detail: "refused by the example server", Outcome: outcomes[i],
		RetryAfter: time.Duration(after) * time.Second,
	}, nil
}
