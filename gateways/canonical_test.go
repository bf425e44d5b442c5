package gateways

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// TestCanonicalJSON: JSON counts by what it says; all that two readers may read differently counts by its bytes.
func TestCanonicalJSON(t *testing.T) {
	const base = `{"amount":10.50,"to":{"name":"Aé","tags":["x","y"]},"n":9007199254740993}`
	canon := realCanonical(t)
	form := func(media, body string, header ...string) string { return canon(post("/x", media, body, header...)) }
	const media = "application/json"
	want := form(media, base)
	for _, same := range []string{
		`{"n":9007199254740993,"to":{"tags":["x","y"],"name":"Aé"},"amount":10.50}`,
		" {\n\t\"amount\" : 10.50 , \"to\":{\"name\":\"\\u0041\\u00e9\",\"tags\":[\"x\" ,\"\\u0079\"]},\"\\u006e\":9007199254740993}\r\n",
	} {
		if form(media, same) != want {
			t.Errorf("%s has another form", same)
		}
	}
	for _, kind := range []string{"application/json; charset=utf-8", "Application/JSON;Charset=\"UTF-8\""} {
		if form(kind, base) != want {
			t.Errorf("%s has another form", kind)
		}
	}
	seen := map[string]string{want: base}
	other := func(name, form string) {
		t.Helper()
		if o := seen[form]; o != "" {
			t.Errorf("%s and %s have one form", name, o)
		}
		seen[form] = name
	}
	for _, change := range [][2]string{
		{"10.50", "10.5"}, {"10.50", "1050e-2"}, {"10.50", "10.51"}, {"10.50", `"10.50"`}, {"9007199254740993", "9007199254740992"}, {"9007199254740993", "9007199254740993.0"},
		{"é", "e\u0301"}, {"é", "É"}, {"Aé", "aé"}, {"Aé", "Aé "}, {"Aé", "Aé\u00a0"}, {`"x","y"`, `"y","x"`}, {`"x","y"`, `"x"`}, {`"to"`, `"To"`}, {`"Aé"`, "null"}, {`"Aé"`, "{}"},
		{`"name":"Aé",`, ""}, {`"n":`, `"n":1,"n":`}, {`,"n":9007199254740993`, `,"n":9007199254740993,"n":9007199254740993`}, {"Aé", `\ud800`}, {"Aé", `\udfff`}, {"Aé", `\ufffd`}, {"Aé", "\xff"}, {"Aé", "\xfe"},
	} {
		other(change[1], form(media, strings.Replace(base, change[0], change[1], 1)))
	}
	for _, kind := range []string{"text/plain", "application/x+json", "application/json; profile=a", "application/json; profile=b", "application/json; charset=utf-16", "application/json;;", "", "application/json\u00a0"} {
		other("media "+kind, form(kind, base))
	}
	for _, coding := range []string{"gzip", "br", "identity, gzip"} {
		other("coding "+coding, form(media, base, "Content-Encoding", coding))
	}
	other("a byte order mark", form(media, "\ufeff"+base))
	other("two texts", form(media, base+base))
	// What is coded or under a digest counts by its bytes.
	other("a digest", form(media, base, "Content-Digest", "sha-256=:x:"))
	other("a digest and white space", form(media, base+" ", "Content-Digest", "sha-256=:x:"))
	if form(media, base, "Content-Encoding", "identity") != want {
		t.Error("no coding and identity are two")
	}
}

// TestCanonicalMembers: members are sorted alike however their names are spelled, also beyond the basic plane.
func TestCanonicalMembers(t *testing.T) {
	for _, tt := range []struct{ in, out string }{
		{`{"\uffff":1,"\ud834\udd1e":2,"":3,"a":{"c":1,"b":[{"y":1,"x":-0}]}}`, "{\"\":3,\"a\":{\"b\":[{\"x\":-0,\"y\":1}],\"c\":1},\"\U0001d11e\":2,\"\uffff\":1}"},
		{` [ 1 , 1.0,1e0 ,"\/\u003c\u2028\u0001" ] `, "[1,1.0,1e0,\"/<\u2028\\u0001\"]"},
		{`{"a":1,"\u0061":2}`, ""}, {`{"b":{"a":1,"a":1}}`, ""}, {`"\ud800"`, ""}, {`{"\udc00":1}`, ""}, {"\"\xff\"", ""}, {`01`, ""}, {`{} {}`, ""}, {``, ""},
	} {
		got, ok := canonicalJSON([]byte(tt.in))
		if string(got) != tt.out && ok || ok != (tt.out != "") {
			t.Errorf("%s: %s %v", tt.in, got, ok)
		}
	}
}

// TestCanonicalIsPinned: a fingerprint that was stored must be made again by every later build, whatever its libraries are.
// If this fails, the version has to change, or every open call becomes a conflict.
func TestCanonicalIsPinned(t *testing.T) {
	canon := realCanonical(t)
	for want, in := range map[string]Inbound{
		"08fcdb4dea77068da09455fbef3ea6e94853216a9386232a5ecac6e89f4ac1d1": post("/x?a=b", "application/json; p=1", "{\"b\":[1,1.0,{\"\U0001d11e\":\"<\\u0041\\n\\u2028\",\"\uffff\":-0}],\"a\":null}"),
		"bed32dec8f3d5ea60477c373cdf3cf11e15b68600e82978091f014db2cbddadb": post("/x", mediaForm, "b=1&a=%41+&b=0&c", "X-Account", "x/y"),
		"6ae0a1916073c1c39c98a4db4d9dad382dcf127f681e682ec2ab99a720dcc2cd": post("/x", "text/plain; charset=utf-8", "{}", "Content-Encoding", "gzip"),
	} {
		sum := sha256.Sum256([]byte(canon(in)))
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: %s", in.Body, got)
		}
	}
}

// TestCanonicalIsBounded: bodies made to be slow or deep are done with soon. What is too deep counts by its bytes.
func TestCanonicalIsBounded(t *testing.T) {
	const limit, many = defaultLimit, defaultLimit / 4 // many: of what is read a few times
	g := volatile(t, "v", "w.x")
	nested := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	filled := func(s string) string { return strings.Repeat(s, limit/len(s)) }
	for name, in := range map[string]Inbound{
		"open lists":          post("/x", "application/json", filled("[")),
		"lists":               post("/x", "application/json", nested("[", "1", "]", limit/2)),
		"objects":             post("/x", "application/json", nested(`{"b":`, `1`, `,"a":1}`, limit/12)),
		"objects, allowed":    post("/x", "application/json", nested(`{"b":`, `"`+strings.Repeat("x", limit/2)+`"`, `,"a":1}`, deepestJSON)),
		"objects, too deep":   post("/x", "application/json", nested(`{"b":`, `"`+strings.Repeat("x", limit/2)+`"`, `,"a":1}`, 9000)),
		"one name":            post("/x", "application/json", "{"+filled(`"k":1,`)[:many/6*6]+`"k":1}`),
		"one volatile name":   post("/x", "application/json", "{"+filled(`"v":1,`)[:many/6*6]+`"v":1}`),
		"names":               post("/x", "application/json", "{"+manyNames(many)+`"z":1}`),
		"escapes":             post("/x", "application/json", `["`+filled(`\u0041`)+`"]`),
		"pairs":               post("/x", mediaForm, filled("k&a[b]=1&a=&")[:many/12*12]),
		"names with groups":   post("/x", mediaForm, filled("[")+"=1&"+"a="+filled("%5b")),
		"pairs of many names": post("/x", mediaForm, strings.NewReplacer(`"`, "", ":1,", "&").Replace(manyNames(many))),
		"bytes":               post("/x", "text/plain", filled("\xff")),
	} {
		begun := time.Now()
		if c := prepare(t, g, in); len(c.Canonical) == 0 {
			t.Errorf("%s: no form", name)
		}
		if name == "one name" {
			jsonWithout(in.Body, []string{"k"})
		}
		if d := time.Since(begun); d > 20*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
	canon := realCanonical(t)
	for depth, same := range map[int]bool{deepestJSON: true, deepestJSON + 1: false, 9000: false} {
		text := nested(`[`, `{}`, `]`, depth-1)
		if got := canon(post("/x", "application/json", text)) == canon(post("/x", "application/json", " "+text)); got != same {
			t.Errorf("depth %d: one form %v", depth, got)
		}
	}
}

// manyNames are members of n bytes in all, each with a name of its own.
func manyNames(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(`"n` + itoa(i) + `":1,`)
	}
	return b.String()
}

// TestCanonicalFormOrder: the order of different names counts where a server could read another thing from another order.
func TestCanonicalFormOrder(t *testing.T) {
	canon := realCanonical(t)
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"a=1&b=2", "b=2&a=1", true}, {"a=1&b=2&a=3", "b=2&a=1&a=3", true}, {"a=1&a=3", "a=3&a=1", false}, {"m[a]=1&m[b]=2", "m[b]=2&m[a]=1", true},
		{"l[]=1&x=2&l[]=3", "x=2&l[]=1&l[]=3", true}, {"a&b", "b=&a=", true}, {"a=+", "a=%20", true}, {"a=%c3%a9", "a=%C3%A9", true}, {"a=1&&", "&a=1", true},
		{"l[][x]=1&l[][y]=2&l[][x]=3", "l[][x]=1&l[][x]=3&l[][y]=2", false}, {"m[l][][x]=1&m[l][][y]=2", "m[l][][y]=2&m[l][][x]=1", false},
		{"a=1&a[b]=2", "a[b]=2&a=1", false}, {"a[]=1&a[0]=2", "a[0]=2&a[]=1", false}, {"a=1&a[]=2", "a[]=2&a=1", false}, {"m[a]=1&m[a][b]=2", "m[a][b]=2&m[a]=1", false},
		{"a=1&a-b=2&a[b]=3", "a-b=2&a[b]=3&a=1", false}, {"a=1&ab=2", "ab=2&a=1", true}, {"m[a]=1&m[ab]=2", "m[ab]=2&m[a]=1", true},
		{"a=1 ", "a=1", false}, {"A=1", "a=1", false}, {"a=\u00e9", "a=e\u0301", false}, {"a=%ff", "a=%ef%bf%bd", false}, {"a=%zz&b=1", "b=1&a=%zz", false},
	} {
		if got := canon(post("/x", mediaForm, tt.a)) == canon(post("/x", mediaForm, tt.b)); got != tt.same {
			t.Errorf("%s and %s: one form %v", tt.a, tt.b, got)
		}
	}
}

// near are call keys that a store, a database collation or a careless comparison could take for one another.
var near = []string{
	"charge:order:é", "charge:order:e\u0301", "charge:order:É", "charge:order:e", "Charge:order:e", "charge:order:e ", " charge:order:e", "charge:order:e\u00a0", "charge:order:e\u200b", "charge:order:\u0435",
	"charge:order:ﬁ", "charge:order:fi", "charge:order:ß", "charge:order:ss", "charge:order:ı", "charge:order:i", "charge:order:K", "charge:order:\u212a", "charge:order:\xff", "charge:order:\ufffd", "charge:order:e\x00", "",
}

// TestKeysNeverMerge: the gateway's key and the reference differ wherever tenant, call key or revision differ in one bit.
func TestKeysNeverMerge(t *testing.T) {
	seen := map[string]Identity{}
	check := func(derive func(Identity, string) string, id Identity) (merged bool) {
		for _, label := range []string{"key", "reference"} {
			v := label + derive(id, label)
			o, there := seen[v]
			merged = merged || there && o != id
			seen[v] = id
		}
		return merged
	}
	ids := []Identity{{"realm", "shop:a", "b", 1}, {"realm", "shop", ":ab", 1}, {"realm", "shop", "x1", 1}, {"realm", "shop", "x", 11}, {"realm1", "shop", "x", 1}, {"realm", "1shop", "x", 1}}
	for _, k := range near {
		ids = append(ids, Identity{"realm", "shop", k, 1}, Identity{"realm", k, "shop", 1}, Identity{k, "realm", "shop", 1}, Identity{"realm", "shop", k, 2})
	}
	// The shortest shapes that Validate takes.
	for alphabet, n := range minLength {
		clear(seen)
		for _, id := range ids {
			if check(func(id Identity, label string) string { return id.derive(label, Shape{Alphabet: alphabet, Length: n}) }, id) {
				t.Errorf("%s: %+v merges with another", alphabet, id)
			}
		}
	}
	for name, fold := range map[string]func(string) string{
		"case": strings.ToLower, "spaces": strings.TrimSpace, "UTF-8": func(s string) string { return strings.ToValidUTF8(s, "\ufffd") },
		"accents": strings.NewReplacer("é", "e", "e\u0301", "e").Replace, "NFC": strings.NewReplacer("e\u0301", "é").Replace, "NUL": strings.NewReplacer("\x00", "").Replace,
	} {
		clear(seen)
		if !slices.ContainsFunc(ids, func(id Identity) bool {
			return check(func(id Identity, label string) string {
				id.CallKey = fold(id.CallKey)
				return id.derive(label, Shape{Alphabet: "hex"})
			}, id)
		}) {
			t.Errorf("folded %s: nothing was found", name)
		}
	}
	clear(seen)
	if !slices.ContainsFunc(ids, func(id Identity) bool {
		return check(func(id Identity, label string) string {
			return Identity{CallKey: id.Tenant + id.CallKey}.derive(label, Shape{Alphabet: "hex"})
		}, id)
	}) {
		t.Error("joined tenant and key: nothing was found")
	}
}

// TestCallKeysNeverMerge: a call key comes out of a request as the app wrote it, or the request is refused.
func TestCallKeysNeverMerge(t *testing.T) {
	g := anything(t)
	for place, set := range map[string]*CallKey{"header": {Header: "Order"}, "field": {Field: "order"}} {
		g.CallKey = set
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, k := range near {
			in := post("/x", "application/json", `{"order":`+quoteJSON(k)+`}`)
			want := k
			if place == "header" {
				in.Header = append(in.Header, claims.Field{Name: "Order", Value: k})
				want = strings.Trim(k, " \t") // no part of a header's value
			} else if k == "charge:order:\xff" {
				in.Body = bytes.ReplaceAll(in.Body, []byte(`\ufffd`), []byte("\xff"))
				want = "" // no JSON
			}
			if got, err := match(t, g, in).CallKey(in); err != nil || got != want {
				t.Errorf("%s %q: %q %v", place, k, got, err)
			}
		}
		if place == "field" {
			for _, body := range []string{`{"order":"\ud800"}`, `{"order":"a\udfff"}`, `{"order":{}}`, `{"order":["a"]}`} {
				in := post("/x", "application/json", body)
				if got, err := match(t, g, in).CallKey(in); err == nil {
					t.Errorf("%s: %q", body, got)
				}
			}
		}
	}
}
