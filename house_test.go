// Package house_test holds the rules of the house: what may import what, which modules are allowed and why, and what may be
// written nowhere. Each rule is shown to bite on made-up sources in TestHouseRulesBite.
package house_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/fence-sidecar/fence-sidecar"

// beside is the floor of what is not part of the house: it may import the house, the house may not import it.
const beside = -1.0

// room is one package with its floor. Imports point strictly down, so that two rooms of one floor never import each other.
type room struct {
	path  string
	floor float64 // .5: between two floors
	why   string
	// store: a concrete store, which only the top floor may name.
	store bool
	// tests are the rooms that its test files may import beyond what its floor allows.
	tests []string
}

var rooms = []room{
	{path: "cmd/fence-sidecar", floor: 5, why: "commands, configuration, wiring: the only place that names a concrete store"},

	{path: "proxy/console", floor: 4, why: "shows and steers what floor 3 does, so it stands above it"},
	{path: "proxy/envoy", floor: 4, why: "another way into the proxy, so it stands above it"},
	{path: "k8s/webhook", floor: 4, why: "serves what k8s/inject computes"},

	{path: "proxy", floor: 3, why: "one fenced request in, at most one send out; it must not look up by itself", tests: []string{"reconcile"}},
	{path: "reconcile", floor: 3, why: "verdicts by reads; it must not be able to send a call", tests: []string{"proxy"}},
	{path: "checklist", floor: 3, why: "asks a gateway's sandbox what it keeps; neither sends nor reconciles calls"},
	{path: "k8s/inject", floor: 3, why: "pod in, patch out: knows nothing of calls"},

	{path: "claims/claimstest", floor: 2, why: "the conformance suite of any store: above the stores' seam and the decorator of faults"},
	{path: "gateways/sandbox", floor: 2, why: "a gateway for tests and the demo: above what a gateway is"},

	{path: "gateways", floor: 1, why: "what a gateway is; no store and no network"},
	{path: "claims/memory", floor: 1, why: "a store, for tests only", store: true, tests: []string{"claims/claimstest"}},
	{path: "claims/sqlite", floor: 1, why: "a store", store: true, tests: []string{"claims/claimstest"}},
	{path: "claims/postgres", floor: 1, why: "a store", store: true, tests: []string{"claims/claimstest"}},
	{path: "claims/etcd", floor: 1, why: "a store", store: true, tests: []string{"claims/claimstest"}},
	{path: "claims/faults", floor: 1, why: "a decorator of any store: knows the seam only", tests: []string{"claims/memory"}},

	{path: "claims/keys", floor: .5, why: "keys of fingerprints and answers: below the stores, which make and keep a set of them",
		tests: []string{"claims/memory", "claims/claimstest", "claims/sqlite", "claims/postgres", "claims/postgres/pgtest"}},
	{path: "claims/codec", floor: .5, why: "how the SQL stores write a record's lists: below them, so that they write alike"},
	{path: "claims/postgres/pgtest", floor: .5, why: "real PostgreSQL servers for tests: knows nothing of claims"},
	{path: "claims/postgres/pgtest/pgbin", floor: 1, why: "tells make where the server's programs are"},

	{path: "claims", floor: 0, why: "the rules: pure, standard library only, so that they can be read and tested without anything else",
		tests: []string{"claims/memory", "claims/explore", "claims/faults", "claims/claimstest"}},
	{path: "gateways/tunnel", floor: 0, why: "a connection through an HTTP proxy; knows nothing of calls, so that sends and lookups share it",
		tests: []string{"gateways/tunnel/tunneltest"}},
	{path: "gateways/tunnel/tunneltest", floor: .5, why: "a proxy for tests"},
	{path: "claims/explore", floor: 0, why: "runs interleavings of anything; knows nothing of claims"},

	{path: ".", floor: beside, why: "the rules of the house"},
	{path: "docs", floor: beside, why: "compares the documents with the code"},
	{path: "bench", floor: beside, why: "measures the house from outside"},
	{path: "e2e", floor: beside, why: "drives the built binary from outside"},
	{path: "examples", floor: beside, why: "what an application does"},
	{path: "examples/leases/gokeeper", floor: beside, why: "what an application does"},
	{path: "proxy/testnet", floor: beside, why: "tests that need network namespaces"},
}

// testOnly are rooms that no program imports; the command may use the sandbox, which it also serves.
var testOnly = map[string][]string{
	"claims/claimstest":          nil,
	"claims/explore":             {"claims/claimstest"},
	"claims/faults":              {"claims/claimstest"},
	"claims/memory":              {"claims/claimstest"},
	"claims/postgres/pgtest":     {"claims/postgres/pgtest/pgbin"},
	"gateways/sandbox":           {"cmd/fence-sidecar", "checklist"},
	"gateways/tunnel/tunneltest": nil,
}

// modules are the third-party modules that go.mod requires directly, and why each is there instead of something of ours.
var modules = map[string]string{
	"github.com/andybalholm/brotli":       "reads answers that the gateway coded in br, which the standard library does not; else a success would stay in doubt",
	"github.com/klauspost/compress":       "reads answers coded in zstd, for the same reason; the metrics library brings it along anyway",
	"github.com/alecthomas/kong":          "command line: parsing, help and environment of many subcommands, without globals",
	"github.com/getkin/kin-openapi":       "tests hold every exchange with the lease API against its OpenAPI description; a checker of ours would read it as we wrote it",
	"github.com/go-json-experiment/json":  "JSON for fingerprints: refuses what readers take differently and keeps numbers as text, which encoding/json does not; standard in Go 1.27",
	"github.com/goccy/go-yaml":            "YAML with strict fields and positions in its errors; nobody writes a YAML parser for a payment path",
	"github.com/jackc/pgx/v5":             "PostgreSQL's driver and pool: it says what was surely not sent, and speaks the protocol without session state",
	"github.com/google/go-cmp":            "readable differences in tests",
	"github.com/google/uuid":              "UUIDs as RFC 9562 says, read and written",
	"github.com/prometheus/client_golang": "the metrics' text format and its rules, as every scraper expects them",
	"github.com/sony/gobreaker/v2":        "a two-step circuit breaker: asked before the claim, told after the send",
	"github.com/stripe/stripe-go/v85":     "the official SDK as a client in tests: its own retries are what must not charge twice",
	"github.com/tink-crypto/tink-go/v2":   "key sets that rotate, MAC and AEAD, with the forms and checks of people who do only that; ours would be our own cryptography",
	"golang.org/x/oauth2":                 "tokens by client credentials: the request, its errors and the answer's odd forms, as every token endpoint expects them",
	"golang.org/x/sync":                   "singleflight: requests that wait for one call share its lookup",
	"golang.org/x/sys":                    "socket options, file system types and clocks that package syscall lacks",
	"pgregory.net/rapid":                  "tests draw requests and shrink what fails; a drawer of ours would need tests itself",
	"modernc.org/sqlite":                  "SQLite without cgo, so that the binary stays static",

	"github.com/standard-webhooks/standard-webhooks/libraries": "receivers' own verifier: tests check with it what we sign; a verifier of ours would misread the specification as the signer does",
}

// banned are names that must not be used in a folder ("": anywhere in the house), except in the files listed.
var banned = []struct {
	in     string
	pkg    string
	names  []string
	except []string
	why    string
}{
	{pkg: "net/http", names: []string{"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"},
		why: "the shared client follows redirects, takes proxies from the environment and repeats requests by itself"},
	{pkg: "net/http/httputil", names: []string{"ReverseProxy", "NewSingleHostReverseProxy"},
		why: "it repeats requests by itself"},
	{in: "proxy", pkg: "net/http", names: []string{"Client", "Transport", "NewRequest", "NewRequestWithContext"},
		why: "only Egress sends calls, and it writes them itself"},
	{in: "claims", pkg: "time", names: []string{"Now", "Since", "Until"}, except: []string{"claims/clock.go", "claims/clock_other.go"},
		why: "decisions take the store's time, and trust is measured by the injected clock"},
}

// maxLines bounds a file that is no test.
const maxLines = 500

// source is one Go file, its path relative to the module with slashes.
type source struct {
	path string
	text []byte
}

// file is what the rules look at.
type file struct {
	source
	dir     string
	test    bool
	imports map[string]string // local name → import path
	ast     *ast.File
	at      func(token.Pos) int
}

func TestHouse(t *testing.T) {
	srcs := readSources(t)
	if len(srcs) < 50 {
		t.Fatalf("only %d Go files were found: the rules looked at nothing", len(srcs))
	}
	for _, p := range broken(srcs) {
		t.Error(p)
	}
}

func TestModules(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	for _, p := range unexplained(direct, modules) {
		t.Error(p)
	}
}

// unexplained compares the modules that are required with the table of reasons.
func unexplained(direct []string, table map[string]string) (problems []string) {
	for _, m := range direct {
		if table[m] == "" {
			problems = append(problems, fmt.Sprintf("module %s is required and has no reason in the table", m))
		}
	}
	for _, m := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(direct, m) {
			problems = append(problems, fmt.Sprintf("module %s has a reason and is not required", m))
		}
	}
	return problems
}

// readSources reads every Go file of this module, whatever its build constraints.
func readSources(t *testing.T) (srcs []source) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		if d.IsDir() {
			name := d.Name()
			nested := false
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != "." {
				nested = true
			}
			if p != "." && (nested || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		srcs = append(srcs, source{p, text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return srcs
}

// broken returns every rule that the sources break.
func broken(srcs []source) (problems []string) {
	for _, s := range srcs {
		f, err := parse(s)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, rule := range []func(*file) []string{floors, names, skips, lines} {
			problems = append(problems, rule(f)...)
		}
	}
	return problems
}

func parse(s source) (*file, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{
		source: s, dir: path.Dir(s.path), test: strings.HasSuffix(s.path, "_test.go"), imports: map[string]string{}, ast: tree,
		at: func(p token.Pos) int { return set.Position(p).Line },
	}
	for _, i := range tree.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "_" || name == "." || f.imports[name] != "" {
			name += " " + p // kept, though not usable as a name
		}
		f.imports[name] = p
	}
	return f, nil
}

// roomOf is the room of a folder: its own, or for what is beside the house that of a folder above.
func roomOf(dir string) *room {
	for i := range rooms {
		if rooms[i].path == dir {
			return &rooms[i]
		}
	}
	for i := range rooms {
		if rooms[i].floor == beside && rooms[i].path != "." && strings.HasPrefix(dir, rooms[i].path+"/") {
			return &rooms[i]
		}
	}
	return nil
}

// floors checks one file's imports against the table.
func floors(f *file) (problems []string) {
	from := roomOf(f.dir)
	if from == nil {
		return []string{fmt.Sprintf("%s: folder %s is in no row of the table of rooms", f.path, f.dir)}
	}
	for _, imp := range slices.Sorted(maps.Values(f.imports)) {
		own, inside := strings.CutPrefix(imp, module+"/")
		if why := allowed(f, from, own, inside, imp); why != "" {
			problems = append(problems, fmt.Sprintf("%s (%s, floor %v) imports %s: %s", f.path, from.path, from.floor, imp, why))
		}
	}
	return problems
}

// allowed says why a file may not import something; "" if it may.
func allowed(f *file, from *room, own string, inside bool, imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	switch {
	case !inside && strings.Contains(first, "."):
		if from.floor == 0 && !f.test {
			return "floor 0 is standard library only"
		}
		return ""
	case !inside:
		return ""
	}
	to := roomOf(own)
	switch {
	case to == nil:
		return "it is in no row of the table of rooms"
	case from.floor == beside:
		return ""
	case to.floor == beside:
		return "it is beside the house"
	case f.test && (to.path == from.path || slices.Contains(from.tests, to.path)):
		return ""
	case to.floor >= from.floor:
		return fmt.Sprintf("it is on floor %v, and imports point strictly down", to.floor)
	case f.test || slices.Contains(testOnly[to.path], from.path):
		return ""
	case to.store && from.floor < 5:
		return "only the command names a concrete store"
	}
	if _, helper := testOnly[to.path]; helper {
		return "it is for tests"
	}
	return ""
}

// names looks for what is banned. It reads the syntax, so that comments and strings do not count.
func names(f *file) (problems []string) {
	r := roomOf(f.dir)
	if r == nil || r.floor == beside && r.path != "." && r.path != "docs" {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		for _, b := range banned {
			if f.imports[x.Name] != b.pkg || !slices.Contains(b.names, sel.Sel.Name) || f.test ||
				b.in != "" && b.in != f.dir || slices.Contains(b.except, f.path) {
				continue
			}
			problems = append(problems, fmt.Sprintf("%s:%d: %s.%s is not used here: %s", f.path, f.at(n.Pos()), x.Name, sel.Sel.Name, b.why))
		}
		return true
	})
	return problems
}

// skips looks for tests that leave themselves out.
func skips(f *file) (problems []string) {
	if !slices.Contains(slices.Collect(maps.Values(f.imports)), "testing") {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			problems = append(problems, fmt.Sprintf("%s:%d: a test skips: it must run or fail", f.path, f.at(n.Pos())))
		}
		return true
	})
	return problems
}

func lines(f *file) []string {
	if n := bytes.Count(f.text, []byte("\n")); !f.test && n > maxLines {
		return []string{fmt.Sprintf("%s has %d lines, at most %d are allowed", f.path, n, maxLines)}
	}
	return nil
}

// TestHouseRulesBite feeds each rule a file that breaks it, and its nearest neighbour that does not.
func TestHouseRulesBite(t *testing.T) {
	own := func(pkg string) string { return "package p\nimport _ \"" + module + "/" + pkg + "\"\n" }
	const stdhttp = "package p\nimport \"net/http\"\n"
	for _, c := range []struct {
		name, path, text string
		want             string // "" for none
	}{
		{"down", "proxy/x.go", own("gateways"), ""},
		{"up", "gateways/x.go", own("proxy"), "on floor 3, and imports point strictly down"},
		{"sideways on floor 3", "proxy/x.go", own("reconcile"), "on floor 3, and imports point strictly down"},
		{"sideways back", "reconcile/x.go", own("proxy"), "on floor 3, and imports point strictly down"},
		{"sideways in k8s", "k8s/inject/x.go", own("checklist"), "on floor 3, and imports point strictly down"},
		{"store to store", "claims/sqlite/x.go", own("claims/memory"), "on floor 1, and imports point strictly down"},
		{"gateways to store", "gateways/x.go", own("claims/sqlite"), "on floor 1, and imports point strictly down"},
		{"a concrete store below the command", "proxy/x.go", own("claims/sqlite"), "only the command names a concrete store"},
		{"a concrete store above", "proxy/console/x.go", own("claims/postgres"), "only the command names a concrete store"},
		{"the store of tests in the suite", "claims/claimstest/x.go", own("claims/memory"), ""},
		{"another store in the suite", "claims/claimstest/x.go", own("claims/sqlite"), "only the command names a concrete store"},
		{"a concrete store in the command", "cmd/fence-sidecar/x.go", own("claims/sqlite"), ""},
		{"the store of tests in the command", "cmd/fence-sidecar/x.go", own("claims/memory"), "it is for tests"},
		{"the store of tests in a test", "cmd/fence-sidecar/x_test.go", own("claims/memory"), ""},
		{"the sandbox in the proxy", "proxy/x.go", own("gateways/sandbox"), "it is for tests"},
		{"the sandbox in a test", "proxy/x_test.go", own("gateways/sandbox"), ""},
		{"a listed helper in a test", "claims/x_test.go", own("claims/memory"), ""},
		{"an unlisted one in a test", "gateways/x_test.go", own("claims/sqlite"), "on floor 1, and imports point strictly down"},
		{"third party on floor 0", "claims/x.go", "package p\nimport _ \"golang.org/x/sys/unix\"\n", "floor 0 is standard library only"},
		{"third party in explore", "claims/explore/x.go", "package p\nimport _ \"github.com/google/uuid\"\n", "floor 0 is standard library only"},
		{"claims in explore", "claims/explore/x.go", own("claims"), "on floor 0, and imports point strictly down"},
		{"third party in a test of floor 0", "claims/x_test.go", "package p\nimport _ \"pgregory.net/rapid\"\n", ""},
		{"the house uses an example", "proxy/x.go", own("examples/shop"), "it is beside the house"},
		{"an example uses the house", "examples/shop/x.go", own("claims/sqlite"), ""},
		{"a folder without a room", "proxy/more/x.go", "package p\n", "folder proxy/more is in no row"},
		{"an import without a room", "proxy/x.go", own("util"), "it is in no row"},

		{"the shared client", "reconcile/x.go", stdhttp + "var c = http.DefaultClient\n", "http.DefaultClient is not used here"},
		{"the shared transport", "gateways/x.go", stdhttp + "var c = http.DefaultTransport\n", "http.DefaultTransport is not used here"},
		{"http.Get", "cmd/fence-sidecar/x.go", stdhttp + "func f() { http.Get(\"\") }\n", "http.Get is not used here"},
		{"http.Post under another name", "reconcile/x.go", "package p\nimport h \"net/http\"\nfunc f() { h.Post(\"\", \"\", nil) }\n", "h.Post is not used here"},
		{"the reverse proxy", "proxy/x.go", "package p\nimport \"net/http/httputil\"\nvar p httputil.ReverseProxy\n", "httputil.ReverseProxy is not used here"},
		{"a client in the proxy", "proxy/x.go", stdhttp + "var c http.Client\n", "http.Client is not used here"},
		{"a client for lookups", "reconcile/x.go", stdhttp + "var c http.Client\n", ""},
		{"in a comment only", "proxy/x.go", "package p\n// http.DefaultClient\nvar s = \"http.Get(\"\n", ""},
		{"in an example", "examples/x.go", stdhttp + "var c = http.DefaultClient\n", ""},
		{"the wall clock in claims", "claims/x.go", "package p\nimport \"time\"\nvar n = time.Now()\n", "time.Now is not used here"},
		{"the wall clock in its file", "claims/clock.go", "package p\nimport \"time\"\nvar n = time.Now()\n", ""},
		{"the wall clock in a store", "claims/sqlite/x.go", "package p\nimport \"time\"\nvar n = time.Now()\n", ""},

		{"a skipped test", "claims/x_test.go", "package p\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip(\"later\") }\n", "x_test.go:3: a test skips"},
		{"a skipped test in a helper", "claims/claimstest/x.go", "package p\nimport \"testing\"\nfunc X(tb testing.TB) { tb.SkipNow() }\n", "x.go:3: a test skips"},
		{"a long file", "claims/x.go", "package p\n" + strings.Repeat("\n", maxLines), "has 501 lines"},
		{"a file at the limit", "claims/x.go", "package p\n" + strings.Repeat("\n", maxLines-1), ""},
		{"no Go", "claims/x.go", "package", "expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := broken([]source{{c.path, []byte(c.text)}})
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("allowed, but found: %s", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("found %q, want one with %q", got, c.want)
			}
		})
	}
}

func TestModuleTableBites(t *testing.T) {
	table := map[string]string{"a": "why", "b": "why", "c": ""}
	got := unexplained([]string{"a", "c", "d"}, table)
	want := []string{
		"module c is required and has no reason in the table", "module d is required and has no reason in the table",
		"module b has a reason and is not required",
	}
	if !slices.Equal(got, want) {
		t.Errorf("unexplained = %q, want %q", got, want)
	}
}

// Every room says why it is where it is, and the rooms of floor 3 stay apart.
func TestRoomsHaveReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rooms {
		if r.why == "" || seen[r.path] {
			t.Errorf("room %s: no reason, or there twice", r.path)
		}
		seen[r.path] = true
	}
	for _, apart := range []string{"proxy", "reconcile", "checklist", "k8s/inject"} {
		if r := roomOf(apart); r == nil || r.floor != 3 {
			t.Errorf("room %s is not on floor 3", apart)
		}
	}
}
