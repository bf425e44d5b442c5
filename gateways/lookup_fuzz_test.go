package gateways

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// FuzzLookup gives every built-in lookup an answer of any bytes. What is found carries our reference or is the object that was asked
// for, and no list that shows our reference counts as a miss.
func FuzzLookup(f *testing.F) {
	type target struct {
		g *Gateway
		r *Route
	}
	var targets []target
	for _, g := range Builtin() {
		if err := g.Validate(); err != nil {
			f.Fatal(err)
		}
		for _, r := range g.Routes {
			if r.Lookup != nil {
				targets = append(targets, target{g, r})
			}
		}
	}
	const ref, id = "REFERENCE-OF-OURS", "ID-OF-OURS"
	for i := range targets {
		f.Add(uint8(i), false, []byte(list(false, intent(id, ref, "succeeded", ""))))
		f.Add(uint8(i), true, []byte(`{"id":"`+id+`","status":"COMPLETED","reference":"`+ref+`","amount":1000,"currency":"eur"}`))
		f.Add(uint8(i), false, []byte(`{"payments":[{"id":"`+id+`","status":"paid_out","metadata":{"fence_ref":"`+ref+`"}}],"meta":{"cursors":{"after":null}}}`))
		f.Add(uint8(i), false, []byte(`{"total_count":1,"data":[{"id":"`+id+`","reference":"`+ref+`","status":"Captured"}]}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, named bool, body []byte) {
		x := targets[int(which)%len(targets)]
		facts := claims.Facts{Gateway: x.g.Name, Route: x.r.Name, Reference: ref, Lookup: map[string]string{}}
		for name := range x.r.Params {
			facts.Lookup[name] = map[string]string{"amount": "1000", "currency": "eur"}[name]
			if facts.Lookup[name] == "" {
				facts.Lookup[name] = id
			}
		}
		if named {
			facts = WithObject(facts, id)
		}
		found, err := x.g.AskAt(t.Context(), facts, begun, asked, func(context.Context, string) (*claims.Answer, error) {
			return reply(200, string(body), "Date", later.Format(http.TimeFormat), "Content-Type", "application/json"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		shows := bytes.Contains(body, []byte(ref)) || bytes.Contains(body, []byte(id)) || bytes.Contains(body, []byte(`\u`))
		switch {
		case (found.Kind == claims.FoundDone || found.Kind == claims.FoundFailed) && !shows:
			t.Errorf("%s %s: %v in %s", x.g.Name, x.r.Name, found, body)
		case found.Kind == claims.Missed && named:
			t.Errorf("%s %s: a miss of what the gateway has named, in %s", x.g.Name, x.r.Name, body)
		case found.Kind == claims.FoundDone && found.Answer != nil && found.Answer.Status/100 != 2:
			t.Errorf("%s %s: an answer of status %d", x.g.Name, x.r.Name, found.Answer.Status)
		}
	})
}
