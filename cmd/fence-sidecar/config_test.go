package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields lists every YAML field of a type by its path, as docs/configuration.md writes it. Lists are name[], maps name.<key>.
func fields(t reflect.Type, path string, keys map[string]string) (out []string) {
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case ft.Kind() == reflect.Struct:
			out = append(out, fields(ft, at, keys)...)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			out = append(out, fields(ft.Elem(), at+"[]", keys)...)
		case ft.Kind() == reflect.Map && ft.Elem().Kind() == reflect.Struct:
			out = append(out, fields(ft.Elem(), at+".<"+keys[at]+">", keys)...)
		default:
			out = append(out, at)
		}
	}
	return out
}

const configDoc = "../../docs/configuration.md"

var (
	docRow  = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) \\|$")
	docYAML = regexp.MustCompile("(?s)```yaml\n(.*?)```")
)

// documented is the table's rows by field.
func documented(t *testing.T, text string) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for _, m := range docRow.FindAllStringSubmatch(text, -1) {
		if rows[m[1]] != nil {
			t.Errorf("field %s has two rows", m[1])
		}
		rows[m[1]] = m[2:]
	}
	return rows
}

// undocumented compares the fields of a type with the rows of a table.
func undocumented(have []string, rows map[string][]string) (problems []string) {
	for _, f := range have {
		if rows[f] == nil {
			problems = append(problems, fmt.Sprintf("field %s has no row", f))
		}
	}
	for _, f := range slices.Sorted(maps.Keys(rows)) {
		if !slices.Contains(have, f) && f != "gateways" {
			problems = append(problems, fmt.Sprintf("row %s is no field", f))
		}
	}
	return problems
}

func readDoc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(configDoc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func configFields() []string {
	return fields(reflect.TypeFor[Config](), "", map[string]string{"gateways[].routes": "route"})
}

func TestConfigurationIsDocumented(t *testing.T) {
	for _, p := range undocumented(configFields(), documented(t, readDoc(t))) {
		t.Error(p)
	}
}

func TestConfigurationDocumentBites(t *testing.T) {
	rows := map[string][]string{"a.b": {}, "c[].d": {}, "e": {}}
	type inner struct {
		D string `yaml:"d"`
		F int    `yaml:"f"`
	}
	type outer struct {
		A struct {
			B bool `yaml:"b"`
		} `yaml:"a"`
		C []inner          `yaml:"c"`
		G map[string]inner `yaml:"g"`
	}
	got := undocumented(fields(reflect.TypeFor[outer](), "", map[string]string{"g": "k"}), rows)
	want := []string{"field c[].f has no row", "field g.<k>.d has no row", "field g.<k>.f has no row", "row e is no field"}
	if !slices.Equal(got, want) {
		t.Errorf("undocumented = %q, want %q", got, want)
	}
}

// The defaults in the document are those of the code.
func TestConfigurationDefaultsAreDocumented(t *testing.T) {
	rows := documented(t, readDoc(t))
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("yaml")
			if name == "" || name == "-" {
				continue
			}
			at, f := strings.TrimPrefix(path+"."+name, "."), v.Field(i)
			var want string
			switch x := f.Interface().(type) {
			case time.Duration:
				want = x.String() // 1m0s is written 1m, 24h0m0s 24h
				for _, zero := range []string{"m0s", "h0m"} {
					if short, ok := strings.CutSuffix(want, zero); ok {
						want = short + zero[:1]
					}
				}
			case []string:
				want = "[" + strings.Join(x, ", ") + "]"
			case bool, int, uint32:
				want = fmt.Sprint(x)
			case string:
				if want = x; x == "" {
					continue // no default, or required
				}
			default:
				if f.Kind() == reflect.Struct {
					walk(f, at)
				}
				continue
			}
			if row := rows[at]; row != nil && row[1] != "`"+want+"`" {
				t.Errorf("%s: the default is %q, the document says %s", at, want, row[1])
			}
		}
	}
	walk(reflect.ValueOf(defaults()), "")
}

// write makes a configuration file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "fence.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConfigurationExamplesLoad(t *testing.T) {
	examples := docYAML.FindAllStringSubmatch(readDoc(t), -1)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	c, err := loadConfig(write(t, examples[0][1]))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Gateways) != 2 || c.Gateways[0].Routes["payouts_create"].SettleAfter != time.Hour || c.Drain != 2*time.Minute {
		t.Errorf("the complete example was read as %+v", c)
	}
	if c, err = loadConfig(write(t, examples[1][1])); err != nil {
		t.Fatal(err)
	}
	if c.Lease.TTL != 30*time.Second || c.Listen.Any != "127.0.0.1:8181" {
		t.Errorf("the smallest example has no defaults: %+v", c)
	}
	if c, err = loadConfig(write(t, examples[2][1])); err != nil {
		t.Fatal(err)
	}
	if c.Store.Kind != storePostgres || c.Store.Failover != failoverSynchronous || c.Store.Schema != "fence" || c.Store.Connections != 6 {
		t.Errorf("the example on PostgreSQL was read as %+v", c.Store)
	}
}

const okGateway = "gateways: [{use: stripe, listen: \"127.0.0.1:8100\"}]\n"
const okStore = "store: {path: /x/fence.db}\n"

// Each bad configuration is refused in one line that names the file, the field, the value and what is allowed.
func TestBadConfigurations(t *testing.T) {
	gateway := func(fields string) string { return okStore + "gateways: [{use: stripe, " + fields + "}]\n" }
	for _, c := range []struct {
		name, text string
		want       []string // field, value, what is allowed
	}{
		{"another store", "store: {kind: redis, path: /x}\n" + okGateway, []string{"store.kind", `"redis"`, "sqlite"}},
		{"PostgreSQL without URL", "store: {kind: postgres}\n" + okGateway, []string{"store.url", `""`, "env or file"}},
		{"PostgreSQL with two URLs", "store: {kind: postgres, url: {env: A, file: /b}}\n" + okGateway, []string{"store.url", "not both"}},
		{"a URL for SQLite", "store: {path: /x, url: {env: A}}\n" + okGateway, []string{"store.url", "store.kind: postgres"}},
		{"a path for PostgreSQL", "store: {kind: postgres, path: /x, url: {env: A}}\n" + okGateway, []string{"store.path", "store.kind: sqlite"}},
		{"no schema", "store: {kind: postgres, url: {env: A}, schema: \"\"}\n" + okGateway, []string{"store.schema", `""`, "63 bytes"}},
		{"too few connections", "store: {kind: postgres, url: {env: A}, connections: 2}\n" + okGateway, []string{"store.connections", `"2"`, "3 to 100"}},
		{"failover", "store: {kind: postgres, url: {env: A}, failover: lossy}\n" + okGateway, []string{"store.failover", `"lossy"`, "synchronous, may-lose"}},
		{"external tokens", okStore + okGateway + "externalTokens: on\n", []string{"externalTokens", `"on"`, "without-double-charge-protection"}},
		{"control listener for all", okStore + okGateway + "listen: {control: \":8182\"}\n", []string{"listen.control", `":8182"`, "loopback"}},
		{"one port for two listeners", okStore + okGateway + "listen: {control: \"127.0.0.1:8181\"}\n", []string{"listen.control", `"127.0.0.1:8181"`, "of its own"}},
		{"the control port", okStore + "gateways: [{use: stripe, listen: \"127.0.0.1:8182\"}]\n", []string{"gateways[0].listen", `"127.0.0.1:8182"`, "of its own"}},
		{"leases shorter than the process's own", okStore + okGateway + "lease: {maxTTL: 10s}\n", []string{"lease.maxTTL", `"10s"`, "30s to 10m0s"}},
		{"no path", okGateway, []string{"store.path", `""`, "SQLite file"}},
		{"data listener for all", okStore + okGateway + "listen: {any: \"0.0.0.0:8181\"}\n", []string{"listen.any", `"0.0.0.0:8181"`, "loopback"}},
		{"data listener by name", okStore + okGateway + "listen: {any: \"pod.example:8181\"}\n", []string{"listen.any", `"pod.example:8181"`, "loopback"}},
		{"data listener without port", okStore + okGateway + "listen: {any: \"127.0.0.1\"}\n", []string{"listen.any", `"127.0.0.1"`, "loopback"}},
		{"telemetry", okStore + okGateway + "listen: {telemetry: nowhere}\n", []string{"listen.telemetry", `"nowhere"`, "[host]:port"}},
		{"short lease", okStore + okGateway + "lease: {ttl: 10ms}\n", []string{"lease.ttl", `"10ms"`, "1s to 10m0s"}},
		{"no margin", okStore + okGateway + "lease: {margin: 1ms}\n", []string{"lease.margin", `"1ms"`, "300ms to 10s"}},
		{"margin over the lease", okStore + okGateway + "lease: {margin: 20s}\n", []string{"lease.margin", `"20s"`, "300ms to 10s"}},
		{"long wait", okStore + okGateway + "wait: 1h\n", []string{"wait", `"1h0m0s"`, "0s to 10m0s"}},
		{"negative drain", okStore + okGateway + "drain: -1s\n", []string{"drain", `"-1s"`, "0s to 1h0m0s"}},
		{"breaker", okStore + okGateway + "breaker: {failures: 0}\n", []string{"breaker.failures", `"0"`, "1 or more"}},
		{"breaker open", okStore + okGateway + "breaker: {open: 2h}\n", []string{"breaker.open", `"2h0m0s"`, "1ms to 1h0m0s"}},
		{"interval", okStore + okGateway + "reconcile: {interval: 1ms}\n", []string{"reconcile.interval", `"1ms"`, "100ms to 1h0m0s"}},
		{"lookup timeout", okStore + okGateway + "reconcile: {lookupTimeout: 1h}\n", []string{"reconcile.lookupTimeout", `"1h0m0s"`, "100ms to 10m0s"}},
		{"batch", okStore + okGateway + "reconcile: {batch: 0}\n", []string{"reconcile.batch", `"0"`, "1 to 10000"}},
		{"no attempts", okStore + okGateway + "attempts: 0\n", []string{"attempts", `"0"`, "1 to 20"}},
		{"no tenant", okStore + okGateway + "tenants: []\n", []string{"tenants", `""`, "at least one"}},
		{"tenant with a control character", okStore + okGateway + "tenants: [\"a\\tb\"]\n", []string{"tenants", `"a\tb"`, "control character"}},
		{"log level", okStore + okGateway + "log: {level: loud}\n", []string{"log.level", `"loud"`, "debug, info, warn, error"}},
		{"log format", okStore + okGateway + "log: {format: xml}\n", []string{"log.format", `"xml"`, "json, text"}},
		{"no gateway", okStore, []string{"gateways", `""`, "at least one"}},
		{"neither built in nor a file", okStore + "gateways: [{name: x}]\n", []string{"gateways[0].use", `""`, "either use"}},
		{"both", gateway("file: x.yaml"), []string{"gateways[0].use", `"stripe"`, "not both"}},
		{"not built in", okStore + "gateways: [{use: strip}]\n", []string{"gateways[0]", "use", `"strip"`, "built in: stripe"}},
		{"a gateway's port for all", gateway("listen: \":8100\""), []string{"gateways[0].listen", `":8100"`, "loopback"}},
		{"base URL", gateway("baseURL: \"ftp://x\""), []string{"gateways[0]", "baseURL", `"ftp://x"`, "https://host"}},
		{"base URL with a path", gateway("baseURL: \"https://x/v1\""), []string{"gateways[0]", "baseURL", `"https://x/v1"`, "without a path"}},
		{"name", gateway("name: \"Stripe EU\""), []string{"gateways[0]", "name", `"Stripe EU"`, "lower-case"}},
		{"host", gateway("hosts: [\"a b\"]"), []string{"gateways[0]", "hosts[0]", `"a b"`, "host name"}},
		{"tokens", gateway("tokens: maybe"), []string{"gateways[0]", "tokens", `"maybe"`, "required, optional, none"}},
		{"untagged", gateway("untagged: send"), []string{"gateways[0]", "untagged", `"send"`, "refuse, pass"}},
		{"attempt timeout", gateway("attemptTimeout: 2h"), []string{"gateways[0]", "attemptTimeout", `"2h0m0s"`, "0s to 1h"}},
		{"settle after", gateway("settleAfter: 1000h"), []string{"gateways[0]", "settleAfter", `"1000h0m0s"`, "0s to 720h"}},
		{"retention", gateway("keyRetention: -1h"), []string{"gateways[0]", "keyRetention", `"-1h0m0s"`, "0s to 87600h"}},
		{"retention over what is documented", gateway("keyRetention: 48h"), []string{"gateways[0]", "keyRetention", `"48h0m0s"`, "at most 24h0m0s"}},
		{"the same at its own address, spelt out", gateway("baseURL: \"https://API.stripe.com:443\", keyRetention: 48h"), []string{"gateways[0]", "keyRetention", `"48h0m0s"`, "at most 24h0m0s"}},
		{"settling under what is documented", gateway("settleAfter: 1s"), []string{"gateways[0]", "settleAfter", `"1s"`, "at least 10m0s"}},
		{"a route's settling", gateway("routes: {payouts_create: {settleAfter: 1s}}"), []string{"gateways[0]", "payouts_create.settleAfter", `"1s"`, "at least 10m0s"}},
		{"one tenant twice", okStore + okGateway + "tenants: [a, b, a]\n", []string{"tenants", `"a"`, "once"}},
		{"nothing at all", "", []string{"store.path", `""`, "SQLite file"}},
		{"a fraction", gateway("bodyLimit: 1.5"), []string{"gateways[0].bodyLimit", `"1.5"`, "whole number"}},
		{"body limit", gateway("bodyLimit: -1"), []string{"gateways[0]", "bodyLimit", `"-1"`, "1 to 67108864"}},
		{"answer limit", gateway("answerLimit: 99999999"), []string{"gateways[0]", "answerLimit", `"99999999"`, "1 to 67108864"}},
		{"route", gateway("routes: {nowhere: {bodyLimit: 1}}"), []string{"gateways[0]", "routes", `"nowhere"`, "stripe"}},
		{"route's limit", gateway("routes: {payouts_create: {bodyLimit: -2}}"), []string{"gateways[0]", "payouts_create.bodyLimit", `"-2"`, "1 to 67108864"}},
		{"account", gateway("accounts: [{name: unmapped}]"), []string{"gateways[0]", "accounts[0].name", `"unmapped"`, "not unmapped"}},
		{"account's hash", gateway("accounts: [{name: a, credentialHash: abc}]"), []string{"gateways[0]", "credentialHash", "64 lower-case"}},
		{"account's secret twice", gateway("accounts: [{name: a, credential: {env: A, file: /b}}]"), []string{"gateways[0]", "accounts[0].credential", "not both"}},
		{"one name twice", okStore + "gateways: [{use: stripe}, {use: stripe, hosts: [b.example]}]\n", []string{"gateways", `"stripe"`, "taken"}},
		{"one host twice", okStore + "gateways: [{use: stripe}, {use: stripe, name: b}]\n", []string{"gateways", "hosts", `"api.stripe.com"`, "belongs to one"}},
		{"one port twice", okStore + "gateways: [{use: stripe, listen: \"127.0.0.1:8100\"}, {use: stripe, name: b, hosts: [b.example], listen: \"127.0.0.1:8100\"}]\n",
			[]string{"gateways[1].listen", `"127.0.0.1:8100"`, "of its own"}},
		{"the common port", okStore + "gateways: [{use: stripe, listen: \"127.0.0.1:8181\"}]\n",
			[]string{"gateways[0].listen", `"127.0.0.1:8181"`, "of its own"}},
		{"unknown field", okStore + okGateway + "speed: 9\n", []string{"speed", "no such field", "attempts, breaker"}},
		{"unknown field inside", okStore + okGateway + "lease: {time: 9s}\n", []string{"lease.time", "no such field", "margin, maxTTL, ttl"}},
		{"unknown field of a gateway", gateway("retries: 3"), []string{"gateways[0].retries", "no such field", "accounts, answerLimit"}},
		{"a text for a number", okStore + okGateway + "attempts: many\n", []string{"attempts", `"many"`, "a whole number"}},
		{"a text for a small number", okStore + okGateway + "breaker: {failures: few}\n", []string{"breaker.failures", `"few"`, "a whole number"}},
		{"a number for a time", okStore + okGateway + "wait: 5\n", []string{"wait", `"5"`, "such as 90s"}},
		{"no YAML", "store: [\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.text)
			_, err := loadConfig(file)
			if err == nil {
				t.Fatal("it was taken")
			}
			msg := err.Error()
			if strings.Contains(msg, "\n") {
				t.Errorf("more than one line: %q", msg)
			}
			for _, want := range append([]string{file}, c.want...) {
				if !strings.Contains(msg, want) {
					t.Errorf("%q does not say %q", msg, want)
				}
			}
		})
	}
}

func TestMissingConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := loadConfig(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("loadConfig = %v, want an error that names the file", err)
	}
}

// A secret that was put into the file by mistake does not come out in an error.
func TestConfigurationErrorsEchoNoSecret(t *testing.T) {
	const secret = "sk_live_verysecret"
	withAccount := func(account string) string {
		return okStore + "gateways: [{use: stripe, accounts: [" + account + "]}]\n"
	}
	for _, text := range []string{
		withAccount("{name: a, credential: " + secret + "}"),
		withAccount("{name: a, credential: {value: " + secret + "}}"),
		withAccount("{name: a, lookupCredential: {env: [" + secret + "]}}"),
		withAccount("{name: a, credentialHash: " + secret + "}"),
		okStore + "gateways: [{use: stripe, credential: " + secret + "}]\n",
		okStore + "gateways: [{use: stripe}]\noperators: [{name: ada, token: " + secret + "}]\n",
		okStore + "gateways: [{use: stripe}]\noperators: [{name: ada, token: {env: [" + secret + "]}}]\n",
		okStore + "gateways: [{use: stripe}]\nevents: {url: \"https://shop.example/\", secrets: [" + secret + "]}\n",
		okStore + "gateways: [{use: stripe}]\nkeys: " + secret + "\n",
		okStore + "gateways: [{use: stripe, baseURL: \"https://" + secret + "@api.example\"}]\n",
		okStore + "gateways:\n  - use: stripe\n    apiKey: " + secret + "\n    more: [\n",
	} {
		_, err := loadConfig(write(t, text))
		if err == nil {
			t.Errorf("taken: %s", text)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds the secret: %v", err)
		}
	}
}
