package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

const clientSecret = "hunter2/+"

// mint is a token endpoint, and the tokens that come from it.
type mint struct {
	t      *testing.T
	n      atomic.Int64
	tokens *reconcile.Tokens
	g      *gateways.Gateway
	a      *gateways.Account
	secret string // the file's path

	mu    sync.Mutex
	later time.Duration
}

func newMint(t *testing.T, answer func(n int64, rw http.ResponseWriter, r *http.Request)) *mint {
	m := &mint{t: t, secret: filepath.Join(t.TempDir(), "secret")}
	m.rotate(clientSecret)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { answer(m.n.Add(1), rw, r) }))
	t.Cleanup(srv.Close)
	t.Setenv("CLIENT_ID", "id")
	g := gateways.Stripe()
	g.BaseURL = srv.URL
	g.Accounts = []gateways.Account{{Name: "shop", OAuth2: &gateways.OAuth2{
		TokenPath: "/v1/oauth2/token", ClientID: gateways.Secret{Env: "CLIENT_ID"}, ClientSecret: gateways.Secret{File: m.secret}, Scopes: []string{"read"},
	}}}
	reg, err := gateways.NewRegistry(g)
	if err != nil {
		t.Fatal(err)
	}
	m.g, m.a = g, &g.Accounts[0]
	m.tokens = reconcile.NewTokens(reg, nil, func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return time.Now().Add(m.later) })
	g.Mint = m.tokens.Mint(g)
	return m
}

func (m *mint) rotate(secret string) {
	if err := os.WriteFile(m.secret, []byte(secret+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mint) wait(d time.Duration) { m.mu.Lock(); defer m.mu.Unlock(); m.later += d }

func (m *mint) want(token string) {
	m.t.Helper()
	if got, err := m.g.Mint(m.t.Context(), m.a); err != nil || got != token {
		m.t.Errorf("%q %v, want %q", got, err, token)
	}
}

func grant(rw http.ResponseWriter, token string, life int) {
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, life)
}

// A token is fetched once for all that wait, with the secrets as they are then, and used until shortly before its end.
func TestMint(t *testing.T) {
	m := newMint(t, func(n int64, rw http.ResponseWriter, r *http.Request) {
		id, secret, ok := r.BasicAuth()
		if !ok || id != "id" || secret != "hunter2%2F%2B" && secret != "rotated" || r.FormValue("grant_type") != "client_credentials" ||
			r.FormValue("scope") != "read" || r.URL.Path != "/v1/oauth2/token" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %s %s %v", r.Method, r.URL, id, secret, r.Form)
		}
		if (secret == "rotated") != (n > 1) {
			t.Errorf("fetch %d with %s", n, secret)
		}
		time.Sleep(20 * time.Millisecond)
		grant(rw, fmt.Sprint("token-", n), 3600)
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { m.want("token-1") })
	}
	wg.Wait()
	m.rotate("rotated")
	m.wait(58 * time.Minute)
	m.want("token-1")
	m.wait(90 * time.Second)
	m.want("token-2")
	if n := m.n.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}

// A token that is turned down is fetched anew once, not at every lookup.
func TestMintTurnedDown(t *testing.T) {
	m := newMint(t, func(n int64, rw http.ResponseWriter, _ *http.Request) { grant(rw, fmt.Sprint("token-", n), 3600) })
	m.want("token-1")
	m.tokens.Drop("stripe", "shop", "another")
	m.want("token-1")
	for range 5 {
		m.tokens.Drop("stripe", "shop", "token-1")
		m.want("token-2")
		m.tokens.Drop("stripe", "shop", "token-2")
	}
	m.want("token-2")
	m.wait(time.Hour) // the next one may be turned down again
	m.want("token-3")
	m.tokens.Drop("stripe", "shop", "token-3")
	m.want("token-4")
}

// What goes wrong is told in words of our own, and not asked again at once.
func TestMintErrors(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refused": func(rw http.ResponseWriter, r *http.Request) {
			_, secret, _ := r.BasicAuth()
			http.Error(rw, `{"error":"invalid_client","error_description":"`+secret+`"}`, http.StatusUnauthorized)
		},
		"an error in a 200":         func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte(`{"error":"hunter2"}`)) },
		"no token":                  func(rw http.ResponseWriter, _ *http.Request) { grant(rw, "", 60) },
		"a token that is two lines": func(rw http.ResponseWriter, _ *http.Request) { grant(rw, "hunter2\nX: y", 60) },
		"no JSON":                   func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("<html>hunter2")) },
		"elsewhere": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/hunter2", http.StatusTemporaryRedirect)
		},
		"cut": func(rw http.ResponseWriter, _ *http.Request) {
			c, _, _ := rw.(http.Hijacker).Hijack()
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMint(t, func(_ int64, rw http.ResponseWriter, r *http.Request) { answer(rw, r) })
			var last error
			for range 10 {
				_, last = m.g.Mint(t.Context(), m.a)
				if last == nil || strings.Contains(last.Error(), "hunter2") || !strings.Contains(last.Error(), "account shop") {
					t.Fatalf("%v", last)
				}
				if name == "refused" && !strings.Contains(last.Error(), "401") {
					t.Fatalf("%v", last)
				}
			}
			if n := m.n.Load(); n != 1 {
				t.Errorf("asked %d times in a row", n)
			}
			m.wait(2 * time.Second)
			if _, err := m.g.Mint(t.Context(), m.a); err == nil || m.n.Load() != 2 {
				t.Errorf("%v after %d", err, m.n.Load())
			}
		})
	}
	m := newMint(t, func(int64, http.ResponseWriter, *http.Request) {})
	os.Remove(m.secret)
	if _, err := m.g.Mint(t.Context(), m.a); err == nil || m.n.Load() != 0 {
		t.Errorf("no secret: %v", err)
	}
}

// Whoever does not wait for a token leaves the others theirs.
func TestMintGivenUp(t *testing.T) {
	begun, go_ := make(chan struct{}), make(chan struct{})
	m := newMint(t, func(_ int64, rw http.ResponseWriter, _ *http.Request) { close(begun); <-go_; grant(rw, "token", 60) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := m.g.Mint(ctx, m.a); done <- err }()
	<-begun
	cancel()
	if err := <-done; err == nil || errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "http") {
		t.Error(err)
	}
	close(go_)
	m.want("token")
	if m.n.Load() != 1 {
		t.Error("it was fetched twice")
	}
}

// A lookup that is answered 401 has its token fetched anew for the next one.
func TestLookupTurnedDown(t *testing.T) {
	var seen []string
	d := newWorld(t, nil)
	m := newMint(t, func(n int64, rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			grant(rw, fmt.Sprint("token-", len(seen)), 3600)
			return
		}
		seen = append(seen, r.Header.Get("Authorization"))
		http.Error(rw, `{"error":{"type":"invalid_request_error"}}`, http.StatusUnauthorized)
	})
	reg, err := gateways.NewRegistry(m.g)
	if err != nil {
		t.Fatal(err)
	}
	cfg := d.rec.Config
	cfg.Gateways, cfg.Tokens = reg, m.tokens
	d.rec, d.g = reconcile.New(cfg), m.g
	d.doubt(key, "payment_intents_create")
	for range 4 {
		if err := d.rec.Call(t.Context(), claims.Key{Tenant: "t", Call: key}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(seen), "[Bearer token-0 Bearer token-1 Bearer token-1 Bearer token-1]"; got != want {
		t.Errorf("looked up with %s, want %s", got, want)
	}
}
