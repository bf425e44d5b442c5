package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

const (
	tokenTimeout = 10 * time.Second
	// lasting is how long a token is used that says no end of its own, and failing how long a failed fetch is not repeated.
	lasting = 5 * time.Minute
	failing = time.Second
)

// Tokens fetches OAuth2 tokens by client credentials (RFC 6749, section 4.4), over the way to the gateway that its lookups take,
// and keeps them until shortly before they end.
type Tokens struct {
	clients map[string]*http.Client
	now     func() time.Time
	flights singleflight.Group

	mu    sync.Mutex
	known map[string]*minted // by gateway and account
}

type minted struct {
	token string
	until time.Time
	// again: it came after another one had been turned down. It is kept even if it is turned down too, or the token endpoint
	// would be asked at every lookup.
	again bool
	err   error // of a fetch that failed, until until
}

// NewTokens makes Tokens. now is the clock; nil: time.Now.
func NewTokens(reg *gateways.Registry, links map[string]Link, now func() time.Time) *Tokens {
	t := &Tokens{clients: map[string]*http.Client{}, now: now, known: map[string]*minted{}}
	if now == nil {
		t.now = time.Now
	}
	for _, g := range reg.All() {
		t.clients[g.Name] = newClient(links[g.Name])
	}
	return t
}

// Mint is a gateway's Mint: a token that is still good, or a new one. Requests that wait for the same one share its fetch. Its
// errors show neither secrets nor bytes of the answer.
func (t *Tokens) Mint(g *gateways.Gateway) func(context.Context, *gateways.Account) (string, error) {
	return func(ctx context.Context, a *gateways.Account) (string, error) {
		if a.OAuth2 == nil {
			return "", errors.New("account " + a.Name + " has no oauth2")
		}
		key := g.Name + "/" + a.Name
		if m := t.good(key); m != nil {
			return m.token, m.err
		}
		done := t.flights.DoChan(key, func() (any, error) {
			if m := t.good(key); m != nil { // the flight before this one brought it
				return m.token, m.err
			}
			return t.fetch(context.WithoutCancel(ctx), g, a, key)
		})
		select {
		case d := <-done:
			return d.Val.(string), d.Err
		case <-ctx.Done():
			return "", errGivenUp
		}
	}
}

func (t *Tokens) good(key string) *minted {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.known[key]; m != nil && t.now().Before(m.until) {
		return m
	}
	return nil
}

// fetch reads the secrets anew, so that rotated ones count.
func (t *Tokens) fetch(ctx context.Context, g *gateways.Gateway, a *gateways.Account, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	m := &minted{}
	if tok, err := t.ask(ctx, g, a); err != nil {
		m.until = t.now().Add(failing) // from its end on: it may have taken its whole time
		m.err = fmt.Errorf("no token for account %s: %w", a.Name, err)
	} else {
		m.token, m.until = tok.AccessToken, t.end(tok.Expiry)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.known[key]; old != nil {
		m.again = old.again && old.token == ""
	}
	t.known[key] = m
	return m.token, m.err
}

// end is until when a token is used: a tenth of its life less than it lasts, a minute at most.
func (t *Tokens) end(expiry time.Time) time.Time {
	now := t.now()
	if expiry.IsZero() {
		return now.Add(lasting)
	}
	return expiry.Add(-min(time.Minute, expiry.Sub(now)/10))
}

func (t *Tokens) ask(ctx context.Context, g *gateways.Gateway, a *gateways.Account) (*oauth2.Token, error) {
	id, err := a.OAuth2.ClientID.Value()
	if err != nil {
		return nil, fmt.Errorf("clientID: %w", err)
	}
	secret, err := a.OAuth2.ClientSecret.Value()
	if err != nil {
		return nil, fmt.Errorf("clientSecret: %w", err)
	}
	c := clientcredentials.Config{
		ClientID: id, ClientSecret: secret, TokenURL: a.OAuth2.URL(g), Scopes: a.OAuth2.Scopes, AuthStyle: oauth2.AuthStyleInHeader,
	}
	tok, err := c.Token(context.WithValue(ctx, oauth2.HTTPClient, t.clients[g.Name]))
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil { // its text holds the answer
		return nil, fmt.Errorf("the token endpoint answered %d", e.Response.StatusCode)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the token endpoint: %w", plain(err))
	case tok.AccessToken == "" || !oneLine(tok.AccessToken):
		return nil, errors.New("the token endpoint gave no token that can be sent")
	}
	return tok, nil
}

// oneLine reports whether a text can stand in a header.
func oneLine(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Drop forgets a token that a gateway turned down (401), once: the one that follows it stays until its end.
func (t *Tokens) Drop(gateway, account, token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.known[gateway+"/"+account]; m != nil && m.token == token && token != "" && !m.again {
		t.known[gateway+"/"+account] = &minted{again: true}
	}
}
