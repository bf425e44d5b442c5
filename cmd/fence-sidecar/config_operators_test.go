package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

func TestOperatorsConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, yaml string
		want       []string // field, value, what is allowed; none: it loads
	}{
		{"none", "[]", nil},
		{"two", "[{name: ada, token: {env: A}}, {name: bob, token: {file: /b}}]", nil},
		{"without a name", "[{token: {env: A}}]", []string{"operators[0].name", `""`, "1 to 100"}},
		{"a long name", "[{name: " + strings.Repeat("a", 101) + ", token: {env: A}}]", []string{"operators[0].name", "1 to 100"}},
		{"a control character", `[{name: "a\nb", token: {env: A}}]`, []string{"operators[0].name", "control characters"}},
		{"without a token", "[{name: ada}]", []string{"operators[0].token", "either env or file"}},
		{"two places", "[{name: ada, token: {env: A, file: /b}}]", []string{"operators[0].token", `"A /b"`, "either env or file"}},
		{"no place", "[{name: ada, token: here}]", []string{"operators[0].token", "map of fields"}},
		{"one name twice", "[{name: ada, token: {env: A}}, {name: ada, token: {env: B}}]", []string{"operators[1].name", `"ada"`, "once"}},
		{"one token twice", "[{name: ada, token: {env: A}}, {name: bob, token: {env: A}}]", []string{"operators[1].name", `"bob"`, "of its own"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadConfig(write(t, okStore+okGateway+"operators: "+tt.yaml+"\n"))
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in %v", w, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is of several lines: %v", err)
			}
		})
	}
}

// A token that cannot be used is told at the start, by the operator's name.
func TestOperatorsAreWarnedOf(t *testing.T) {
	dir := t.TempDir()
	file := func(name, token string) gateways.Secret {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		return gateways.Secret{File: p}
	}
	var logged strings.Builder
	c := &Config{Operators: []Operator{
		{"good", file("good", "0123456789abcdef\n")}, {"short", file("short", "0123456789abcde\n")}, {"gone", gateways.Secret{File: filepath.Join(dir, "gone")}},
	}}
	got := c.operators(slog.New(slog.NewTextHandler(&logged, nil)))
	if n := strings.Count(logged.String(), "cannot be used"); n != 2 || strings.Contains(logged.String(), "operator=good") || strings.Contains(logged.String(), "0123456789") {
		t.Errorf("logged: %s", logged.String())
	}
	if token, err := got[0].Token(); len(got) != 3 || got[0].Name != "good" || token != "0123456789abcdef" || err != nil {
		t.Errorf("%d operators, the first %q with %q, %v", len(got), got[0].Name, token, err)
	}
}
