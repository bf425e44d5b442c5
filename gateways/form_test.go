package gateways

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// TestLookupForm: it is stable, and changes with everything that decides what a match or a miss is.
func TestLookupForm(t *testing.T) {
	const route = "payment_intents_create"
	base := stripe(t).LookupForm(route)
	if base != stripe(t).LookupForm(route) || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(base) {
		t.Errorf("form %q", base)
	}
	for _, none := range []string{"post", "nope", ""} {
		if f := stripe(t).LookupForm(none); f != "" {
			t.Errorf("%s: %q", none, f)
		}
	}
	seen := map[string]string{base: "as declared", stripe(t).LookupForm("charges_create"): "another route"}
	for name, change := range map[string]func(*Gateway, *Route){
		"target":         func(_ *Gateway, r *Route) { r.Lookup.Target += "&x=y" },
		"kind":           func(_ *Gateway, r *Route) { r.Lookup.Kind, r.Lookup.Proves = KindSearch, false },
		"proves":         func(_ *Gateway, r *Route) { r.Lookup.Proves = false },
		"window":         func(_ *Gateway, r *Route) { r.Lookup.Window *= 2 },
		"items":          func(_ *Gateway, r *Route) { r.Lookup.Items = "/items" },
		"pointer":        func(_ *Gateway, r *Route) { r.Lookup.Reference = "/metadata/ref2" },
		"is":             func(_ *Gateway, r *Route) { r.Lookup.Is = nil },
		"each":           func(_ *Gateway, r *Route) { r.Lookup.Each = nil },
		"cases":          func(_ *Gateway, r *Route) { r.Lookup.Cases = r.Lookup.Cases[1:] },
		"pages":          func(_ *Gateway, r *Route) { r.Lookup.Pages.Param = "after" },
		"field":          func(_ *Gateway, r *Route) { r.Reference.Field = "metadata.ref2" },
		"params":         func(_ *Gateway, r *Route) { r.Params["amount"] = "body:total" },
		"account header": func(g *Gateway, _ *Route) { g.AccountHeaders = g.AccountHeaders[1:] },
		"lookup header":  func(g *Gateway, _ *Route) { g.LookupHeaders[0].Value = "2020-08-27" },
	} {
		g := stripe(t)
		change(g, g.route(route))
		if err := g.Validate(); err != nil {
			t.Fatal(name, err)
		}
		f := g.LookupForm(route)
		if o := seen[f]; o != "" {
			t.Errorf("%s has the form of %s", name, o)
		}
		seen[f] = name
	}
}

// TestKeyPlace: where the key stands is a fact of the call, and neither it nor the lookup's form is in the fingerprint.
func TestKeyPlace(t *testing.T) {
	in := post("/charges", "application/json", `{"money":{"amount":1}}`)
	before := prepare(t, generic(t), in)
	for want, place := range map[string]KeyPlace{
		"header X-Request-Key": {Header: "x-request-KEY"}, "header X-Other": {Header: "X-Other"}, "field keys.one": {Field: "keys.one"},
	} {
		g := generic(t)
		g.Key = &place
		g.route("charge").Lookup.Window *= 2
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		c := prepare(t, g, in)
		if c.Facts.KeyPlace != want {
			t.Errorf("%q, want %q", c.Facts.KeyPlace, want)
		}
		if !bytes.Equal(c.Canonical, before.Canonical) || c.Facts.LookupForm == before.Facts.LookupForm || c.Facts.LookupForm != g.LookupForm("charge") {
			t.Errorf("%s: canonical form or lookup form %s", want, c.Facts.LookupForm)
		}
	}
}

// TestOwns: an account owns the credentials that it lists, and no other account's.
func TestOwns(t *testing.T) {
	hash := func(s string) string { return AccountHash("realm", s) }
	t.Setenv("OWNS_KEY", "sk_env")
	g := Stripe()
	g.Accounts = []Account{
		{Name: "listed", CredentialHash: hash("sk_1"), CredentialHashes: []string{hash("sk_2")}},
		{Name: "env", Credential: Secret{Env: "OWNS_KEY"}},
		{Name: "lost", CredentialHash: hash("sk_3"), Credential: Secret{File: t.TempDir() + "/none"}},
	}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		account, secret string
		owns, fails     bool
	}{
		{"listed", "sk_1", true, false}, {"listed", "sk_2", true, false}, {"listed/acct_1", "sk_2", true, false}, {"listed//acct_1", "sk_1", true, false},
		{"listed", "sk_env", false, false}, {"env", "sk_env", true, false}, {"env/acct_1", "sk_env", true, false}, {"env", "sk_1", false, false},
		{"lost", "sk_3", true, false}, {"lost", "sk_4", false, true}, {"lost/acct_1", "sk_4", false, true},
		{"nobody", "sk_1", false, false}, {Unmapped, "sk_1", false, false}, {"", "sk_1", false, false},
	} {
		owns, err := g.Owns(tt.account, hash(tt.secret), "realm")
		if owns != tt.owns || (err != nil) != tt.fails {
			t.Errorf("%s %s: %v %v", tt.account, tt.secret, owns, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "lost") || strings.Contains(err.Error(), "sk_")) {
			t.Errorf("%v", err)
		}
	}
	if owns, _ := g.Owns("listed", "", "realm"); owns { // CredentialHash may be empty too
		t.Error("no credential is owned")
	}
	if owns, _ := g.Owns("env", "", "realm"); owns {
		t.Error("no credential is owned")
	}
	if owns, _ := g.Owns("env", hash("sk_env"), "other"); owns {
		t.Error("another realm's hash is owned")
	}
	// A prepared call's own facts are owned by the account they name.
	f := prepare(t, g, func() Inbound {
		in := post("/v1/customers", mediaForm, "", "Stripe-Account", "acct_1")
		in.Header = setHeader(in.Header, "Authorization", "Bearer sk_env")
		return in
	}()).Facts
	if owns, err := g.Owns(f.Account, f.Credential, ident.Realm); !owns || err != nil {
		t.Errorf("%s: %v %v", f.Account, owns, err)
	}
}
