package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Asker sends a GET with the account's lookup credential and returns the complete answer.
type Asker func(ctx context.Context, target string) (*claims.Answer, error)

const (
	defaultMisses  = 2
	defaultMissGap = 30 * time.Second
	defaultWindow  = 10 * time.Minute
	defaultPages   = 50
	pollPages      = 5
	// maxOffset is how far the gateway's clock may be from ours before a lookup by time cannot tell.
	maxOffset = 5 * time.Minute
)

// Ask is AskAt with the gateway's Now as the time of asking, on both clocks.
func (g *Gateway) Ask(ctx context.Context, f claims.Facts, first claims.Now, ask Asker) (claims.Finding, error) {
	now := g.now()
	return g.AskAt(ctx, f, first, claims.Now{Store: now, Wall: now}, ask)
}

// RulesOf is LookupRules for one call: its lookup is worth nothing if it was sent without what the lookup needs, such as our
// reference, for then nothing will ever find it. why says what is missing, "" nothing.
func (g *Gateway) RulesOf(f claims.Facts) (rules claims.LookupRules, why string) {
	rules = g.LookupRules(f.Route)
	r := g.route(f.Route)
	if r == nil || r.Lookup == nil || r.Lookup.Object != "" && f.Lookup[objectParam] != "" {
		return rules, ""
	}
	now := g.now()
	q := query{g: g, r: r, l: r.Lookup, f: f, first: claims.Now{Store: now, Wall: now}, asked: claims.Now{Store: now, Wall: now}}
	if _, why = q.target(); why != "" {
		rules.Proves, rules.NoWay = false, !r.Probe
	}
	return rules, why
}

// AskAt runs the route's lookup, all pages. first is the start of the revision's first attempt and asked the same clocks'
// time now: the gateway's Date header is compared with its wall clock, so that a bound by first holds on the gateway's
// clock.
//
// The finding is CouldNotTell whenever anything is not as declared. The error is the Asker's, or nil.
func (g *Gateway) AskAt(ctx context.Context, f claims.Facts, first, asked claims.Now, ask Asker) (claims.Finding, error) {
	return g.run(ctx, query{f: f, first: first, asked: asked, ask: ask})
}

// AskAgain is AskAt for a call that is known to have succeeded: where its money is can be read from the object's state also where
// that state alone would not tell whether the call was carried out (an intent that was authorised and then canceled).
func (g *Gateway) AskAgain(ctx context.Context, f claims.Facts, first, asked claims.Now, ask Asker) (claims.Finding, error) {
	return g.run(ctx, query{f: f, first: first, asked: asked, ask: ask, done: true})
}

// AskPayment is AskAgain for no more than where the money is: it reads pollPages pages at most. An object that is further down a list
// could not be told; a call that succeeded is asked about many times, and each time everything since may be a long list.
func (g *Gateway) AskPayment(ctx context.Context, f claims.Facts, first, asked claims.Now, ask Asker) (claims.Finding, error) {
	return g.run(ctx, query{f: f, first: first, asked: asked, ask: ask, done: true, most: pollPages})
}

func (g *Gateway) run(ctx context.Context, q query) (claims.Finding, error) {
	r := g.route(q.f.Route)
	if r == nil || r.Lookup == nil {
		return cannotTell("the route declares no lookup"), nil
	}
	q.g, q.r, q.l, q.begun = g, r, r.Lookup, g.now()
	named := q.l.Object != "" && q.f.Lookup[objectParam] != ""
	if named && !q.done {
		return q.object(ctx)
	}
	found, err := q.look(ctx)
	if found.Kind == claims.Missed && q.f.Lookup[objectParam] != "" {
		found = cannotTell("nothing found, although the gateway has named the object")
	}
	if named && err == nil && found.Kind == claims.CouldNotTell { // a list shows two successes, but can be too long to read
		return q.object(ctx)
	}
	return found, err
}

// look asks as the lookup's target says.
func (q *query) look(ctx context.Context) (claims.Finding, error) {
	target, why := q.target()
	switch {
	case why != "":
		return cannotTell(why), nil
	case q.l.Kind == KindGet:
		return q.get(ctx, target)
	}
	return q.list(ctx, target)
}

// objectParam is, among the lookup parameters, the gateway's own id of the call's object.
const objectParam = "object"

// WithObject is f with the gateway's own id of the call's object, as Record.Object holds it, for Ask.
func WithObject(f claims.Facts, id string) claims.Facts {
	if id == "" {
		return f
	}
	f.Lookup = maps.Clone(f.Lookup)
	if f.Lookup == nil {
		f.Lookup = map[string]string{}
	}
	f.Lookup[objectParam] = id
	return f
}

// ours reports whether an item carries our reference, or our key where that is what it is known by.
func (q *query) ours(doc any) bool {
	if q.l.Key != "" {
		return q.f.GatewayKey != "" && text(doc, q.l.Key) == q.f.GatewayKey
	}
	return q.l.Reference != "" && q.f.Reference != "" && text(doc, q.l.Reference) == q.f.Reference
}

// listed reports whether matches are items of a list, known by our reference.
func (q *query) listed() bool { return q.l.Kind == KindList || q.l.Kind == KindSearch }

// object reads the object whose id is known. That it is not there says nothing: the gateway has named it.
func (q *query) object(ctx context.Context) (claims.Finding, error) {
	q.byID = true
	var is []Condition
	if q.l.Kind == KindGet {
		is = q.l.Is
	}
	raw, doc, missing, why, err := q.fetch(ctx, braces.ReplaceAllStringFunc(q.l.Object, func(m string) string {
		if v := q.value(m[1 : len(m)-1]); v != "" {
			return url.PathEscape(v)
		}
		return m
	}), is)
	switch {
	case why != "":
		return cannotTell(why), err
	case missing:
		return cannotTell("the object that the gateway named is not there"), nil
	}
	it := item{raw: raw, doc: doc}
	if q.l.ObjectAt != "" {
		var ok bool
		if it.raw, ok = rawAt(raw, q.l.ObjectAt); !ok {
			return cannotTell("the lookup's answer has no object"), nil
		}
		it.doc, _ = at(doc, q.l.ObjectAt)
	}
	switch {
	case q.l.ID != "" && text(it.doc, q.l.ID) != q.f.Lookup[objectParam]:
		return cannotTell("the lookup's answer is about another object"), nil
	case !allHold(q.l.Each, it.doc):
		return cannotTell("the found item is not of the declared form"), nil
	}
	ours := q.ours(it.doc)
	if q.listed() && (q.f.Reference != "" || q.l.Key != "") && !ours {
		return claims.Finding{Kind: claims.Contradiction, Reason: "the gateway names an object that does not carry the call's reference"}, nil
	}
	hit := q.read(it, ours, q.l.Reference != "" && text(it.doc, q.l.Reference) == "")
	if hit.Kind == claims.Missed {
		hit = cannotTell("the object stands as before the call, which the gateway says was carried out")
	}
	return q.conclude([]reading{{Finding: hit}}), nil
}

func cannotTell(why string) claims.Finding {
	return claims.Finding{Kind: claims.CouldNotTell, Reason: why}
}

// query is one lookup under way.
type query struct {
	g     *Gateway
	r     *Route
	l     *Lookup
	f     claims.Facts
	first claims.Now
	asked claims.Now
	begun time.Time
	ask   Asker
	byID  bool // the object is read whose id the gateway has named
	done  bool // the call is known to have succeeded
	most  int  // pages that are read; 0: what the lookup declares
}

// target fills the template in.
func (q *query) target() (target, why string) {
	if q.l.Kind == KindObject {
		return "", "the gateway can be asked for an object by its id only, and that is not known"
	}
	if q.l.Reference != "" && q.f.Reference == "" {
		return "", "the call was sent without a reference"
	}
	if name := missing(q.f.Lookup, q.l.needs()); name != "" {
		return "", "the call's " + name + " was not stored: it was not of its kind"
	}
	path, rest, _ := strings.Cut(q.l.Target, "?")
	fill := func(s string, escape func(string) string) string {
		return braces.ReplaceAllStringFunc(s, func(m string) string {
			name := m[1 : len(m)-1]
			v := q.value(name)
			if v == "" {
				why = "the call has no " + name + " to look for"
			}
			return escape(v)
		})
	}
	target = fill(path, url.PathEscape)
	if rest != "" {
		target += "?" + fill(rest, url.QueryEscape)
	}
	return target, why
}

func (q *query) value(name string) string {
	switch name {
	case "reference":
		return q.f.Reference
	case "key":
		return q.f.GatewayKey
	case "since":
		if q.first.Wall.IsZero() {
			return ""
		}
		return q.l.spell(q.start().Add(-q.l.Window))
	case "until":
		if q.asked.Wall.IsZero() {
			return ""
		}
		return q.l.spell(q.asked.Wall.Add(q.l.Window))
	}
	return q.f.Lookup[name]
}

// spell writes a time as the gateway's lists take it.
func (l *Lookup) spell(t time.Time) string {
	if l.SinceFormat == "rfc3339" {
		return t.UTC().Format(time.RFC3339)
	}
	return strconv.FormatInt(t.Unix(), 10)
}

// start is the earlier of two readings of the first attempt's start: what the wall clock showed then, and what it shows now
// less the store time since. A wall clock that ran ahead then and was set right since must not hide the object.
func (q *query) start() time.Time {
	start := q.first.Wall
	if q.first.Store.IsZero() || q.asked.Store.IsZero() {
		return start
	}
	if t := q.asked.Wall.Add(-q.asked.Store.Sub(q.first.Store)); t.Before(start) {
		return t
	}
	return start
}

// fetch asks one page. missing: a 404 that the lookup declares to be a miss.
func (q *query) fetch(ctx context.Context, target string, is []Condition) (raw []byte, doc any, missing bool, why string, err error) {
	a, err := q.ask(ctx, target)
	switch {
	case err != nil:
		return nil, nil, false, "the lookup got no answer", err
	case a == nil:
		return nil, nil, false, "the lookup got no answer", nil
	}
	if why := q.clock(a); why != "" {
		return nil, nil, false, why, nil
	}
	raw, readable := plainBody(a)
	if readable {
		doc, readable = decode(raw)
	}
	switch {
	case a.Status == http.StatusNotFound && q.l.NotFound == CaseMissed && readable:
		return nil, nil, true, "", nil
	case a.Status != http.StatusOK:
		return nil, nil, false, fmt.Sprintf("the lookup got status %d", a.Status), nil
	case !readable:
		return nil, nil, false, "the lookup's answer is not JSON", nil
	case !allHold(is, doc):
		return nil, nil, false, "the lookup's answer is not of the declared form", nil
	}
	return raw, doc, false, "", nil
}

// clock refuses an answer of a gateway whose clock is off, or of a cache on the way.
func (q *query) clock(a *claims.Answer) (why string) {
	for _, age := range values(a.Header, "Age") {
		if strings.TrimLeft(age, "0") != "" {
			return "the lookup was answered by a cache"
		}
	}
	dates := values(a.Header, "Date")
	if len(dates) != 1 {
		return "the lookup's answer has no Date"
	}
	date, err := http.ParseTime(dates[0])
	if err != nil {
		return "the lookup's answer has no readable Date"
	}
	took := max(q.g.now().Sub(q.begun), 0)
	if date.Before(q.asked.Wall.Add(-maxOffset)) || date.After(q.asked.Wall.Add(took+maxOffset)) || date.Before(q.first.Wall.Add(-maxOffset)) {
		return "the gateway's clock is more than 5m off"
	}
	return ""
}

func (q *query) get(ctx context.Context, target string) (claims.Finding, error) {
	raw, doc, missing, why, err := q.fetch(ctx, target, q.l.Is)
	switch {
	case why != "":
		return cannotTell(why), err
	case missing:
		return claims.Finding{Kind: claims.Missed, Reason: "not found"}, nil
	case q.l.SameAs != "" && text(doc, q.l.ID) != q.f.Lookup[q.l.SameAs]:
		return cannotTell("the lookup's answer is about another object"), nil
	}
	ours := q.ours(doc)
	none := q.l.Reference != "" && text(doc, q.l.Reference) == ""
	hit := q.read(item{raw: raw, doc: doc}, ours, none)
	return q.conclude([]reading{{Finding: hit}}), nil
}

// item is one object of an answer.
type item struct {
	raw []byte
	doc any
}

func (q *query) list(ctx context.Context, target string) (claims.Finding, error) {
	var hits []reading
	last := ""
	for range q.pages() {
		raw, doc, missing, why, err := q.fetch(ctx, q.page(target, last), q.l.Is)
		if why != "" {
			return cannotTell(why), err
		}
		if missing {
			break
		}
		items, ok := itemsOf(raw, doc, q.l.Items)
		if !ok {
			return cannotTell("the lookup's answer has no list"), nil
		}
		for _, it := range items {
			if q.ours(it.doc) {
				hits = append(hits, reading{q.each(it), text(it.doc, q.l.ID)})
			}
		}
		next, more, ok := q.next(doc, items)
		if !ok || more && (next == "" || next == last) {
			return cannotTell("the lookup's answer does not say how it goes on"), nil
		}
		if !more {
			return q.conclude(hits), nil
		}
		last = next
	}
	if f := q.conclude(hits); f.Kind == claims.Contradiction {
		return f, nil // more pages cannot take it back
	}
	if last == "" {
		return q.conclude(hits), nil
	}
	return cannotTell("the list has more pages than are read"), nil
}

func (q *query) pages() int {
	if q.l.Pages == nil {
		return 1
	}
	if q.most > 0 {
		return min(q.most, q.l.Pages.Max)
	}
	return q.l.Pages.Max
}

func (q *query) page(target, last string) string {
	if last == "" {
		return target
	}
	sep := "?"
	if strings.Contains(target, "?") {
		sep = "&"
	}
	return target + sep + url.QueryEscape(q.l.Pages.Param) + "=" + url.QueryEscape(last)
}

// next reads whether the list goes on, and after which id.
func (q *query) next(doc any, items []item) (last string, more, ok bool) {
	if q.l.Pages == nil {
		return "", false, true
	}
	if q.l.Pages.Next != "" {
		v, there := at(doc, q.l.Pages.Next)
		last, ok = v.(string)
		return last, ok, ok && last != "" || there && v == nil
	}
	v, _ := at(doc, q.l.Pages.More)
	more, ok = v.(bool)
	if ok && more && len(items) > 0 {
		last = text(items[len(items)-1].doc, q.l.ID)
	}
	return last, more, ok
}

// itemsOf splits a list into its items with their own bytes.
func itemsOf(raw []byte, doc any, pointer string) ([]item, bool) {
	v, _ := at(doc, pointer)
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	raws, ok := rawList(raw, pointer)
	if !ok || len(raws) != len(list) {
		return nil, false
	}
	items := make([]item, len(list))
	for i := range list {
		items[i] = item{raw: raws[i], doc: list[i]}
	}
	return items, true
}

func rawList(raw []byte, pointer string) ([]json.RawMessage, bool) {
	raw, ok := rawAt(raw, pointer)
	var list []json.RawMessage
	return list, ok && json.Unmarshal(raw, &list) == nil
}

// rawAt follows a JSON pointer and keeps the bytes.
func rawAt(raw []byte, pointer string) ([]byte, bool) {
	if pointer == "" {
		return raw, true
	}
	for _, part := range pointerParts(pointer) {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) == nil {
			var ok bool
			if raw, ok = m[part]; !ok {
				return nil, false
			}
			continue
		}
		var list []json.RawMessage
		i, err := strconv.Atoi(part)
		if err != nil || strconv.Itoa(i) != part || json.Unmarshal(raw, &list) != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		raw = list[i]
	}
	return raw, true
}
