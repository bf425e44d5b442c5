package gateways

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// maxEvents bounds the events of one delivery.
const maxEvents = 500

// Notice is one event of a delivery that was verified.
type Notice struct {
	ID         string   // the event's own, or a digest of it
	References []string // that the event carries where ours are
	Object     string   // the gateway's own id of the object that the event is about
	Amount     string   // as the event spells it; "": unsaid
	Currency   string
	// Signed says that a signature covers all of it. One that is not signed only has the gateway asked.
	Signed bool
	Answer *claims.Answer // of a call that succeeded; nil: none

	readings []reads
}

// reads is what a case that holds says of the calls of its routes.
type reads struct {
	Routes  []string `json:"routes,omitempty"`
	Outcome string   `json:"outcome,omitempty"`
	Payment string   `json:"payment,omitempty"`
	// Call is what the call's own parameters must be.
	Call map[string][]string `json:"call,omitempty"`
}

func (r reads) names(route string) bool { return slices.Contains(r.Routes, route) }

// called reports whether a call was as the case says.
func (r reads) called(lookup map[string]string) bool {
	for name, texts := range r.Call {
		if !slices.Contains(texts, lookup[name]) {
			return false
		}
	}
	return true
}

// Reading is what the notice says of a call of a route, without parameters. See ReadingOf.
func (n *Notice) Reading(route string) (o claims.Outcome, payment string, ok bool) {
	return n.ReadingOf(claims.Facts{Route: route}, false)
}

// ReadingOf is what the notice says of a call. ok is false where it says nothing: then the gateway is to be asked. byObject: the call
// was found by its object alone. Several calls share one object (an intent, its capture, its cancellation), so that then only a
// case which names the route says something.
func (n *Notice) ReadingOf(f claims.Facts, byObject bool) (o claims.Outcome, payment string, ok bool) {
	return n.read(func(r reads) bool {
		return (r.names(f.Route) || len(r.Routes) == 0 && !byObject) && r.called(f.Lookup)
	})
}

func (n *Notice) read(of func(reads) bool) (o claims.Outcome, payment string, ok bool) {
	i := slices.IndexFunc(n.readings, of)
	if !n.Signed || i < 0 {
		return claims.Unknown, "", false
	}
	r := n.readings[i]
	o = outcomes[first(r.Outcome, "unknown")]
	return o, r.Payment, o.Definite() || r.Payment != ""
}

// Tells reports whether the notice says something of calls of any route.
func (n *Notice) Tells() bool {
	return n.Signed && slices.ContainsFunc(n.readings, func(r reads) bool { return r.Outcome != "" || r.Payment != "" })
}

// Fits reports whether amount and currency are those of a call, as far as both sides know them.
func (n *Notice) Fits(f claims.Facts) bool {
	if want := f.Lookup["amount"]; want != "" && n.Amount != "" {
		if same, readable := sameAmount(want, n.Amount); !same || !readable {
			return false
		}
	}
	want := f.Lookup["currency"]
	return want == "" || n.Currency == "" || strings.EqualFold(want, n.Currency)
}

// packed is a notice as it is kept: no answer, and nothing of the event but what finds the call and what is said of it.
type packed struct {
	Version    int      `json:"v"`
	Account    string   `json:"account"`
	ID         string   `json:"id"`
	References []string `json:"references,omitempty"`
	Object     string   `json:"object,omitempty"`
	Amount     string   `json:"amount,omitempty"`
	Currency   string   `json:"currency,omitempty"`
	Reads      []reads  `json:"reads"`
}

// Pack writes a signed notice of an account, so that it can be applied later. The answer is left out: which of its fields
// may be kept depends on the call's route.
func (n *Notice) Pack(account string) ([]byte, error) {
	if !n.Tells() {
		return nil, fmt.Errorf("notice %q tells nothing that could be applied later", n.ID)
	}
	return json.Marshal(packed{1, account, n.ID, n.References, n.Object, n.Amount, n.Currency, n.readings})
}

// UnpackNotice reads what Pack wrote.
func UnpackNotice(b []byte) (account string, n Notice, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var p packed
	if err := d.Decode(&p); err != nil || p.Version != 1 || p.Account == "" || p.ID == "" {
		return "", n, fmt.Errorf("a kept notice cannot be read by this version")
	}
	for _, r := range p.Reads {
		o, ok := outcomes[first(r.Outcome, "unknown")]
		if !ok || !paymentWord(r.Payment) || r.Payment != "" && o.Definite() && o != claims.Succeeded {
			return "", n, fmt.Errorf("a kept notice says what this version does not know")
		}
	}
	return p.Account, Notice{
		ID: p.ID, References: p.References, Object: p.Object, Amount: p.Amount, Currency: p.Currency, Signed: true, readings: p.Reads,
	}, nil
}

// OpenNotice verifies a delivery to an account's address and reads its events: all of them, or none. Errors: ErrNoNotices,
// ErrForged, ErrMalformed, *Unavailable. None shows anything of the delivery.
func (g *Gateway) OpenNotice(ctx context.Context, account string, d Delivery) ([]Notice, error) {
	i := slices.IndexFunc(g.Accounts, func(a Account) bool { return a.Name == account })
	if g.Webhook == nil || i < 0 {
		return nil, ErrNoNotices
	}
	coded := slices.ContainsFunc(values(d.Header, "Content-Encoding"), func(v string) bool { return v != "identity" })
	if len(d.Body) == 0 || len(d.Body) > MaxNotice || coded {
		return nil, ErrMalformed
	}
	var v *verifier
	if s := g.Webhook.Signature; s != nil {
		var err error
		if v, err = g.verifier(&g.Accounts[i], &d); err != nil {
			return nil, err
		}
		if s.At == "" {
			if err := v.delivery(ctx); err != nil {
				return nil, err
			}
		}
	}
	events, ok := g.Webhook.events(d.Body)
	if !ok || len(events) > maxEvents {
		return nil, ErrMalformed
	}
	notices := make([]Notice, 0, len(events))
	for _, e := range events {
		n, err := g.notice(v, e)
		if err != nil {
			return nil, err
		}
		notices = append(notices, n)
	}
	return notices, nil
}

// events splits a body. What stands twice, or is no text, is refused whole: readers take it for different things.
func (w *Webhook) events(body []byte) ([]item, bool) {
	if w.Form {
		doc, ok := formObject(body)
		return []item{{doc: doc, raw: body}}, ok
	}
	if !jsontext.Value(body).IsValid() {
		return nil, false
	}
	whole, ok := decode(body)
	if !ok {
		return nil, false
	}
	list := []json.RawMessage{body}
	if w.Events != "" {
		if list, ok = rawList(body, w.Events); !ok {
			return nil, false
		}
	}
	var out []item
	for _, raw := range list {
		doc := whole
		if w.Events != "" || w.Item != "" {
			var ok bool
			if raw, ok = rawItem(raw, w.Item); !ok {
				return nil, false
			}
			if doc, ok = decode(raw); !ok {
				return nil, false
			}
		}
		out = append(out, item{doc: doc, raw: raw})
	}
	return out, true
}

func rawItem(raw []byte, at string) (json.RawMessage, bool) {
	out, ok := rawAt(raw, at)
	return out, ok && len(out) > 0
}

// formObject reads a form as one object of texts.
func formObject(body []byte) (map[string]any, bool) {
	q, err := url.ParseQuery(string(body))
	if err != nil || !utf8.Valid(body) {
		return nil, false
	}
	doc := map[string]any{}
	for name, vs := range q {
		if len(vs) != 1 || !utf8.ValidString(name) || !utf8.ValidString(vs[0]) {
			return nil, false
		}
		doc[name] = vs[0]
	}
	return doc, true
}

// notice reads one event.
func (g *Gateway) notice(v *verifier, e item) (n Notice, err error) {
	w := g.Webhook
	named := e.raw // what a digest names the event by
	n.Signed = v != nil && w.uncovered() == ""
	if v != nil && v.s.At != "" {
		signed, covers, err := v.event(e.doc)
		if err != nil {
			return n, err
		}
		if n.Signed = n.Signed && covers; n.Signed {
			named = []byte(signed)
		}
	}
	n.ID = handle(e.doc, w.ID)
	if v != nil && v.s.At != "" && !v.s.covers(w.ID) {
		n.ID = "" // whoever repeats the event could write another one
	}
	if n.ID == "" || w.ID == "" {
		sum := sha256.Sum256(named)
		n.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	for _, at := range w.References {
		if r := handle(e.doc, at); r != "" && !slices.Contains(n.References, r) {
			n.References = append(n.References, r)
		}
	}
	if w.Object != "" {
		n.Object = handle(e.doc, w.Object)
	}
	if w.Amount != "" {
		n.Amount = figure(text(e.doc, w.Amount))
	}
	if w.Currency != "" {
		n.Currency = figure(text(e.doc, w.Currency))
	}
	for _, c := range w.Cases {
		if allHold(c.When, e.doc) {
			n.readings = append(n.readings, reads{Routes: c.Routes, Outcome: c.Outcome, Payment: c.Payment, Call: c.Call})
		}
	}
	if w.Answer != nil && n.Signed && v.s.At == "" && !w.Form { // a signature of its own covers some fields of an event, not its object
		n.Answer = w.answer(e)
	}
	return n, nil
}

func (w *Webhook) answer(e item) *claims.Answer {
	raw, ok := rawAt(e.raw, w.Answer.At)
	if !ok {
		return nil
	}
	return &claims.Answer{
		Status: w.Answer.Status, Header: []claims.Field{{Name: "Content-Type", Value: w.Answer.ContentType}}, Body: bytes.Clone(raw),
	}
}

// handle is a text by which a call could be known; "": none.
func handle(doc any, at string) string {
	s := text(doc, at)
	if len(s) > claims.MaxKey || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	return s
}

// figure is an amount or a currency; what is too long for one equals nobody's.
func figure(s string) string {
	if len(s) > 80 {
		return "…"
	}
	return s
}
