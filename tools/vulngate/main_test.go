package main

import (
	"strings"
	"testing"
)

const config = `{"config":{"go_version":"go1.26.8","db_last_modified":"2026-11-05T00:00:00Z"}}`

func TestGate(t *testing.T) {
	std := `{"osv":{"id":"GO-1","summary":"bad"}} {"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","package":"net/http","function":"Serve"}]}}`
	for _, c := range []struct {
		name, in string
		ok       bool
		want     string
	}{
		{"nothing found", config, true, "0 in the standard library"},
		{"standard library", config + std, true, "note GO-1 stdlib (called, fixed in 1.26.9): bad"},
		{"another module, called", config + `{"finding":{"osv":"GO-2","trace":[{"module":"example.com/m","package":"p","function":"F"}]}}`, false, "FAIL GO-2 example.com/m (called, no fix yet)"},
		{"another module, required", config + `{"finding":{"osv":"GO-2","trace":[{"module":"example.com/m"}]}}`, false, "FAIL GO-2 example.com/m (required only"},
		{"both", config + std + `{"finding":{"osv":"GO-2","trace":[{"module":"example.com/m"}]}}`, false, "1 in the standard library"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := gate(strings.NewReader(c.in), &out)
			if err != nil || ok != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("gate = %v, %v; want %v; output:\n%s", ok, err, c.ok, out.String())
			}
		})
	}
}

// A checker that did not run must not look like one that found nothing.
func TestGateWantsARun(t *testing.T) {
	for _, in := range []string{"", "govulncheck: no such flag", config[:20]} {
		var out strings.Builder
		if ok, err := gate(strings.NewReader(in), &out); err == nil || ok {
			t.Errorf("gate(%q) = %v, %v; want an error", in, ok, err)
		}
	}
}
