// Package docs_test compares the documents with the code: what they list must be all there is, and what they name must exist.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section is the text under a heading, up to the next one of any level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	if i := strings.Index(rest, "\n#"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

var firstCell = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$")

// rows are the cells of a table's rows by the code in their first cell.
func rows(t *testing.T, text string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range firstCell.FindAllStringSubmatch(text, -1) {
		if out[m[1]] != nil {
			t.Errorf("%s has two rows", m[1])
		}
		cells := strings.Split(m[2], "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out[m[1]] = cells
	}
	return out
}

// differences says what is in one list only.
func differences(have, listed []string) (problems []string) {
	for _, h := range have {
		if !slices.Contains(listed, h) {
			problems = append(problems, h+" is not in the document")
		}
	}
	for _, l := range listed {
		if !slices.Contains(have, l) {
			problems = append(problems, l+" is in the document and does not exist")
		}
	}
	slices.Sort(problems)
	return problems
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestDifferencesBite(t *testing.T) {
	got := differences([]string{"a", "b"}, []string{"b", "c"})
	want := []string{"a is not in the document", "c is in the document and does not exist"}
	if !slices.Equal(got, want) {
		t.Errorf("differences = %q, want %q", got, want)
	}
}

var (
	reasonConst = regexp.MustCompile(`(?m)^\s+(\w+)\s+Reason = "([^"]+)"$`)
	problemRow  = regexp.MustCompile(`claims\.(\w+):\s+\{(\d+), "[^"]*", (true|false)\}`)
)

func TestProblemTypesAreDocumented(t *testing.T) {
	text := read(t, "http.md")
	table := map[string][]string{}
	for heading, list := range map[string][]claims.Reason{
		"## Refusals": claims.Reasons, "## Refusals of the lease API": claims.LeaseReasons,
		"## Refusals of the calls API": claims.CallsReasons,
	} {
		var reasons []string
		for _, r := range list {
			reasons = append(reasons, string(r))
		}
		listed := rows(t, section(t, text, heading))
		for _, p := range differences(reasons, keys(listed)) {
			t.Errorf("%s: %s", heading, p)
		}
		maps.Copy(table, listed)
	}
	if !strings.Contains(text, proxy.ProblemBase+"<slug>") {
		t.Errorf("the document does not name %s<slug>", proxy.ProblemBase)
	}
	slugs := map[string]string{}
	for _, m := range reasonConst.FindAllStringSubmatch(read(t, "../claims/refusal.go"), -1) {
		slugs[m[1]] = m[2]
	}
	found := problemRow.FindAllStringSubmatch(read(t, "../proxy/problem.go"), -1)
	if want := len(claims.Reasons) + len(claims.LeaseReasons) + len(claims.CallsReasons); len(found) != want {
		t.Fatalf("%d statuses were read from the source, want %d: this test must learn its new form", len(found), want)
	}
	for _, m := range found {
		retry := map[string]string{"true": "yes", "false": "no"}[m[3]]
		if row := table[slugs[m[1]]]; len(row) < 2 || row[0] != m[2] || row[1] != retry {
			t.Errorf("%s: the document says %q, the code %s and %s", slugs[m[1]], row, m[2], retry)
		}
	}
}

func TestHeadersAreDocumented(t *testing.T) {
	text := read(t, "http.md")
	in := []string{proxy.HeaderKey, proxy.HeaderToken, proxy.HeaderExternal, proxy.HeaderTenant, proxy.HeaderRevision, proxy.HeaderUndo, proxy.HeaderTimeout, "Prefer"}
	out := []string{proxy.HeaderOutcome, proxy.HeaderResult, proxy.HeaderAttempt, proxy.HeaderCall, proxy.HeaderLease, proxy.HeaderShadow, "Proxy-Status", "Retry-After"}
	for _, p := range differences(in, keys(rows(t, section(t, text, "## Request headers")))) {
		t.Error(p)
	}
	for _, p := range differences(out, keys(rows(t, section(t, text, "## Answer headers")))) {
		t.Error(p)
	}
}

var metricName = regexp.MustCompile(`"(fence_[a-z_]+)"`)

func TestMetricsAreDocumented(t *testing.T) {
	var have []string
	eachGo(t, func(path string) {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		if strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{"proxy", "proxy/console", "reconcile", "cmd/fence-sidecar"}, dir) {
			return
		}
		src := read(t, path)
		if !strings.Contains(src, "prometheus") {
			return
		}
		for _, m := range metricName.FindAllStringSubmatch(src, -1) {
			have = append(have, m[1])
		}
	})
	if len(have) < 10 {
		t.Fatalf("only %d metrics were found in the sources", len(have))
	}
	for _, p := range differences(have, keys(rows(t, section(t, read(t, "operations.md"), "## Metrics")))) {
		t.Error(p)
	}
}

func eachGo(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".go") {
			f(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// gatewaySections are the document's names of the types that a gateway file is made of.
var gatewaySections = map[reflect.Type]string{
	reflect.TypeFor[gateways.Gateway]():     "Gateway",
	reflect.TypeFor[gateways.Route]():       "Route",
	reflect.TypeFor[gateways.KeyPlace]():    "Key",
	reflect.TypeFor[gateways.RefPlace]():    "Reference",
	reflect.TypeFor[gateways.Shape]():       "Shape",
	reflect.TypeFor[gateways.CallKey]():     "Call key",
	reflect.TypeFor[gateways.HeaderValue](): "Header",
	reflect.TypeFor[gateways.Condition]():   "Condition",
	reflect.TypeFor[gateways.AnswerRule]():  "Answer rule",
	reflect.TypeFor[gateways.Payment]():     "Payment",
	reflect.TypeFor[gateways.Kept]():        "Kept",
	reflect.TypeFor[gateways.Lookup]():      "Lookup",
	reflect.TypeFor[gateways.Case]():        "Case",
	reflect.TypeFor[gateways.Pages]():       "Pages",
	reflect.TypeFor[gateways.FoundAnswer](): "Found answer",
	reflect.TypeFor[gateways.ErrorShape]():  "Error",
	reflect.TypeFor[gateways.EgressProxy](): "Egress proxy",
	reflect.TypeFor[gateways.Guarantee]():   "Guarantee",
	reflect.TypeFor[gateways.Webhook]():     "Webhook",
	reflect.TypeFor[gateways.NoticeCase]():  "Notice case",
	reflect.TypeFor[gateways.Signature]():   "Signature",
	reflect.TypeFor[gateways.Checks]():      "Checks",
	reflect.TypeFor[gateways.Sample]():      "Sample",
	reflect.TypeFor[gateways.Variation]():   "Variation",
	reflect.TypeFor[gateways.Account]():     "", // in configuration.md
	reflect.TypeFor[gateways.Secret]():      "", // in configuration.md
}

func TestGatewayFileIsDocumented(t *testing.T) {
	text := read(t, "gateway-files.md")
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		name, ok := gatewaySections[typ]
		if !ok {
			t.Errorf("type %s has no section", typ)
			return
		}
		if name == "" {
			return
		}
		var have []string
		for f := range typ.Fields() {
			if tag := f.Tag.Get("yaml"); tag != "" && tag != "-" {
				have = append(have, tag)
				walk(f.Type)
			}
		}
		for _, p := range differences(have, keys(rows(t, section(t, text, "### "+name)))) {
			t.Errorf("%s: %s", name, p)
		}
	}
	walk(reflect.TypeFor[gateways.Gateway]())
	if len(seen) != len(gatewaySections) {
		t.Errorf("%d types were seen, %d are listed", len(seen), len(gatewaySections))
	}
}

// The document of the built-in gateways is what the declarations say.
func TestGatewaysAreDocumented(t *testing.T) {
	var b strings.Builder
	if err := gateways.WritePage(&b, gateways.Builtin()); err != nil {
		t.Fatal(err)
	}
	if read(t, "gateways.md") != b.String() {
		t.Error("gateways.md is not what the declarations say: run go generate ./gateways")
	}
	for _, g := range gateways.Builtin() {
		if !strings.Contains(b.String(), "\n## "+g.Name+"\n") {
			t.Errorf("%s is not in the document", g.Name)
		}
		for _, n := range gateways.GuaranteeNames {
			if v := g.Guarantees[n.Name]; v == nil || v.Says == "" || len(v.Source) == 0 {
				t.Errorf("%s: %s has no words or no source", g.Name, n.Name)
			}
		}
	}
}

// The example in the document is a gateway that loads.
func TestGatewayFileExampleLoads(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "gateway-files.md"), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	g, err := gateways.Load([]byte(example), "gateway-files.md")
	if err != nil {
		t.Fatal(err)
	}
	if r := g.LookupRules("payments_create"); !r.Proves || !r.Keyed || !r.FirstStored {
		t.Errorf("the example's lookup proves nothing: %+v", r)
	}
	if _, err := gateways.Load([]byte(strings.Replace(example, "kind: list", "kind: search", 1)), "gateway-files.md"); err == nil {
		t.Error("a search that proves absence was taken")
	}
}

// testsOf are the names of all tests, fuzz targets and their packages' folders.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	eachGo(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				names[dir+"."+fn.Name.Name] = true
			}
		}
	})
	return names
}

var testName = regexp.MustCompile("`([a-z][a-z0-9/_-]*\\.(?:Test|Fuzz)[A-Za-z0-9_]+)`")

// missing are the tests that a text names and that do not exist.
func missing(text string, have map[string]bool) (problems []string) {
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		if !have[m[1]] {
			problems = append(problems, fmt.Sprintf("test %s does not exist", m[1]))
		}
	}
	return problems
}

func TestNamedTestsExist(t *testing.T) {
	text := read(t, "guarantees.md")
	if n := len(testName.FindAllString(text, -1)); n < 40 {
		t.Fatalf("the document names %d tests only", n)
	}
	for _, p := range missing(text, testsOf(t)) {
		t.Error(p)
	}
	if got := missing("`claims.TestNoSuchThing` `claims.TestX`", map[string]bool{"claims.TestX": true}); len(got) != 1 {
		t.Errorf("missing = %q, want one", got)
	}
}

// Every guarantee, assumption and strengthening has its place in the document.
func TestGuaranteesAreComplete(t *testing.T) {
	text := read(t, "guarantees.md")
	for _, group := range []struct {
		letter string
		n      int
	}{{"P", 5}, {"A", 16}, {"S", 7}} {
		for i := range group.n {
			heading := fmt.Sprintf("\n### %s%d. ", group.letter, i+1)
			if strings.Count(text, heading) != 1 {
				t.Errorf("%q stands %d times, want once", strings.TrimSpace(heading), strings.Count(text, heading))
			}
		}
	}
}

var ruleName = regexp.MustCompile("rule\\s+`([^`]+)`")

// The document's rules are those of the conformance suite.
func TestNamedRulesExist(t *testing.T) {
	var have []string
	for _, r := range claimstest.Rules() {
		have = append(have, r.Name)
	}
	found := ruleName.FindAllStringSubmatch(read(t, "guarantees.md"), -1)
	if len(found) < 20 {
		t.Fatalf("the document names %d rules only", len(found))
	}
	for _, m := range found {
		if m[1] != "…" && !slices.Contains(have, m[1]) {
			t.Errorf("rule %s does not exist", m[1])
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// Links between the documents lead somewhere.
func TestLinksLead(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, "../README.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, f), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s: link to %s leads nowhere", f, m[1])
			}
		}
	}
}
