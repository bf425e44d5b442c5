package gateways

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// canonicaliser makes a request's canonical form.
type canonicaliser func(Inbound) string

// anything is a gateway that takes every request and writes nothing into it.
func anything(t testing.TB) *Gateway {
	t.Helper()
	g := &Gateway{Name: "any", BaseURL: "https://any.example", AccountHeaders: []string{"X-Account"}, Routes: []*Route{{Name: "all", Method: "*", Path: "/**"}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

func realCanonical(t testing.TB) canonicaliser {
	g := anything(t)
	return func(in Inbound) string {
		m, ok := g.Match(in.Method, in.Target)
		if !ok {
			return "no route: " + fmt.Sprintf("%q", in)
		}
		c, err := m.Prepare(in, ident)
		if err != nil {
			return "refused: " + fmt.Sprintf("%q", in)
		}
		return string(c.Canonical)
	}
}

// forms remembers every request that it saw: canonical forms and meanings must go together, over all pairs.
type forms struct {
	canon             canonicaliser
	meanings, spelled map[string]string
	seen              int
}

func newForms(c canonicaliser) *forms {
	return &forms{canon: c, meanings: map[string]string{}, spelled: map[string]string{}}
}

// add returns the canonical form, and what is wrong with it.
func (f *forms) add(in Inbound) (form, problem string) {
	form = f.canon(in)
	f.seen++
	want := meaning(in)
	if m, ok := f.meanings[form]; ok && m != want {
		return form, fmt.Sprintf("one form for\n%s\nand\n%s", m, want)
	}
	f.meanings[form] = want
	if s, ok := f.spelled[want]; ok && s != form {
		return form, fmt.Sprintf("two forms for\n%s\n%q\n%q", want, s, form)
	}
	f.spelled[want] = form
	return form, ""
}

// property draws a request, rewrites it without changing its meaning, and changes it; it returns what is wrong.
func (f *forms) property(t *rapid.T) string {
	a := drawRequest(t)
	first, problem := f.add(a.Inbound)
	if problem != "" {
		return problem
	}
	same := a.Inbound
	same.Header = append(slices.Clone(same.Header), claims.Field{Name: "User-Agent", Value: "again"})
	media := strings.Join(values(a.Header, "Content-Type"), "")
	same.Header = setHeader(same.Header, "Content-Type", cmp.Or(respelled[media], media))
	if a.rewrite != nil {
		same.Body = []byte(a.rewrite(t))
	}
	if form, problem := f.add(same); problem != "" || form != first {
		return fmt.Sprintf("rewritten %q as %q: %s", a.Body, same.Body, problem)
	}
	other := a.Inbound
	other.Header = slices.Clone(other.Header)
	switch rapid.IntRange(0, 11).Draw(t, "change") {
	case 0:
		other.Method = map[string]string{"POST": "PUT", "PUT": "PATCH"}[a.Method]
	case 1:
		other.Target = another[a.Target]
	case 2:
		other.Header = setHeader(other.Header, "X-Account", "other")
	case 3:
		other.Header = setHeader(other.Header, "Content-Type", cmp.Or(another[media], "application/octet-stream"))
	case 4:
		other.Header = setHeader(other.Header, "Content-Encoding", "zstd")
	case 5:
		other.Header = setHeader(other.Header, "Authorization", "Bearer another")
	default:
		other.Body = []byte(a.change(t))
	}
	if form, problem := f.add(other); problem != "" || form == first && !(a.loose && meaning(a.Inbound) == meaning(other)) {
		return fmt.Sprintf("%q changed to %q: %s", a.Inbound, other, problem)
	}
	return ""
}

// runs is how many requests are drawn, each with a rewrite and a change.
const runs = 1000

func withRuns(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"rapid.checks": fmt.Sprint(runs), "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Value.Set(before) })
	}
}

// TestCanonicalForms: every insignificant rewrite has an equal canonical form, every change another one, and over all
// requests that were drawn two have one form if and only if they mean the same.
func TestCanonicalForms(t *testing.T) {
	withRuns(t)
	f := newForms(realCanonical(t))
	rapid.Check(t, func(t *rapid.T) {
		if p := f.property(t); p != "" {
			t.Fatal(p)
		}
	})
	if f.seen < 3*runs || len(f.meanings) < runs {
		t.Errorf("%d requests of %d meanings were compared", f.seen, len(f.meanings))
	}
}

// overBody is a canonicaliser that sees another body.
func overBody(c canonicaliser, change func(string) string) canonicaliser {
	return func(in Inbound) string {
		in.Body = []byte(change(string(in.Body)))
		return c(in)
	}
}

// overJSON is one that sees another body where the body is to be read as JSON.
func overJSON(c canonicaliser, change func(string) string) canonicaliser {
	return func(in Inbound) string {
		b, err := readBody(in)
		if err != nil || !b.json || !json.Valid(in.Body) {
			return c(in)
		}
		return overBody(c, change)(in)
	}
}

// reencoded is JSON after a change of its decoded value.
func reencoded(s string, numbers bool, change func(any) any) string {
	d := json.NewDecoder(strings.NewReader(s))
	if numbers {
		d.UseNumber()
	}
	var v any
	if d.Decode(&v) != nil {
		return s
	}
	b, err := json.Marshal(change(v))
	if err != nil {
		return s
	}
	return string(b)
}

// everywhere changes a decoded value and all in it.
func everywhere(f func(any) any) func(any) any {
	var walk func(any) any
	walk = func(v any) any {
		switch x := v.(type) {
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		}
		return f(v)
	}
	return walk
}

func sortedLists(v any) any {
	if list, ok := v.([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return v
}

func withoutNulls(v any) any {
	if m, ok := v.(map[string]any); ok {
		for k, x := range m {
			if inner, ok := x.(map[string]any); x == nil || ok && len(inner) == 0 {
				delete(m, k)
			}
		}
	}
	return v
}

func formatted(opts ...jsontext.Options) func(string) string {
	return func(s string) string {
		v := jsontext.Value(s)
		if v.Format(opts...) != nil {
			return s
		}
		return string(v)
	}
}

// brokenCanonicalisers each break one rule: they take two requests for one, or tell two spellings of one apart.
func brokenCanonicalisers(c canonicaliser) map[string]canonicaliser {
	same := func(v any) any { return v }
	without := func(name string) canonicaliser {
		return func(in Inbound) string {
			in.Header = slices.DeleteFunc(slices.Clone(in.Header), func(f claims.Field) bool { return f.Name == name })
			return c(in)
		}
	}
	spelled := func(opts ...jsontext.Options) canonicaliser {
		format := formatted(opts...)
		return func(in Inbound) string {
			b, _ := readBody(in)
			if b.sealed || !b.json {
				return c(in)
			}
			return fmt.Sprintf("%q", []string{in.Method, in.Target, fmt.Sprint(in.Header[:1]), b.kind, format(string(in.Body))})
		}
	}
	return map[string]canonicaliser{
		"numbers by float64":         overJSON(c, func(s string) string { return reencoded(s, false, same) }),
		"the last of a name counts":  overJSON(c, func(s string) string { return reencoded(s, true, same) }),
		"lists are sorted":           overJSON(c, func(s string) string { return reencoded(s, true, everywhere(sortedLists)) }),
		"null is absent":             overJSON(c, func(s string) string { return reencoded(s, true, everywhere(withoutNulls)) }),
		"RFC 8785 to the letter":     overJSON(c, formatted(jsontext.CanonicalizeRawInts(true), jsontext.CanonicalizeRawFloats(true))),
		"invalid UTF-8 is replaced":  overBody(c, func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }),
		"half pairs are one":         overJSON(c, formatted(jsontext.AllowInvalidUTF8(true))),
		"texts in NFC":               overBody(c, strings.NewReplacer("e\u0301", "é", "e%CC%81", "%C3%A9").Replace),
		"compatibility forms":        overBody(c, strings.NewReplacer("ﬁ", "fi", "%EF%AC%81", "fi", "\u212a", "K").Replace),
		"case is folded":             overBody(c, strings.ToLower),
		"accents are dropped":        overBody(c, strings.NewReplacer("é", "e", "e\u0301", "e").Replace),
		"trailing spaces are cut":    overBody(c, func(s string) string { return strings.ReplaceAll(s, ` "`, `"`) }),
		"text and number are one":    overJSON(c, strings.NewReplacer(`"1"`, "1", `"1.0"`, "1.0").Replace),
		"bytes are trimmed":          overBody(c, strings.TrimSpace),
		"the target's last slash":    func(in Inbound) string { in.Target = strings.TrimRight(in.Target, "/"); return c(in) },
		"the target is decoded":      func(in Inbound) string { in.Target = strings.ReplaceAll(in.Target, "%61", "a"); return c(in) },
		"the method does not count":  func(in Inbound) string { in.Method = "POST"; return c(in) },
		"no account":                 without("X-Account"),
		"no coding":                  without("Content-Encoding"),
		"no media type":              without("Content-Type"),
		"no credential":              without("Authorization"),
		"pairs are sorted by value":  sortedPairs(c),
		"members as they stand":      spelled(),
		"escapes as they stand":      spelled(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(true)),
		"white space as it stands":   spelled(jsontext.SpaceAfterComma(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		"everything by bytes":        func(in Inbound) string { return fmt.Sprintf("%q", in) },
		"the media type's case":      func(in Inbound) string { return c(in) + fmt.Sprint(values(in.Header, "Content-Type")) },
		"parameters are cut":         noParameters(c),
		"all forms are sorted":       sortedForms(c),
		"sealed bodies are read":     without("Content-Digest"),
		"a form's order is kept":     func(in Inbound) string { return c(in) + formOrder(in) },
		"an empty canonical form":    func(Inbound) string { return "" },
		"other headers are included": func(in Inbound) string { return c(in) + fmt.Sprint(values(in.Header, "User-Agent")) },
	}
}

// sortedPairs sorts a form's pairs by name and value.
func sortedPairs(c canonicaliser) canonicaliser {
	return func(in Inbound) string {
		if b, _ := readBody(in); b.format == form && !b.sealed {
			parts := strings.Split(string(in.Body), "&")
			slices.Sort(parts)
			in.Body = []byte(strings.Join(parts, "&"))
		}
		return c(in)
	}
}

// sortedForms sorts forms whose order of names can matter, too.
func sortedForms(c canonicaliser) canonicaliser {
	return func(in Inbound) string {
		b, _ := readBody(in)
		if b.format != form || b.sealed {
			return c(in)
		}
		ps, _ := pairs(b.raw)
		slices.SortStableFunc(ps, func(a, b pair) int { return strings.Compare(a.name, b.name) })
		in.Body = nil
		return c(in) + fmt.Sprintf("%q", ps)
	}
}

func formOrder(in Inbound) string {
	b, _ := readBody(in)
	if b.format != form || b.sealed {
		return ""
	}
	ps, _ := pairs(b.raw)
	var names []string
	for _, p := range ps {
		names = append(names, p.name)
	}
	return fmt.Sprintf("%q", names)
}

// noParameters cuts the parameters of media types.
func noParameters(c canonicaliser) canonicaliser {
	return func(in Inbound) string {
		media, _, _ := strings.Cut(strings.Join(values(in.Header, "Content-Type"), ""), ";")
		in.Header = setHeader(in.Header, "Content-Type", media)
		return c(in)
	}
}

// TestCanonicalPropertyBites: the property finds every broken canonicaliser within the same number of runs.
func TestCanonicalPropertyBites(t *testing.T) {
	withRuns(t)
	for name, c := range brokenCanonicalisers(realCanonical(t)) {
		t.Run(name, func(t *testing.T) {
			f, found := newForms(c), ""
			rapid.Check(t, func(t *rapid.T) {
				if found == "" {
					found = f.property(t)
				}
			})
			if found == "" {
				t.Errorf("nothing was found in %d requests", f.seen)
			}
		})
	}
}

// FuzzCanonical: no body panics, and two bodies with one canonical form mean the same to the oracle.
func FuzzCanonical(f *testing.F) {
	media := []string{"application/json", mediaForm, "text/plain", "application/json; charset=utf-16"}
	for i, s := range []string{
		`{"a":1,"b":[1.0,"\u0041"]}`, `{"a":1,"a":1}`, `{"a":"\ud800"}`, "a=1&b=2&a=3", "a[][x]=1&a[][y]=2&a=%zz", `[[[[`, `{"a":{"b":{}}}`, "\xef\xbb\xbf{}", `"\ud834\udd1e"`, "-0", "a&a=&=",
	} {
		f.Add(uint8(i), []byte(s), []byte(s))
		f.Add(uint8(1), []byte(s), []byte(" "+s+" "))
	}
	canon := realCanonical(f)
	f.Fuzz(func(t *testing.T, kind uint8, x, y []byte) {
		in := func(b []byte) Inbound { return post("/x", media[int(kind)%len(media)], string(b)) }
		a, b := in(x), in(y)
		if one, same := canon(a) == canon(b), meaning(a) == meaning(b); one != same {
			t.Errorf("%s %q and %q: one form %v, one meaning %v", media[int(kind)%len(media)], x, y, one, same)
		}
		// Whoever reads JSON here agrees on what it is.
		object := bytes.HasPrefix(bytes.TrimLeft(x, " \t\r\n"), []byte("{"))
		if _, ok := members(x); ok != (object && utf8.Valid(x) && json.Valid(x)) {
			t.Errorf("%q: an object to members %v", x, ok)
		}
		if got, ok := canonicalJSON(x); ok {
			if again, ok := canonicalJSON(got); !ok || !bytes.Equal(got, again) {
				t.Errorf("%q: %q and then %q", x, got, again)
			}
			if _, ok := members(x); ok != object || !json.Valid(x) {
				t.Errorf("%q: members sees an object %v", x, ok)
			}
		}
	})
}
