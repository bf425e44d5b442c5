package gateways

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

// TestAccountHeaders: every header that selects the account is part of it, and of a lookup.
func TestAccountHeaders(t *testing.T) {
	t.Setenv("TEST_KEY", "sk_test_1")
	g := Stripe()
	g.Accounts = []Account{{Name: "main", Credential: Secret{Env: "TEST_KEY"}, LookupCredential: Secret{Env: "TEST_KEY"}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ account, context, want string }{
		{"", "", "main"}, {"acct_1", "", "main/acct_1"}, {"", "acct_1", "main//acct_1"}, {"acct_1", "org/acct_2", "main/acct_1/org%2Facct_2"}, {"a/b", "", "main/a%2Fb"},
	} {
		in := post("/v1/customers", mediaForm, "")
		want := []claims.Field{{Name: "Authorization", Value: "Bearer sk_test_1"}}
		for _, f := range []claims.Field{{Name: "Stripe-Account", Value: tt.account}, {Name: "Stripe-Context", Value: tt.context}} {
			if f.Value != "" {
				in.Header, want = append(in.Header, f), append(want, f)
			}
		}
		if got := prepare(t, g, in).Facts.Account; got != tt.want {
			t.Errorf("%q %q: %q, want %q", tt.account, tt.context, got, tt.want)
		}
		header, ok, err := g.LookupHeader(t.Context(), tt.want)
		if d := cmp.Diff(append(want, claims.Field{Name: "Stripe-Version", Value: StripeVersion}), header); !ok || err != nil || d != "" {
			t.Errorf("%s: %v %v %s", tt.want, ok, err, d)
		}
	}
	for _, v := range []string{"a\x01b", "a\tb", "a\x7f", "a\u009b31m"} {
		if !refused(t, g, post("/v1/customers", mediaForm, "", "Stripe-Context", v)) {
			t.Errorf("%q passed", v)
		}
	}
	if !refused(t, g, post("/v1/customers", mediaForm, "", "Stripe-Context", "a", "stripe-context", "b")) {
		t.Error("two contexts passed")
	}
	for _, other := range []string{"main/a/b/c", "main/%zz", "main/%0a"} {
		if h, ok, _ := g.LookupHeader(t.Context(), other); ok {
			t.Errorf("%s: %v", other, h)
		}
	}
}

// TestAccountConfiguredLater: a record made before its account was configured is of the same request.
func TestAccountConfiguredLater(t *testing.T) {
	in := post("/v1/payment_intents", mediaForm, "amount=1&currency=eur", "Stripe-Account", "acct_1")
	before := prepare(t, stripe(t), in)
	if len(before.Also) != 0 {
		t.Error("an unmapped call has no other form")
	}
	mapped := func(secret string) Call {
		t.Helper()
		g := Stripe()
		g.Accounts = []Account{{Name: "main", CredentialHashes: []string{AccountHash("realm", "sk_test_1"), AccountHash("realm", "sk_test_2")}}}
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		in := in
		in.Header = setHeader(in.Header, "Authorization", "Bearer "+secret)
		return prepare(t, g, in)
	}
	after := mapped("sk_test_1")
	if bytes.Equal(before.Canonical, after.Canonical) || len(after.Also) != 1 || !bytes.Equal(before.Canonical, after.Also[0]) {
		t.Error("the older form is not known")
	}
	if before.Facts.Credential != after.Facts.Credential || before.Facts.Credential == "" {
		t.Error("one credential has two hashes")
	}
	other := mapped("sk_test_2")
	if !bytes.Equal(after.Canonical, other.Canonical) || bytes.Equal(before.Canonical, other.Also[0]) || other.Facts.Credential == after.Facts.Credential {
		t.Error("another credential's older form is taken for this one's")
	}
	none := in
	none.Header = none.Header[1:]
	if c := prepare(t, stripe(t), none); c.Facts.Credential != "" {
		t.Error("no credential has a hash")
	}
}

// TestSecretUnreadable: while a secret cannot be read, a call that may be its account's is no unmapped one.
func TestSecretUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	g := Stripe()
	g.Accounts = []Account{{Name: "main", Credential: Secret{File: file}}, {Name: "listed", CredentialHash: AccountHash("realm", "sk_listed")}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	account := func(auth string) string {
		in := post("/v1/customers", mediaForm, "")
		in.Header = []claims.Field{{Name: "Authorization", Value: auth}}
		c, err := match(t, g, in).Prepare(in, ident)
		if u, ok := errors.AsType[*Unavailable](err); ok && strings.Contains(u.Detail, "main") && !strings.Contains(u.Detail, "sk_") {
			return "unavailable"
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.Facts.Account
	}
	for _, tt := range []struct {
		secret string
		want   [4]string
	}{
		{"", [4]string{"unavailable", "listed", "unavailable", Unmapped}},
		{"sk_main\n", [4]string{"main", "listed", Unmapped, Unmapped}},
	} {
		if tt.secret != "" {
			if err := os.WriteFile(file, []byte(tt.secret), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := [4]string{account("Bearer sk_main"), account("Bearer sk_listed"), account("Bearer sk_other"), account("")}
		if got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for base, want := range map[string]string{"https://x.example/": "https://x.example", "http://127.0.0.1:12111": "http://127.0.0.1:12111"} {
		g := Stripe()
		g.BaseURL = base
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		if got := prepare(t, g, post("/v1/customers", mediaForm, "")).Facts.Endpoint; got != want {
			t.Errorf("%s: %q", base, got)
		}
	}
}

// TestSlips: settings that can only be slips.
func TestSlips(t *testing.T) {
	hash := AccountHash("realm", "x")
	for name, breakIt := range map[string]func(*Gateway){
		"port 0":      func(g *Gateway) { g.BaseURL = "http://127.0.0.1:0" },
		"port 65536":  func(g *Gateway) { g.BaseURL = "http://127.0.0.1:65536" },
		"attempt 1ns": func(g *Gateway) { g.AttemptTimeout = 1 },
		"settle 9ms":  func(g *Gateway) { g.SettleAfter = shortest - 1 },
		"route's":     func(g *Gateway) { g.route("post").AttemptTimeout = 1 },
		"shared hash": func(g *Gateway) {
			g.Accounts = []Account{{Name: "a", CredentialHash: hash}, {Name: "b", CredentialHashes: []string{hash}}}
		},
		"shared secret": func(g *Gateway) {
			g.Accounts = []Account{{Name: "a", Credential: Secret{Env: "K"}}, {Name: "b", Credential: Secret{Env: "K"}}}
		},
		"account header": func(g *Gateway) { g.AccountHeaders = []string{"X-A", "x-a"} },
		"call":           func(g *Gateway) { g.route("refunds_create").Lookup.Cases[0].Call = map[string][]string{"nope": {""}} },
		"whole":          func(g *Gateway) { g.route("payouts_cancel").Lookup.Whole = "/amount" },
	} {
		g := stripe(t)
		breakIt(g)
		if err := g.Validate(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := stripe(t)
	g.BaseURL, g.AttemptTimeout, g.SettleAfter = "http://127.0.0.1:65535", shortest, shortest
	g.Accounts = []Account{{Name: "a", CredentialHash: hash, CredentialHashes: []string{hash}, Credential: Secret{Env: "K"}, LookupCredential: Secret{Env: "K"}}, {Name: "b", LookupCredential: Secret{Env: "K"}}}
	if err := g.Validate(); err != nil {
		t.Error(err)
	}
	a, ok := Declared("stripe")
	if b, _ := Declared("stripe"); !ok || a == b || a.Name != "stripe" {
		t.Error("no fresh Stripe")
	}
	if _, ok := Declared("nope"); ok {
		t.Error("declared what is not there")
	}
}
