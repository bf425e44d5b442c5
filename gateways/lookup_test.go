package gateways

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var (
	started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	begun   = claims.Now{Store: started, Wall: started}
	later   = started.Add(20 * time.Minute)
	asked   = claims.Now{Store: later, Wall: later}
)

// script answers targets in order; it fails on one that is not expected.
type script struct {
	t     *testing.T
	pages []string // answers
	date  time.Time
	asked []string
	mod   func(*claims.Answer)
	err   error
}

func (s *script) ask(_ context.Context, target string) (*claims.Answer, error) {
	s.asked = append(s.asked, target)
	if s.err != nil {
		return nil, s.err
	}
	if len(s.asked) > len(s.pages) {
		s.t.Fatalf("asked once more: %s", target)
	}
	a := reply(200, s.pages[len(s.asked)-1], "Date", s.date.Format(http.TimeFormat), "Content-Type", "application/json")
	if s.mod != nil {
		s.mod(a)
	}
	return a, nil
}

func facts(route string, kv ...string) claims.Facts {
	f := claims.Facts{Gateway: "stripe", Route: route, Reference: "REF", Lookup: map[string]string{}}
	for i := 0; i+1 < len(kv); i += 2 {
		f.Lookup[kv[i]] = kv[i+1]
	}
	return f
}

func list(more bool, items ...string) string {
	return fmt.Sprintf(`{"object":"list","has_more":%v,"data":[%s]}`, more, strings.Join(items, ","))
}

func intent(id, ref, status, rest string) string {
	return fmt.Sprintf(`{"id":%q,"object":"payment_intent","metadata":{"fence_ref":%q},"status":%q,"amount":1000,"currency":"eur"%s}`, id, ref, status, rest)
}

const lastError = `,"last_payment_error":{"code":"card_declined"}`

func TestAskList(t *testing.T) {
	paid := intent("pi_1", "REF", "succeeded", "")
	tests := []struct {
		name  string
		pages []string
		kind  claims.FindingKind
		pay   string
	}{
		{"nothing", []string{list(false)}, claims.Missed, ""},
		{"others only", []string{list(false, intent("pi_9", "OTHER", "succeeded", ""), `{"id":"pi_8"}`)}, claims.Missed, ""},
		{"paid", []string{list(false, intent("pi_9", "OTHER", "succeeded", ""), paid)}, claims.FoundDone, "done"},
		{"on the second page", []string{list(true, intent("pi_9", "OTHER", "succeeded", "")), list(false, paid)}, claims.FoundDone, "done"},
		{"processing", []string{list(false, intent("pi_1", "REF", "processing", ""))}, claims.FoundDone, "pending"},
		{"3-D Secure", []string{list(false, intent("pi_1", "REF", "requires_action", ""))}, claims.FoundDone, "pending"},
		{"created, not yet confirmed", []string{list(false, intent("pi_1", "REF", "requires_payment_method", `,"last_payment_error":null`))}, claims.CouldNotTell, ""},
		{"declined", []string{list(false, intent("pi_1", "REF", "requires_payment_method", lastError))}, claims.FoundFailed, "failed"},
		{"cancelled after a decline", []string{list(false, intent("pi_1", "REF", "canceled", lastError))}, claims.CouldNotTell, ""},
		{"made, then cancelled", []string{list(false, intent("pi_1", "REF", "canceled", ""))}, claims.CouldNotTell, ""},
		{"a failure and a success", []string{list(false, intent("pi_2", "REF", "requires_payment_method", lastError), paid)}, claims.FoundDone, "done"},
		{"two successes", []string{list(false, paid, intent("pi_2", "REF", "succeeded", ""))}, claims.Contradiction, ""},
		{"two successes on two pages", []string{list(true, paid), list(false, intent("pi_2", "REF", "processing", ""))}, claims.Contradiction, ""},
		{"a status that is not listed", []string{list(false, intent("pi_1", "REF", "new_status", ""))}, claims.CouldNotTell, ""},
		{"a success and one not listed", []string{list(false, paid, intent("pi_2", "REF", "new_status", ""))}, claims.CouldNotTell, ""},
		{"another amount", []string{list(false, strings.Replace(paid, "1000", "1001", 1))}, claims.Contradiction, ""},
		{"another amount, status not listed", []string{list(false, strings.NewReplacer("1000", "1001", "succeeded", "new").Replace(paid))}, claims.Contradiction, ""},
		{"another currency", []string{list(false, strings.Replace(paid, `"eur"`, `"usd"`, 1))}, claims.Contradiction, ""},
		{"currency in capitals", []string{list(false, strings.Replace(paid, `"eur"`, `"EUR"`, 1))}, claims.FoundDone, "done"},
		{"amount spelt otherwise", []string{list(false, strings.Replace(paid, "1000", "1.0e3", 1))}, claims.FoundDone, "done"},
		{"no amount", []string{list(false, strings.Replace(paid, `"amount":1000,`, "", 1))}, claims.CouldNotTell, ""},
		{"no currency", []string{list(false, strings.Replace(paid, `,"currency":"eur"`, "", 1))}, claims.CouldNotTell, ""},
		{"not JSON", []string{"<html>"}, claims.CouldNotTell, ""},
		{"cut JSON", []string{list(false, paid)[:40]}, claims.CouldNotTell, ""},
		{"no list", []string{`{"object":"list","has_more":false}`}, claims.CouldNotTell, ""},
		{"another object", []string{strings.Replace(list(false), `"list"`, `"search_result"`, 1)}, claims.CouldNotTell, ""},
		{"has_more is missing", []string{`{"object":"list","data":[]}`}, claims.CouldNotTell, ""},
		{"has_more is a text", []string{`{"object":"list","has_more":"false","data":[]}`}, claims.CouldNotTell, ""},
		{"more, but nothing to go on from", []string{list(true)}, claims.CouldNotTell, ""},
		{"the same page again", []string{list(true, paid), list(true, paid)}, claims.CouldNotTell, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{t: t, pages: tt.pages, date: later}
			got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create", "amount", "1000", "currency", "eur", "confirm", "true"), begun, asked, s.ask)
			if err != nil || got.Kind != tt.kind || tt.pay != "" && got.Payment != tt.pay || got.Reason == "" {
				t.Errorf("%s %q (%s) %v", got.Kind, got.Payment, got.Reason, err)
			}
			if len(s.asked) != len(tt.pages) {
				t.Errorf("asked %v", s.asked)
			}
			if (got.Kind == claims.FoundDone) != (got.Answer != nil) {
				t.Errorf("answer %v", got.Answer)
			}
		})
	}
}

// TestAskTargets: the bound by time, the paging, and the answer made from the match.
func TestAskTargets(t *testing.T) {
	item := intent("pi_1", "REF", "succeeded", `,"x":1.50`)
	s := &script{t: t, pages: []string{list(true, intent("pi_9", "A", "succeeded", "")), list(false, item)}, date: later}
	got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask)
	if err != nil || got.Kind != claims.FoundDone {
		t.Fatalf("%+v %v", got, err)
	}
	since := fmt.Sprint(started.Add(-10 * time.Minute).Unix())
	want := []string{"/v1/payment_intents?created%5Bgte%5D=" + since + "&limit=100", "/v1/payment_intents?created%5Bgte%5D=" + since + "&limit=100&starting_after=pi_9"}
	if fmt.Sprint(s.asked) != fmt.Sprint(want) {
		t.Errorf("asked %v, want %v", s.asked, want)
	}
	a := got.Answer
	if a.Status != 200 || string(a.Body) != item || len(a.Header) != 1 || a.Header[0].Value != "application/json" {
		t.Errorf("%+v %s", a, a.Body)
	}
}

func TestAskCannotTell(t *testing.T) {
	date := func(v ...string) func(*claims.Answer) {
		return func(a *claims.Answer) {
			a.Header = nil
			for _, d := range v {
				a.Header = append(a.Header, claims.Field{Name: "Date", Value: d})
			}
		}
	}
	at := func(d time.Duration) func(*claims.Answer) { return date(later.Add(d).Format(http.TimeFormat)) }
	tests := map[string]struct {
		mod  func(*claims.Answer)
		kind claims.FindingKind
	}{
		"as declared":     {func(*claims.Answer) {}, claims.Missed},
		"clock 4m behind": {at(-4 * time.Minute), claims.Missed},
		"clock 4m ahead":  {at(4 * time.Minute), claims.Missed},
		"clock 6m behind": {at(-6 * time.Minute), claims.CouldNotTell},
		"clock 6m ahead":  {at(6 * time.Minute), claims.CouldNotTell},
		"no Date":         {date(), claims.CouldNotTell},
		"two Dates":       {date(later.Format(http.TimeFormat), later.Format(http.TimeFormat)), claims.CouldNotTell},
		"Date is no date": {date("yesterday"), claims.CouldNotTell},
		"from a cache":    {func(a *claims.Answer) { a.Header = append(a.Header, claims.Field{Name: "Age", Value: "3"}) }, claims.CouldNotTell},
		"Age 0":           {func(a *claims.Answer) { a.Header = append(a.Header, claims.Field{Name: "Age", Value: "0"}) }, claims.Missed},
		"status 500":      {func(a *claims.Answer) { a.Status = 500 }, claims.CouldNotTell},
		"status 404":      {func(a *claims.Answer) { a.Status = 404 }, claims.CouldNotTell},
		"status 401":      {func(a *claims.Answer) { a.Status = 401 }, claims.CouldNotTell},
		"status 206":      {func(a *claims.Answer) { a.Status = 206 }, claims.CouldNotTell},
		"unreadable coding": {func(a *claims.Answer) {
			a.Header = append(a.Header, claims.Field{Name: "Content-Encoding", Value: "br"})
		}, claims.CouldNotTell},
		"zipped, which will": {func(a *claims.Answer) {
			a.Body = []byte(zipped(string(a.Body)))
			a.Header = append(a.Header, claims.Field{Name: "Content-Encoding", Value: "gzip"})
		}, claims.Missed},
	}
	for name, tt := range tests {
		s := &script{t: t, pages: []string{list(false)}, date: later, mod: tt.mod}
		got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask)
		if err != nil || got.Kind != tt.kind {
			t.Errorf("%s: %s (%s) %v", name, got.Kind, got.Reason, err)
		}
	}
	ask := func(f claims.Facts, first claims.Now, s *script) (claims.Finding, error) {
		return stripe(t).AskAt(t.Context(), f, first, asked, s.ask)
	}
	noRef := facts("payment_intents_create")
	noRef.Reference = ""
	for name, f := range map[string]claims.Facts{"no reference": noRef, "no lookup": facts("post"), "unknown route": facts("nope"), "no id": facts("payment_intents_confirm")} {
		if got, err := ask(f, begun, &script{t: t}); err != nil || got.Kind != claims.CouldNotTell {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	if got, _ := ask(facts("payment_intents_create"), claims.Now{}, &script{t: t}); got.Kind != claims.CouldNotTell {
		t.Errorf("no start: %+v", got)
	}
	boom := errors.New("boom")
	if got, err := ask(facts("payment_intents_create"), begun, &script{t: t, err: boom}); !errors.Is(err, boom) || got.Kind != claims.CouldNotTell {
		t.Errorf("%+v %v", got, err)
	}
	ahead := claims.Now{Store: later, Wall: later.Add(time.Hour)}
	if got, _ := ask(facts("payment_intents_create"), ahead, &script{t: t, pages: []string{list(false)}, date: later}); got.Kind != claims.CouldNotTell {
		t.Errorf("started an hour after the answer: %+v", got)
	}
	nothing := func(context.Context, string) (*claims.Answer, error) { return nil, nil }
	if got, err := stripe(t).AskAt(t.Context(), facts("payment_intents_create"), begun, asked, nothing); err != nil || got.Kind != claims.CouldNotTell {
		t.Errorf("%+v %v", got, err)
	}
}

// TestAskNow: Ask takes the gateway's clock for the time of asking.
func TestAskNow(t *testing.T) {
	g := stripe(t)
	g.Now = func() time.Time { return later }
	s := &script{t: t, pages: []string{list(false)}, date: later}
	if got, _ := g.Ask(t.Context(), facts("payment_intents_create"), begun, s.ask); got.Kind != claims.Missed {
		t.Errorf("%+v", got)
	}
}

func TestPageCap(t *testing.T) {
	g := stripe(t)
	g.route("payment_intents_create").Lookup.Pages.Max = 2
	paid := intent("pi_1", "REF", "succeeded", "")
	s := &script{t: t, pages: []string{list(true, paid), list(true, intent("pi_2", "X", "succeeded", ""))}, date: later}
	if got, _ := g.AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("%+v", got)
	}
	s = &script{t: t, pages: []string{list(true, paid), list(true, intent("pi_2", "REF", "succeeded", ""))}, date: later}
	if got, _ := g.AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask); got.Kind != claims.Contradiction {
		t.Errorf("%+v", got)
	}
}

// A poll of a payment reads five pages at most; a lookup of a doubt reads on.
func TestAskPayment_pages(t *testing.T) {
	long := func() *script {
		s := &script{t: t, date: later}
		for i := range 6 {
			s.pages = append(s.pages, list(i < 5, intent(fmt.Sprint("pi_", i), map[bool]string{true: "REF", false: "X"}[i == 5], "succeeded", "")))
		}
		return s
	}
	g, f := stripe(t), facts("payment_intents_create")
	s := long()
	if got, err := g.AskPayment(t.Context(), f, begun, asked, s.ask); err != nil || got.Kind != claims.CouldNotTell || len(s.asked) != 5 {
		t.Errorf("%+v, %v, after %d pages", got, err, len(s.asked))
	}
	s = long()
	if got, err := g.AskAgain(t.Context(), f, begun, asked, s.ask); err != nil || got.Kind != claims.FoundDone || len(s.asked) != 6 {
		t.Errorf("%+v, %v, after %d pages", got, err, len(s.asked))
	}
	s = &script{t: t, pages: []string{list(true, intent("pi_1", "X", "succeeded", "")), list(false, intent("pi_2", "REF", "succeeded", ""))}, date: later}
	if got, err := g.AskPayment(t.Context(), f, begun, asked, s.ask); err != nil || got.Payment != "done" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAskObject(t *testing.T) {
	pi := func(status, rest string) string {
		return fmt.Sprintf(`{"id":"x_1","object":"payment_intent","status":%q%s}`, status, rest)
	}
	obj := func(kind, rest string) string { return fmt.Sprintf(`{"id":"x_1","object":%q,%s}`, kind, rest) }
	ours := `,"metadata":{"fence_capture_ref":"REF"}`
	tests := []struct {
		route, name, body string
		kind              claims.FindingKind
		pay               string
	}{
		{"payment_intents_confirm", "paid", pi("succeeded", ""), claims.FoundDone, "done"},
		{"payment_intents_confirm", "held", pi("requires_capture", ""), claims.FoundDone, "pending"},
		{"payment_intents_confirm", "processing", pi("processing", ""), claims.FoundDone, "pending"},
		{"payment_intents_confirm", "3-D Secure", pi("requires_action", ""), claims.FoundDone, "pending"},
		{"payment_intents_confirm", "unchanged", pi("requires_confirmation", ""), claims.CouldNotTell, ""},
		{"payment_intents_confirm", "unchanged, no method", pi("requires_payment_method", ""), claims.CouldNotTell, ""},
		{"payment_intents_confirm", "some decline", pi("requires_payment_method", lastError), claims.CouldNotTell, ""},
		{"payment_intents_confirm", "cancelled", pi("canceled", ""), claims.CouldNotTell, ""},
		{"payment_intents_confirm", "another object", strings.Replace(pi("succeeded", ""), "x_1", "x_2", 1), claims.CouldNotTell, ""},
		{"payment_intents_confirm", "another kind", obj("charge", `"status":"succeeded"`), claims.CouldNotTell, ""},
		{"payment_intents_capture", "ours", pi("succeeded", `,"amount_received":5`+ours), claims.FoundDone, "done"},
		{"payment_intents_capture", "ours, another amount", pi("succeeded", `,"amount_received":6`+ours), claims.Contradiction, ""},
		{"payment_intents_capture", "moved without us", pi("succeeded", `,"amount_received":5`), claims.CouldNotTell, ""},
		{"payment_intents_capture", "moved by another", pi("succeeded", `,"amount_received":5,"metadata":{"fence_capture_ref":"X"}`), claims.CouldNotTell, ""},
		{"payment_intents_capture", "unchanged", pi("requires_capture", `,"amount_received":0`), claims.Missed, ""},
		{"payment_intents_capture", "captured in part", pi("requires_capture", `,"amount_received":3`), claims.CouldNotTell, ""},
		{"payment_intents_capture", "marked, not moved", pi("requires_capture", `,"amount_received":0`+ours), claims.CouldNotTell, ""},
		{"payment_intents_cancel", "cancelled", pi("canceled", ""), claims.FoundDone, "done"},
		{"payment_intents_cancel", "unchanged", pi("requires_capture", ""), claims.Missed, ""},
		{"payment_intents_cancel", "processing", pi("processing", ""), claims.CouldNotTell, ""},
		{"payment_intents_cancel", "paid", pi("succeeded", ""), claims.CouldNotTell, ""},
		{"charges_capture", "captured", obj("charge", `"captured":true,"amount":9,"amount_captured":5,"status":"succeeded"`), claims.FoundDone, "done"},
		{"charges_capture", "another amount captured", obj("charge", `"captured":true,"amount":9,"amount_captured":9,"status":"succeeded"`), claims.Contradiction, ""},
		{"charges_capture", "no amount captured", obj("charge", `"captured":true,"amount":9,"status":"succeeded"`), claims.CouldNotTell, ""},
		{"charges_capture", "unchanged", obj("charge", `"captured":false,"refunded":false,"amount_refunded":0,"status":"succeeded"`), claims.Missed, ""},
		{"charges_capture", "expired", obj("charge", `"captured":false,"refunded":true,"amount_refunded":5,"status":"succeeded"`), claims.CouldNotTell, ""},
		{"payouts_cancel", "cancelled", obj("payout", `"status":"canceled"`), claims.FoundDone, "done"},
		{"payouts_cancel", "unchanged", obj("payout", `"status":"pending"`), claims.Missed, ""},
		{"payouts_cancel", "paid", obj("payout", `"status":"paid"`), claims.CouldNotTell, ""},
		{"payouts_reverse", "reversed", obj("payout", `"status":"paid","reversed_by":"po_2"`), claims.FoundDone, "pending"},
		{"payouts_reverse", "unchanged", obj("payout", `"status":"paid","reversed_by":null`), claims.Missed, ""},
		{"topups_cancel", "cancelled", obj("topup", `"status":"canceled"`), claims.FoundDone, "done"},
		{"refunds_cancel", "unchanged", obj("refund", `"status":"requires_action"`), claims.Missed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.route+"/"+tt.name, func(t *testing.T) {
			s := &script{t: t, pages: []string{tt.body}, date: later}
			f := facts(tt.route, "id", "x_1")
			if strings.HasSuffix(tt.route, "capture") {
				f.Lookup["amount"] = "5"
			}
			got, err := stripe(t).AskAt(t.Context(), f, begun, asked, s.ask)
			if err != nil || got.Kind != tt.kind || tt.pay != "" && got.Payment != tt.pay {
				t.Errorf("%s %q (%s) %v", got.Kind, got.Payment, got.Reason, err)
			}
			if !strings.HasSuffix(s.asked[0], "/x_1") {
				t.Errorf("asked %s", s.asked)
			}
		})
	}
}

func TestAskGeneric(t *testing.T) {
	g := generic(t)
	item := `{"id":"c1","reference":"REF","state":"captured","money":{"amount":"10.00","currency":"EUR"}}`
	s := &script{t: t, pages: []string{`{"items":[` + item + `]}`}, date: later}
	f := facts("charge", "amount", "10", "currency", "eur")
	f.Reference = "a b&c"
	s.pages[0] = strings.Replace(s.pages[0], "REF", "a b&c", 1)
	got, err := g.AskAt(t.Context(), f, begun, asked, s.ask)
	if err != nil || got.Kind != claims.FoundDone || got.Answer.Status != 201 || got.Payment != "done" {
		t.Errorf("%+v %v", got, err)
	}
	if want := "/charges?reference=a+b%26c&from=2026-03-01T11%3A50%3A00Z"; s.asked[0] != want {
		t.Errorf("asked %s, want %s", s.asked[0], want)
	}
	f.Lookup[appReference] = "app" // the app's own reference may name another call
	s = &script{t: t, pages: s.pages, date: later}
	if got, _ := g.AskAt(t.Context(), f, begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("an app's reference was believed: %+v", got)
	}
	s = &script{t: t, pages: []string{`{"items":[` + strings.Replace(item, "captured", "locked", 1) + `]}`}, date: later}
	if got, _ := g.AskAt(t.Context(), facts("charge"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("locked: %+v", got)
	}
	// A get by reference where a 404 is declared to be a miss.
	l := g.route("charge").Lookup
	*l = Lookup{Kind: KindGet, Target: "/charges/{reference}", Reference: "/reference", NotFound: CaseMissed, Cases: l.Cases, Proves: true}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	s = &script{t: t, pages: []string{`{}`}, date: later, mod: func(a *claims.Answer) { a.Status = 404 }}
	if got, _ := g.AskAt(t.Context(), facts("charge"), begun, asked, s.ask); got.Kind != claims.Missed {
		t.Errorf("404: %+v", got)
	}
	s = &script{t: t, pages: []string{`<html>`}, date: later, mod: func(a *claims.Answer) { a.Status = 404 }}
	if got, _ := g.AskAt(t.Context(), facts("charge"), begun, asked, s.ask); got.Kind != claims.CouldNotTell {
		t.Errorf("a 404 of something else: %+v", got)
	}
}

func TestSameAmount(t *testing.T) {
	for _, tt := range []struct {
		a, b           string
		same, readable bool
	}{
		{"10", "10.00", true, true}, {"0.1", "0.10", true, true}, {"1000", "1e3", true, true}, {"10", "10.01", false, true},
		{"0.30000000000000000001", "0.3", false, true}, {"-5", "5", false, true}, {"9007199254740993", "9007199254740992", false, true},
		{"10,00", "10", false, false}, {"", "10", false, false}, {"1e999999999", "1", false, false}, {"0x10", "16", false, false}, {"1/2", "0.5", false, false},
	} {
		if same, readable := sameAmount(tt.a, tt.b); same != tt.same || readable != tt.readable {
			t.Errorf("%s and %s: %v %v", tt.a, tt.b, same, readable)
		}
	}
}
