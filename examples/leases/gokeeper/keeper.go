// Package gokeeper keeps a lease while a piece of work is done. Copy it into your application; it needs the standard library only.
//
// The application asks Held right before each step, and puts Token on every call to a gateway, as Fence-Token. When the lease is
// lost, or a call is answered fenced, it stops: another holder goes on with the work. It undoes nothing and repeats nothing.
package gokeeper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"
)

// Refused is the sidecar's no. Slug: held, fenced, scope-finished, calls-in-flight …; After: seconds until a repeat makes sense.
type Refused struct{ Slug, After string }

func (r *Refused) Error() string { return "lease: " + r.Slug }

// Keeper is a lease on a scope, renewed in the background.
type Keeper struct {
	url, token  string
	lost, ended chan struct{}
	gone        sync.Once
	one         sync.Mutex // one request at a time, so that a renewal never meets its own release
	newest      atomic.Pointer[grant]
}

type grant struct {
	token     string
	until     time.Time // by its monotonic reading
	length    time.Duration
	cancelled bool
}

// Acquire takes a scope at a sidecar's control listener, http://127.0.0.1:8182 by default.
func Acquire(ctx context.Context, sidecar, scope, holder string) (*Keeper, error) {
	k := &Keeper{url: sidecar + "/v1/leases/", lost: make(chan struct{}), ended: make(chan struct{})}
	body, _ := json.Marshal(map[string]string{"id": scope, "holder": holder})
	g, err := k.ask(ctx, "acquire", body)
	if err != nil {
		return nil, err
	}
	k.token = g.token
	k.newest.Store(g)
	go k.renew()
	return k, nil
}

// Token is what every call carries as Fence-Token.
func (k *Keeper) Token() string { return k.token }

// Held reports whether nobody else can have the scope. Once false, always false.
func (k *Keeper) Held() bool { return k.TrustedFor() > 0 }

// Lost is closed at once when the lease is lost.
func (k *Keeper) Lost() <-chan struct{} { return k.lost }

// Cancelled reports that somebody wants the work to end. The lease goes on.
func (k *Keeper) Cancelled() bool { return k.newest.Load().cancelled }

// TrustedFor is for how long the lease is held without a further renewal.
func (k *Keeper) TrustedFor() time.Duration {
	if closed(k.lost) || closed(k.ended) {
		return 0
	}
	return max(0, time.Until(k.newest.Load().until))
}

// Release gives the scope back. It is Refused with calls-in-flight while a call's outcome is open: the lease goes on, ask again.
func (k *Keeper) Release(ctx context.Context) error { return k.end(ctx, "release") }

// Finish is like Release, and the scope is never granted again: the work is done.
func (k *Keeper) Finish(ctx context.Context) error { return k.end(ctx, "finish") }

func (k *Keeper) end(ctx context.Context, how string) error {
	k.one.Lock()
	defer k.one.Unlock()
	_, err := k.ask(ctx, how, nil)
	if err == nil && !closed(k.ended) {
		close(k.ended)
	}
	return err
}

// ask sends one request, once. The clock is read before it leaves, because its answer may take long.
func (k *Keeper) ask(ctx context.Context, what string, body []byte) (*grant, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.token != "" {
		req.Header.Set("Fence-Token", k.token)
	}
	sent := time.Now()
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var facts struct {
		Type      string `json:"type"` // of a problem
		Token     string `json:"fence_token"`
		Trusted   int64  `json:"trusted_for_ms"`
		Cancelled bool   `json:"cancelled"`
	}
	if err := json.NewDecoder(res.Body).Decode(&facts); err != nil {
		return nil, fmt.Errorf("lease: %s: %w", res.Status, err)
	}
	if res.StatusCode == http.StatusOK {
		length := time.Duration(facts.Trusted) * time.Millisecond
		return &grant{facts.Token, sent.Add(length), length, facts.Cancelled}, nil
	}
	no := &Refused{path.Base(facts.Type), res.Header.Get("Retry-After")}
	if k.token != "" && (no.Slug == "fenced" || no.Slug == "scope-finished") {
		k.lose()
	}
	return nil, no
}

func (k *Keeper) renew() {
	for pause := k.newest.Load().length / 3; k.Held(); {
		select {
		case <-k.ended:
		case <-time.After(min(pause, k.TrustedFor())):
		}
		pause = k.confirm()
	}
	k.lose()
}

// confirm renews, and says when to do so again.
func (k *Keeper) confirm() (pause time.Duration) {
	k.one.Lock()
	defer k.one.Unlock()
	length := k.newest.Load().length
	ctx, cancel := context.WithTimeout(context.Background(), min(length/3, k.TrustedFor())) // with nothing left nothing is sent
	defer cancel()
	g, err := k.ask(ctx, "confirm", nil)
	if err != nil || !k.Held() {
		return length / 10 // sooner; if it is not lost, it is trusted for as long as was granted
	}
	k.newest.Store(g)
	return g.length / 3
}

func (k *Keeper) lose() {
	if !closed(k.ended) {
		k.gone.Do(func() { close(k.lost) })
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
