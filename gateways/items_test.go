package gateways

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// TestSameObjectTwice: an object that is listed twice is one success, its last reading counts; two ids are two.
func TestSameObjectTwice(t *testing.T) {
	paid, processing := intent("pi_1", "REF", "succeeded", ""), intent("pi_1", "REF", "processing", "")
	other := intent("pi_2", "REF", "succeeded", "")
	stranger := intent("pi_9", "X", "succeeded", "")
	for name, tt := range map[string]struct {
		pages []string
		kind  claims.FindingKind
		pay   string
	}{
		"on one page":                {[]string{list(false, paid, paid)}, claims.FoundDone, "done"},
		"on two pages":               {[]string{list(true, paid, stranger), list(false, paid)}, claims.FoundDone, "done"},
		"it went on":                 {[]string{list(true, processing, stranger), list(false, paid)}, claims.FoundDone, "done"},
		"one of them not listed":     {[]string{list(false, paid, intent("pi_1", "REF", "new", ""))}, claims.CouldNotTell, ""},
		"one of them another amount": {[]string{list(false, paid, strings.Replace(paid, "1000", "1001", 1))}, claims.Contradiction, ""},
		"and another object":         {[]string{list(false, paid, paid, other)}, claims.Contradiction, ""},
		"another object between":     {[]string{list(false, paid, other, paid)}, claims.Contradiction, ""},
	} {
		s := &script{t: t, pages: tt.pages, date: later}
		got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create", "amount", "1000"), begun, asked, s.ask)
		if err != nil || got.Kind != tt.kind || got.Payment != tt.pay {
			t.Errorf("%s: %s %q (%s) %v", name, got.Kind, got.Payment, got.Reason, err)
		}
	}
	// Items without an id are never one.
	g := generic(t)
	nameless := `{"reference":"REF","state":"captured"}`
	g.route("charge").Lookup.Each = nil
	s := &script{t: t, pages: []string{`{"items":[` + nameless + `,` + nameless + `]}`}, date: later}
	if got, _ := g.AskAt(t.Context(), facts("charge"), begun, asked, s.ask); got.Kind != claims.Contradiction {
		t.Errorf("without ids: %+v", got)
	}
}

// TestEachItem: an item that would be no answer of the call is no match that can be read.
func TestEachItem(t *testing.T) {
	paid := intent("pi_1", "REF", "succeeded", "")
	for name, tt := range map[string]struct {
		item string
		kind claims.FindingKind
	}{
		"as declared":    {paid, claims.FoundDone},
		"error null":     {strings.Replace(paid, "{", `{"error":null,`, 1), claims.FoundDone},
		"another object": {strings.Replace(paid, `"payment_intent"`, `"charge"`, 1), claims.CouldNotTell},
		"no object":      {strings.Replace(paid, `"object":"payment_intent",`, "", 1), claims.CouldNotTell},
		"no id":          {strings.Replace(paid, `"id":"pi_1",`, "", 1), claims.CouldNotTell},
		"empty id":       {strings.Replace(paid, `"pi_1"`, `""`, 1), claims.CouldNotTell},
		"an error":       {strings.Replace(paid, "{", `{"error":{"code":"x"},`, 1), claims.CouldNotTell},
		"deleted":        {strings.Replace(paid, "{", `{"deleted":true,`, 1), claims.CouldNotTell},
		"another's":      {`{"id":"pi_1","object":"charge","deleted":true,"metadata":{"fence_ref":"X"}}`, claims.Missed},
	} {
		s := &script{t: t, pages: []string{list(false, tt.item)}, date: later}
		if got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask); err != nil || got.Kind != tt.kind {
			t.Errorf("%s: %s (%s) %v", name, got.Kind, got.Reason, err)
		}
	}
	// A failure that is no answer does not prove one.
	failed := strings.Replace(intent("pi_1", "REF", "requires_payment_method", lastError), `"payment_intent"`, `"x"`, 1)
	s := &script{t: t, pages: []string{list(false, failed)}, date: later}
	if got, _ := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("%+v", got)
	}
	for _, r := range stripe(t).Routes {
		if l := r.Lookup; l != nil && l.Kind == KindList {
			s := &script{t: t, pages: []string{list(false, `{"id":"x","object":"customer","status":"succeeded","metadata":{"fence_ref":"REF"}}`)}, date: later}
			if got, _ := stripe(t).AskAt(t.Context(), facts(r.Name, "id", "x"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
				t.Errorf("%s took a customer: %+v", r.Name, got)
			}
		}
	}
	// From a file, too.
	s = &script{t: t, pages: []string{`{"items":[{"id":"c1","reference":"REF","state":"captured","test":true}]}`}, date: later}
	if got, _ := generic(t).AskAt(t.Context(), facts("charge"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("each of the file: %+v", got)
	}
}

// TestSinceByBothClocks: a wall clock that was wrong at the claim and was set right since does not hide the object.
func TestSinceByBothClocks(t *testing.T) {
	at := func(store, wall time.Duration) claims.Now {
		return claims.Now{Store: started.Add(store), Wall: started.Add(wall)}
	}
	for name, tt := range map[string]struct {
		first, asked claims.Now
		since        time.Duration
	}{
		"both right":                  {at(0, 0), at(time.Hour, time.Hour), 0},
		"ahead then, right now":       {at(0, 30*time.Minute), at(time.Hour, time.Hour), 0},
		"behind then, right now":      {at(0, -30*time.Minute), at(time.Hour, time.Hour), -30 * time.Minute},
		"the store's clock stood":     {at(0, 0), at(time.Minute, time.Hour), 0},
		"the store's clock went back": {at(0, 0), at(-time.Minute, time.Hour), 0},
		"no store time":               {claims.Now{Wall: started}, at(time.Hour, time.Hour), 0},
	} {
		s := &script{t: t, pages: []string{list(false)}, date: tt.asked.Wall}
		got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), tt.first, tt.asked, s.ask)
		if err != nil || got.Kind != claims.Missed {
			t.Fatalf("%s: %+v %v", name, got, err)
		}
		if want := fmt.Sprintf("=%d&", started.Add(tt.since-10*time.Minute).Unix()); !strings.Contains(s.asked[0], want) {
			t.Errorf("%s: asked %s", name, s.asked[0])
		}
	}
}
