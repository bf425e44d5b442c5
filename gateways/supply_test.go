package gateways

import (
	"context"
	"errors"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func withAccounts(t *testing.T, set func(*Gateway), accounts ...Account) *Gateway {
	t.Helper()
	g := Stripe()
	g.Accounts = accounts
	set(g)
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

func bearing(credential string) Inbound {
	return Inbound{Method: "POST", Target: "/v1/refunds", Header: []claims.Field{
		{Name: "Authorization", Value: credential}, {Name: "Content-Type", Value: mediaForm},
	}, Body: []byte("charge=ch_1")}
}

func prepared(t *testing.T, g *Gateway, in Inbound) (Call, error) {
	t.Helper()
	m, ok := g.Match(in.Method, in.Target)
	if !ok {
		t.Fatal("no route")
	}
	return m.Prepare(in, Identity{Realm: "r", Tenant: "t", CallKey: "k", Revision: 1})
}

// A token that changes by itself is no other credential: a repeat with a new one is the same call, of the same account.
func TestRotating(t *testing.T) {
	g := withAccounts(t, func(g *Gateway) { g.Rotating = true }, Account{Name: "shop"})
	a, err1 := prepared(t, g, bearing("Bearer token-1"))
	b, err2 := prepared(t, g, bearing("Bearer token-2"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if string(a.Canonical) != string(b.Canonical) || a.Facts.Account != "shop" || a.Facts.Credential != b.Facts.Credential || a.Facts.Credential == "" {
		t.Errorf("two tokens of one account make two calls: %+v, %+v", a.Facts, b.Facts)
	}
	if owns, err := g.Owns("shop", a.Facts.Credential, "r"); !owns || err != nil {
		t.Errorf("the account does not own what its calls went with: %v, %v", owns, err)
	}
	// Without the setting they are two.
	g = withAccounts(t, func(*Gateway) {}, Account{Name: "shop"})
	a, _ = prepared(t, g, bearing("Bearer token-1"))
	b, _ = prepared(t, g, bearing("Bearer token-2"))
	if string(a.Canonical) == string(b.Canonical) {
		t.Error("two credentials make one call")
	}

	g = Stripe()
	g.Rotating, g.Accounts = true, []Account{{Name: "a"}, {Name: "b"}}
	if err := g.Validate(); err == nil {
		t.Error("two accounts that no token tells apart")
	}
	if _, err := prepared(t, withAccounts(t, func(g *Gateway) { g.Rotating = true }), bearing("Bearer x")); !isBad(err) {
		t.Errorf("no account: %v", err)
	}
}

func isBad(err error) bool { _, ok := errors.AsType[*BadRequest](err); return ok }

func TestSupply(t *testing.T) {
	t.Setenv("KEY_A", "sk_a")
	t.Setenv("KEY_B", "sk_b")
	a, b := Account{Name: "a", Credential: Secret{Env: "KEY_A"}}, Account{Name: "b", Credential: Secret{Env: "KEY_B"}, CredentialHash: AccountHash("r", "shop-b")}
	sidecar := func(g *Gateway) { g.Credentials = CredentialsSidecar }
	authorization := func(h []claims.Field) string { return values(h, "Authorization")[0] }

	app := withAccounts(t, func(*Gateway) {}, a)
	if h, err := app.Supply(t.Context(), bearing("Bearer own"), "r"); err != nil || authorization(h) != "Bearer own" {
		t.Errorf("%v, %v: the app's own credential goes on", h, err)
	}
	one := withAccounts(t, sidecar, a)
	for _, cred := range []string{"Bearer whatever", "Bearer sk_b", "Basic eDp5"} {
		if h, err := one.Supply(t.Context(), bearing(cred), "r"); err != nil || len(values(h, "Authorization")) != 1 || authorization(h) != "Bearer sk_a" {
			t.Errorf("%s: %v, %v", cred, h, err)
		}
	}
	none := bearing("")
	none.Header = none.Header[1:]
	if h, err := one.Supply(t.Context(), none, "r"); err != nil || authorization(h) != "Bearer sk_a" {
		t.Errorf("without any: %v, %v", h, err)
	}
	two := withAccounts(t, sidecar, a, b)
	if h, err := two.Supply(t.Context(), bearing("Bearer shop-b"), "r"); err != nil || authorization(h) != "Bearer sk_b" {
		t.Errorf("by name: %v, %v", h, err)
	}
	if _, err := two.Supply(t.Context(), bearing("Bearer who"), "r"); !isBad(err) {
		t.Errorf("which of two is not said: %v", err)
	}
	t.Setenv("KEY_A", "")
	if _, err := one.Supply(t.Context(), bearing("Bearer x"), "r"); err == nil {
		t.Error("a secret that is gone")
	} else if _, ok := errors.AsType[*Unavailable](err); !ok {
		t.Errorf("%v: not told as a thing that passes", err)
	}
	g := Stripe()
	g.Credentials, g.Accounts = CredentialsSidecar, []Account{{Name: "a"}}
	if g.Validate() == nil {
		t.Error("no credential to supply")
	}
}

// The secret behind an account is another merchant's from now on: what went with the old one is not asked for, nor repeated, with it.
func TestSupplySwapped(t *testing.T) {
	t.Setenv("KEY_A", "sk_first")
	t.Setenv("CLIENT", "client-1")
	t.Setenv("SECRET", "s")
	client := &OAuth2{TokenPath: "/token", ClientID: Secret{Env: "CLIENT"}, ClientSecret: Secret{Env: "SECRET"}}
	for _, account := range []Account{{Name: "a", Credential: Secret{Env: "KEY_A"}}, {Name: "a", OAuth2: client}} {
		g := withAccounts(t, func(g *Gateway) { g.Credentials = CredentialsSidecar }, account)
		t.Setenv("KEY_A", "sk_first")
		t.Setenv("CLIENT", "client-1")
		before, err := prepared(t, g, bearing("Bearer x"))
		if owns, _ := g.Owns("a", before.Facts.Credential, "r"); err != nil || !owns {
			t.Fatal(before.Facts, err)
		}
		t.Setenv("SECRET", "rolled")
		if again, _ := prepared(t, g, bearing("Bearer x")); again.Facts.Credential != before.Facts.Credential {
			t.Error("a client's rolled secret is another account")
		}
		t.Setenv("KEY_A", "sk_other")
		t.Setenv("CLIENT", "client-2")
		after, _ := prepared(t, g, bearing("Bearer x"))
		if owns, _ := g.Owns("a", before.Facts.Credential, "r"); owns || after.Facts.Credential == before.Facts.Credential {
			t.Errorf("another merchant's credential passes for the account's: %v", after.Facts)
		}
	}
}

func TestSupplyToken(t *testing.T) {
	t.Setenv("ID", "client")
	o := &OAuth2{TokenPath: "/v1/oauth2/token", ClientID: Secret{Env: "ID"}, ClientSecret: Secret{Env: "SECRET"}}
	g := withAccounts(t, func(g *Gateway) { g.Credentials = CredentialsSidecar }, Account{Name: "a", OAuth2: o})
	if o.URL(g) != "https://api.stripe.com/v1/oauth2/token" {
		t.Error(o.URL(g))
	}
	if _, err := g.Supply(t.Context(), bearing("Bearer x"), "r"); err == nil {
		t.Error("nothing fetches tokens")
	}
	fail := errors.New("the token endpoint is away")
	g.Mint = func(_ context.Context, a *Account) (string, error) { return "tok-" + a.Name, fail }
	if _, err := g.Supply(t.Context(), bearing("Bearer x"), "r"); err == nil {
		t.Error("a token that was not given")
	}
	fail = nil
	if h, err := g.Supply(t.Context(), bearing("Bearer x"), "r"); err != nil || values(h, "Authorization")[0] != "Bearer tok-a" {
		t.Errorf("%v, %v", h, err)
	}
	if h, ok, err := g.LookupHeader(t.Context(), "a"); err != nil || !ok || h[0].Value != "Bearer tok-a" {
		t.Errorf("%v, %v, %v: a lookup goes with the account's token", h, ok, err)
	}
	if !g.LooksUp("a") || g.LooksUp("b") {
		t.Error("who looks up")
	}
}

// A route of its own may let untagged requests pass where the gateway does not.
func TestUntaggedRoute(t *testing.T) {
	g, err := Load([]byte(`
name: tokens
baseURL: https://api.tokens.example
routes:
  - {name: token, method: POST, path: /oauth/token, keyless: true, untagged: pass}
  - {name: other, method: "*", path: "/**", keyless: true}
`), "tokens.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := g.Match("POST", "/oauth/token"); m.Route.Untagged != UntaggedPass || g.Untagged != UntaggedRefuse {
		t.Errorf("%q, %q", m.Route.Untagged, g.Untagged)
	}
}
