package gateways

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

func TestFacts(t *testing.T) {
	c := prepare(t, stripe(t), post("/v1/payment_intents", mediaForm, "amount=1000&currency=eur&payment_method_data[card][number]=4242424242424242"))
	f := c.Facts
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(f.GatewayKey) || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(f.Reference) {
		t.Errorf("key %q, reference %q", f.GatewayKey, f.Reference)
	}
	if f.LookupForm == "" || f.LookupForm != stripe(t).LookupForm(f.Route) {
		t.Errorf("lookup form %q", f.LookupForm)
	}
	f.GatewayKey, f.Reference, f.LookupForm = "", "", ""
	want := claims.Facts{
		Gateway: "stripe", Account: Unmapped, Endpoint: "https://api.stripe.com", Credential: AccountHash("realm", "sk_test_1"), Route: "payment_intents_create", KeyPlace: "header Idempotency-Key", Retention: 24 * time.Hour, SettleAfter: 10 * time.Minute,
		Lookup: map[string]string{"amount": "1000", "currency": "eur"},
	}
	if d := cmp.Diff(want, f); d != "" || c.Effect != EffectMove || c.CanonicalVersion != CanonicalVersion {
		t.Errorf("%s %+v", d, c)
	}
	c = prepare(t, stripe(t), post("/v1/payment_intents/pi_1/capture", mediaForm, "amount_to_capture=5"))
	if d := cmp.Diff(map[string]string{"id": "pi_1", "amount": "5"}, c.Facts.Lookup); d != "" {
		t.Error(d)
	}
	c = prepare(t, stripe(t), Inbound{Method: "DELETE", Target: "/v1/customers/cus_1"})
	if c.Facts.GatewayKey != "" || c.Facts.KeyPlace != "" || c.Facts.LookupForm != "" || c.Facts.Retention != 0 || c.Facts.Reference != "" {
		t.Errorf("keyless: %+v", c.Facts)
	}
}

// TestDerivation: key and reference depend on every part of the identity and not on each other's place.
func TestDerivation(t *testing.T) {
	shape := Shape{Alphabet: "hex", Length: 64}
	seen := map[string]string{}
	for name, id := range map[string]Identity{
		"base": ident, "realm": {"r", "shop", "charge:order:42", 1}, "tenant": {"realm", "s", "charge:order:42", 1},
		"key": {"realm", "shop", "c", 1}, "revision": {"realm", "shop", "charge:order:42", 2},
		"shift": {"realms", "hop", "charge:order:42", 1}, "shift2": {"realm", "shopcharge", ":order:42", 1},
	} {
		for _, label := range []string{"key", "reference"} {
			v := id.derive(label, shape)
			if o := seen[v]; o != "" {
				t.Errorf("%s %s equals %s", name, label, o)
			}
			seen[v] = name + " " + label
		}
	}
	for alphabet, n := range map[string]int{"hex": 64, "base32": 52, "base62": 43, "digits": 78, "uuid": 36} {
		v := ident.derive("key", Shape{Alphabet: alphabet, Length: 300})
		if len(v) != n || v != ident.derive("key", Shape{Alphabet: alphabet, Length: 300}) {
			t.Errorf("%s: %q", alphabet, v)
		}
		for _, c := range v {
			if alphabet != "uuid" && !strings.ContainsRune(alphabets[alphabet], c) {
				t.Errorf("%s: %q", alphabet, v)
			}
		}
	}
	// The gateway key must never change between versions: a repeat would charge again.
	if got := ident.derive("key", shape); got != "e285f8d4addb6ea309174d1c1a991e3e59796d98784c1af96a560730a27e6cc8" {
		t.Errorf("derived key %s", got)
	}
}

func TestCanonical(t *testing.T) {
	const target = "/v1/payment_intents"
	base := post(target, mediaForm, "amount=1&currency=eur&metadata[a]=x&expand[]=p&expand[]=q")
	tests := []struct {
		name string
		in   Inbound
		same bool
	}{
		{"order of names", post(target, mediaForm, "expand[]=p&metadata[a]=x&currency=eur&expand[]=q&amount=1"), true},
		{"escapes", post(target, mediaForm, "amount=1&currency=%65ur&metadata%5Ba%5D=x&expand%5B%5D=p&expand%5B%5D=q"), true},
		{"media type's parameter", post(target, mediaForm+"; charset=utf-8", string(base.Body)), true},
		{"app's key", post(target, mediaForm, string(base.Body), "Idempotency-Key", "abc"), true},
		{"app's copy of our reference", post(target, mediaForm, string(base.Body)+"&metadata[fence_ref]=old"), true},
		{"other headers", post(target, mediaForm, string(base.Body), "User-Agent", "x"), true},
		{"order inside a name", post(target, mediaForm, "amount=1&currency=eur&metadata[a]=x&expand[]=q&expand[]=p"), false},
		{"amount", post(target, mediaForm, "amount=2&currency=eur&metadata[a]=x&expand[]=p&expand[]=q"), false},
		{"case of a value", post(target, mediaForm, "amount=1&currency=EUR&metadata[a]=x&expand[]=p&expand[]=q"), false},
		{"one pair less", post(target, mediaForm, "amount=1&currency=eur&metadata[a]=x&expand[]=p"), false},
		{"query", post(target+"?a", mediaForm, string(base.Body)), false},
		{"account header", post(target, mediaForm, string(base.Body), "Stripe-Account", "acct_1"), false},
		{"path", post("/v1/charges", mediaForm, string(base.Body)), false},
	}
	g := stripe(t)
	want := prepare(t, g, base).Canonical
	for _, tt := range tests {
		if got := bytes.Equal(want, prepare(t, g, tt.in).Canonical); got != tt.same {
			t.Errorf("%s: same %v, want %v", tt.name, got, tt.same)
		}
	}
	other := base
	other.Header = slices.Clone(base.Header)
	other.Header[0].Value = "Bearer sk_test_2"
	if bytes.Equal(want, prepare(t, g, other).Canonical) {
		t.Error("two unmapped credentials are one account")
	}
	if bytes.Contains(want, []byte("sk_test_1")) {
		t.Error("the secret is in the canonical form")
	}
	a := canonicalForm([]byte("l[][x]=1&l[][y]=2&l[][x]=3"))
	if b := canonicalForm([]byte("l[][x]=1&l[][x]=3&l[][y]=2")); slices.Equal(a, b) {
		t.Error("two lists of groups are one")
	}
}

func TestCanonicalIsUnambiguous(t *testing.T) {
	if bytes.Equal(encode("a", "bc"), encode("ab", "c")) || bytes.Equal(encode("a"), encode("a", "")) {
		t.Error("two lists encode alike")
	}
	forms := []string{"a=b&c=d", "a=b%26c%3Dd", "a=&b=c", "a=b&c=", "a&=b", "ab=", "a=b"}
	seen := map[string]string{}
	for _, f := range forms {
		k := string(encode(canonicalForm([]byte(f))...))
		if o := seen[k]; o != "" {
			t.Errorf("%s and %s", o, f)
		}
		seen[k] = f
	}
}

func TestStampForm(t *testing.T) {
	g := stripe(t)
	in := post("/v1/payment_intents", mediaForm, "amount=1&currency=e%75r&metadata[fence_ref]=old&metadata[b]=+y", "idempotency-key", "app1", "X-A", "1", "Idempotency-Key", "app2", "Content-Length", "66")
	c := prepare(t, g, in)
	m := match(t, g, in)
	header, body, err := m.Stamp(in, c.Facts)
	if err != nil {
		t.Fatal(err)
	}
	wantBody := "amount=1&currency=e%75r&metadata[b]=+y&metadata%5Bfence_ref%5D=" + c.Facts.Reference
	wantHeader := []claims.Field{
		{Name: "Authorization", Value: "Bearer sk_test_1"}, {Name: "Content-Type", Value: mediaForm},
		{Name: "Idempotency-Key", Value: c.Facts.GatewayKey}, {Name: "X-A", Value: "1"}, {Name: "Content-Length", Value: itoa(len(wantBody))},
	}
	if d := cmp.Diff(wantHeader, header); d != "" || string(body) != wantBody {
		t.Errorf("%s\n%s", d, body)
	}
	again, body2, _ := m.Stamp(in, c.Facts)
	if !cmp.Equal(header, again) || !bytes.Equal(body, body2) {
		t.Error("two attempts differ")
	}
	if string(in.Body) != "amount=1&currency=e%75r&metadata[fence_ref]=old&metadata[b]=+y" || in.Header[2].Value != "app1" {
		t.Error("the app's request was changed")
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestStampEmptyBody(t *testing.T) {
	g := stripe(t)
	in := Inbound{Method: "POST", Target: "/v1/payment_intents/pi_1/capture"}
	c := prepare(t, g, in)
	header, body, err := match(t, g, in).Stamp(in, c.Facts)
	if err != nil || string(body) != "metadata%5Bfence_capture_ref%5D="+c.Facts.Reference {
		t.Errorf("%v %s", err, body)
	}
	if d := cmp.Diff([]claims.Field{{Name: "Idempotency-Key", Value: c.Facts.GatewayKey}, {Name: "Content-Type", Value: mediaForm}}, header); d != "" {
		t.Error(d)
	}
	// Confirm takes no metadata: its body is not touched.
	in.Target = "/v1/payment_intents/pi_1/confirm"
	if _, body, _ = match(t, g, in).Stamp(in, prepare(t, g, in).Facts); len(body) != 0 {
		t.Errorf("confirm was stamped: %s", body)
	}
}

func TestStampJSON(t *testing.T) {
	const ref = "REF"
	tests := []struct{ path, in, out string }{
		{"reference", `{"amount":1.50,"x":1e2}`, `{"reference":"REF","amount":1.50,"x":1e2}`},
		{"reference", "{ }", `{"reference":"REF" }`},
		{"reference", "\n{\n \"a\" : \"\\u00e9\"\n}", "\n{\"reference\":\"REF\",\n \"a\" : \"\\u00e9\"\n}"},
		{"metadata.ref", `{"a":1}`, `{"metadata":{"ref":"REF"},"a":1}`},
		{"metadata.ref", `{"metadata":{"x":2},"a":1}`, `{"metadata":{"ref":"REF","x":2},"a":1}`},
		{"metadata.ref", `{"metadata": { } }`, `{"metadata": {"ref":"REF" } }`},
		{"a.b.c", `{"a":{}}`, `{"a":{"b":{"c":"REF"}}}`},
		{"reference", `{"x":{"reference":"inner"}}`, `{"reference":"REF","x":{"reference":"inner"}}`},
		{"metadata.ref", `{"metadata":null}`, ""},
		{"metadata.ref", `{"metadata":"x"}`, ""},
		{"metadata.ref", `{"metadata":{},"metadata":{}}`, ""},
		{"reference", `[]`, ""},
		{"reference", `{"a":1} x`, ""},
		{"reference", `{"a":1`, ""},
		{"reference", ``, ""},
		{"reference", "\xef\xbb\xbf{}", ""},
	}
	for _, tt := range tests {
		got, ok := jsonWith([]byte(tt.in), strings.Split(tt.path, "."), ref)
		if ok != (tt.out != "") || string(got) != tt.out {
			t.Errorf("%s into %s: %q %v", tt.path, tt.in, got, ok)
		}
	}
}

func TestJSONWithout(t *testing.T) {
	for _, tt := range []struct{ path, in, out string }{
		{"k", `{"k":1,"a":2.0}`, `{"a":2.0}`},
		{"k", `{"a":2.0, "k" : "x,}" , "b":3}`, `{"a":2.0, "b":3}`},
		{"k", `{"a":2,"k":1}`, `{"a":2}`},
		{"k", `{"k":1}`, `{}`},
		{"k", `{"k":1,"a":2,"k":3}`, `{"a":2}`},
		{"k", `{"k":1,"k":3}`, `{}`},
		{"m.k", `{"m":{"k":[1,{"k":2}]},"k":1}`, `{"m":{},"k":1}`},
		{"k", `{"a":1}`, `{"a":1}`},
		{"k", `nope`, `nope`},
	} {
		if got := string(jsonWithout([]byte(tt.in), strings.Split(tt.path, "."))); got != tt.out {
			t.Errorf("%s out of %s: %s", tt.path, tt.in, got)
		}
	}
}

// TestKeyInBody: a body field as the key place is dropped wherever it stood and is not fingerprinted.
func TestKeyInBody(t *testing.T) {
	g := generic(t)
	g.Key = &KeyPlace{Field: "idempotency_key", Shape: Shape{Alphabet: "hex", Length: 45}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	a := post("/charges", "application/json", `{"money":{"amount":1.10}}`)
	b := post("/charges", "application/json", `{"idempotency_key":"x","money":{"amount":1.10}}`)
	ca, cb := prepare(t, g, a), prepare(t, g, b)
	if !bytes.Equal(ca.Canonical, cb.Canonical) {
		t.Error("the app's key is in the fingerprint")
	}
	_, body, err := match(t, g, b).Stamp(b, cb.Facts)
	want := `{"reference":"` + cb.Facts.Reference + `","idempotency_key":"` + cb.Facts.GatewayKey + `","money":{"amount":1.10}}`
	if err != nil || string(body) != want || len(cb.Facts.GatewayKey) != 45 {
		t.Errorf("%v %s", err, body)
	}
}

// TestAppReference: the app's own reference stays where the field is not ours alone.
func TestAppReference(t *testing.T) {
	g := generic(t)
	in := post("/charges", "application/json", `{"reference":"order-7"}`)
	c := prepare(t, g, in)
	_, body, err := match(t, g, in).Stamp(in, c.Facts)
	if err != nil || string(body) != string(in.Body) || c.Facts.Reference != "order-7" || c.Facts.Lookup[appReference] != "app" {
		t.Errorf("%v %s %+v", err, body, c.Facts)
	}
	g.Reference.Unique = true
	if c := prepare(t, g, in); c.Facts.Lookup[appReference] != "" {
		t.Error("a reference declared unique is still doubted")
	}
}

// TestField_R68_Unstampable: a lookup handle must be in the first request, so what cannot take it is refused before it is sent.
func TestField_R68_Unstampable(t *testing.T) {
	for name, in := range map[string]Inbound{
		"JSON where a form is stamped":   post("/v1/payment_intents", "application/json", `{"amount":1}`),
		"multipart":                      post("/v1/payment_intents", "multipart/form-data; boundary=x", "--x--"),
		"a body without a media type":    post("/v1/payment_intents", "", "amount=1"),
		"broken escape":                  post("/v1/payment_intents", mediaForm, "amount=%zz"),
		"metadata is a text":             post("/v1/payment_intents", mediaForm, "amount=1&metadata="),
		"encoded body":                   post("/v1/payment_intents", mediaForm, "amount=1", "Content-Encoding", "gzip"),
		"body under a digest":            post("/v1/payment_intents", mediaForm, "amount=1", "Content-Digest", "sha-256=:x:"),
		"another character set":          post("/v1/payment_intents", mediaForm+"; charset=utf-16", "amount=1"),
		"two media types":                post("/v1/payment_intents", mediaForm, "amount=1", "Content-Type", "application/json"),
		"two amounts":                    post("/v1/payment_intents", mediaForm, "amount=1&amount=2"),
		"an endless amount":              post("/v1/payment_intents", mediaForm, "amount="+strings.Repeat("1", 256)),
		"two credentials":                post("/v1/payment_intents", mediaForm, "amount=1", "authorization", "Bearer other"),
		"two accounts":                   post("/v1/payment_intents", mediaForm, "amount=1", "Stripe-Account", "a", "Stripe-Account", "b"),
		"capture with JSON on a lookup":  post("/v1/payment_intents/pi_1/capture", "application/json", `{}`),
		"a value below our metadata key": post("/v1/payment_intents", mediaForm, "amount=1&metadata[fence_ref][x]=1"),
	} {
		_, err := match(t, stripe(t), in).Prepare(in, ident)
		if _, ok := errors.AsType[*BadRequest](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Where no reference is wanted, the same bodies pass.
	in := post("/v1/customers", "application/json", `{}`)
	if _, err := match(t, stripe(t), in).Prepare(in, ident); err != nil {
		t.Error(err)
	}
}

// TestSigned: a signed body is passed as it is, so the call has no reference.
func TestSigned(t *testing.T) {
	g := generic(t)
	g.route("charge").Signed, g.route("charge").Lookup = true, nil
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	in := post("/charges", "application/json", `{"a":1}`)
	c := prepare(t, g, in)
	if _, body, _ := match(t, g, in).Stamp(in, c.Facts); string(body) != `{"a":1}` || c.Facts.Reference != "" {
		t.Errorf("%s %+v", body, c.Facts)
	}
}

func TestCallKey(t *testing.T) {
	g := stripe(t)
	key := func(g *Gateway, in Inbound) string {
		t.Helper()
		k, err := match(t, g, in).CallKey(in)
		if _, bad := errors.AsType[*BadRequest](err); bad {
			return "refused"
		} else if err != nil {
			t.Fatal(err)
		}
		return k
	}
	in := func(k string) Inbound { return post("/v1/charges", mediaForm, "amount=1", "Idempotency-Key", k) }
	if k := key(g, in("order-1")); k != "" {
		t.Errorf("it is off by default: %q", k)
	}
	g.CallKey = StripeCallKey()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	for v, want := range map[string]string{
		"order-1": "order-1", "charge:order:42": "charge:order:42", "": "",
		"0b1e3a9c-7a4f-4c0e-9a44-2f5f3c1f7d10":                   "refused",
		"stripe-node-retry-0b1e3a9c-7a4f-4c0e-9a44-2f5f3c1f7d10": "refused",
		"1732960000000000000_aB-_9z":                             "refused",
	} {
		if got := key(g, in(v)); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
	two := in("a")
	two.Header = append(two.Header, claims.Field{Name: "idempotency-key", Value: "b"})
	if got := key(g, two); got != "refused" {
		t.Errorf("two keys: %q", got)
	}
	p := generic(t)
	for body, want := range map[string]string{
		`{"order":{"id":"o-1"}}`: "o-1", `{"order":{"id":17}}`: "17", `{}`: "", `{"order":{"id":null}}`: "", `{"order":{"id":"a","id":"b"}}`: "refused", `x`: "",
	} {
		if got := key(p, post("/charges", "application/json", body)); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestAccounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sk_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_STRIPE_KEY", "sk_env")
	g := Stripe()
	g.Accounts = []Account{
		{Name: "hashed", CredentialHash: AccountHash("realm", "sk_hash"), CredentialHashes: []string{AccountHash("realm", "sk_new")}, LookupCredential: Secret{File: file}},
		{Name: "env", Credential: Secret{Env: "TEST_STRIPE_KEY"}},
		{Name: "file", Credential: Secret{File: file}, LookupCredential: Secret{Env: "TEST_NOT_SET"}},
	}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("sk_env:"))
	for _, tt := range []struct{ auth, other, want string }{
		{"Bearer sk_hash", "", "hashed"}, {"bearer  sk_new", "", "hashed"}, {"Bearer sk_env", "", "env"}, {basic, "", "env"},
		{"Bearer sk_file", "acct_9", "file/acct_9"}, {"Bearer other", "", "unmapped"}, {"Bearer other", "acct_9", "unmapped/acct_9"}, {"", "", "unmapped"},
	} {
		in := post("/v1/customers", mediaForm, "")
		in.Header = nil
		if tt.auth != "" {
			in.Header = append(in.Header, claims.Field{Name: "authorization", Value: tt.auth})
		}
		if tt.other != "" {
			in.Header = append(in.Header, claims.Field{Name: "Stripe-Account", Value: tt.other})
		}
		c := prepare(t, g, in)
		if c.Facts.Account != tt.want {
			t.Errorf("%s %s: %q", tt.auth, tt.other, c.Facts.Account)
		}
		if s := string(c.Canonical) + c.Facts.Account; strings.Contains(s, "sk_") || strings.Contains(s, "other\x00") {
			t.Errorf("a secret shows: %q", s)
		}
	}
	if AccountHash("realm", "x") == AccountHash("realm2", "x") || len(AccountHash("", "")) != 64 {
		t.Error("the hash is not keyed by the realm")
	}
	h, ok, err := g.LookupHeader(t.Context(), "hashed/acct_9")
	want := []claims.Field{{Name: "Authorization", Value: "Bearer sk_file"}, {Name: "Stripe-Account", Value: "acct_9"}, {Name: "Stripe-Version", Value: StripeVersion}}
	if d := cmp.Diff(want, h); d != "" || !ok || err != nil {
		t.Errorf("%v %v %s", ok, err, d)
	}
	for _, none := range []string{"env", Unmapped, "", "hash"} {
		if _, ok, err := g.LookupHeader(t.Context(), none); ok || err != nil {
			t.Errorf("%q: %v %v", none, ok, err)
		}
	}
	if _, ok, err := g.LookupHeader(t.Context(), "file"); ok || err == nil || strings.Contains(err.Error(), "sk_") {
		t.Errorf("an empty secret: %v %v", ok, err)
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"/v1/payment_intents", "/v1/payment_intents/pi_1/confirm", "//v1/charges", "/v1/%2e%2e/charges", "/v1/charges/../refunds", "*", "/v1/charges?x=/v1/refunds"} {
		f.Add("POST", s)
	}
	g := stripe(f)
	f.Fuzz(func(t *testing.T, method, target string) {
		m, ok := g.Match(method, target)
		if !ok {
			return
		}
		if Safe(method) {
			t.Error("a safe method has a route")
		}
		path, _, _ := strings.Cut(target, "?")
		segments := strings.Split(path, "/")
		odd := !plainPath.MatchString(path) || slices.Contains(segments, ".") || slices.Contains(segments, "..")
		if m.Route.Path != "/**" && odd {
			t.Errorf("%q matched %s", target, m.Route.Name)
		}
	})
}

var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._~:@=-]+)+$`)

func FuzzCanonicalForm(f *testing.F) {
	for _, s := range []string{"a=1&b=2&a=3", "a[][x]=1&a[][y]=2", "a=%zz", "a=b%26c", "&&=", "metadata[fence_ref]=x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		ps, ok := pairs(raw)
		if !ok {
			return
		}
		v := url.Values{}
		for _, p := range ps {
			v.Add(p.name, p.value)
		}
		// Another spelling of the same pairs, sorted, is the same form, unless order matters.
		canon := canonicalForm(raw)
		if canon[0] == "form" && !slices.Equal(canon, canonicalForm([]byte(v.Encode()))) {
			t.Errorf("%q: %q and %q", raw, canon, canonicalForm([]byte(v.Encode())))
		}
		b := body{format: form, raw: raw, media: mediaForm}
		if out, ok := b.without("metadata.fence_ref").with("metadata.fence_ref", "r"); ok {
			if vs, _ := out.values("metadata.fence_ref"); !slices.Equal(vs, []string{"r"}) {
				t.Errorf("stamped %q: %q", out.raw, vs)
			}
			// Taken out again, the app's pairs stand as they stood.
			if got := canonicalForm(out.without("metadata.fence_ref").raw); !slices.Equal(got, canonicalForm(b.without("metadata.fence_ref").raw)) {
				t.Errorf("stamping changed %q", raw)
			}
		}
	})
}

func FuzzStampJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"metadata":{"fence_ref":1,"fence_ref":2}}`, `{"metadata":null}`, `{}`, `[1]`, `{"a":"\ud800"}`} {
		f.Add([]byte(s))
	}
	path := []string{"metadata", "fence_ref"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		bare := jsonWithout(raw, path)
		out, ok := jsonWith(bare, path, "r")
		if !ok {
			return
		}
		if vs, ok := jsonValues(out, path); !ok || !slices.Equal(vs, []string{"r"}) || !json.Valid(out) {
			t.Errorf("%q: %q", out, vs)
		}
	})
}
