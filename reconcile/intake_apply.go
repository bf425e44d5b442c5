package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// hit is a call that a notice names.
type hit struct {
	key       claims.Key
	reference string // by which it was found; "": by the object
	shared    bool   // other calls are named in the same way
}

// rank orders results: of a notice that names several calls, the weightiest is told.
var rank = []string{
	NoticeIgnored, NoticeWoken, NoticeMismatch, NoticeRefused, NoticeKnown, NoticeNoted, NoticeEarly, NoticeTaken, NoticeConflict,
}

// apply takes in one notice. retry: it is a kept one. Any error means that it is to come again.
func (in *Intake) apply(ctx context.Context, p place, n *gateways.Notice, retry bool) (result string, err error) {
	hits, err := in.find(ctx, p, n)
	if err != nil {
		return "", err
	}
	result = NoticeIgnored
	if len(hits) == 0 && n.Tells() && slices.ContainsFunc(n.References, p.g.MayBeOurs) {
		result = NoticeKept
	}
	for _, h := range hits {
		r, err := in.one(ctx, p, n, h, retry)
		if err != nil {
			return "", err
		}
		if slices.Index(rank, r) > slices.Index(rank, result) {
			result = r
		}
	}
	if retry || result != NoticeKept && result != NoticeEarly {
		return result, nil
	}
	err = in.keep(ctx, p, n)
	if errors.Is(err, claims.ErrInboxFull) && result == NoticeKept {
		in.warn(p, "a notice that no call is known for was dropped: "+err.Error())
		return NoticeFull, nil // a claim is written before its call is sent, so that it is somebody else's most likely
	}
	return result, err
}

// find finds the calls that a notice names: by each reference, else by the object.
func (in *Intake) find(ctx context.Context, p place, n *gateways.Notice) (hits []hit, err error) {
	for _, ref := range n.References {
		keys, err := in.Finder.Find(ctx, p.tenant, p.g.Name, claims.Handles{Reference: ref}, maxHits)
		if err != nil {
			return nil, fmt.Errorf("find: %w", err)
		}
		for _, k := range keys {
			if !slices.ContainsFunc(hits, func(h hit) bool { return h.key == k }) {
				hits = append(hits, hit{k, ref, len(keys) > 1})
			}
		}
	}
	if len(hits) > 0 || n.Object == "" {
		return hits, nil
	}
	keys, err := in.Finder.Find(ctx, p.tenant, p.g.Name, claims.Handles{Object: n.Object}, maxHits)
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	if len(keys) == 1 {
		return []hit{{key: keys[0]}}, nil
	}
	routes, calls := make([]string, len(keys)), map[string]int{}
	for i, k := range keys {
		v, err := in.Store.Get(ctx, k, claims.Guard{})
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		routes[i] = v.Record.Facts.Route
		calls[routes[i]]++
	}
	for i, k := range keys {
		hits = append(hits, hit{key: k, shared: calls[routes[i]] > 1 || len(keys) == maxHits})
	}
	return hits, nil
}

// facts are those of the revision that the notice names; false: the record is no longer the one that was found.
func (h hit) facts(r *claims.Record, n *gateways.Notice) (claims.Facts, bool) {
	switch {
	case h.reference == "":
		return r.Facts, r.Object == n.Object
	case r.Facts.Reference == h.reference:
		return r.Facts, true
	}
	i := slices.IndexFunc(r.Past, func(p claims.Past) bool { return p.Facts.Reference == h.reference })
	if i < 0 {
		return claims.Facts{}, false
	}
	return r.Past[i].Facts, true
}

// one takes a notice in for one call. A write that another one outran is decided again; what was perhaps applied is an error, so
// that the notice comes again.
func (in *Intake) one(ctx context.Context, p place, n *gateways.Notice, h hit, retry bool) (string, error) {
	for try := range maxSwaps {
		v, err := in.Store.Get(ctx, h.key, claims.Guard{})
		if err != nil {
			return "", fmt.Errorf("read: %w", err)
		}
		r := &v.Record
		f, ok := h.facts(r, n)
		if !r.Exists() || !ok {
			return NoticeIgnored, nil
		}
		name, _, _ := strings.Cut(f.Account, "/")
		if f.Gateway != p.g.Name || name != p.account {
			in.warn(p, "a notice names a call of another account; it does not count")
			return NoticeMismatch, nil
		}
		if f.Endpoint != strings.TrimSuffix(p.g.BaseURL, "/") { // perhaps in the middle of a change of the address
			in.warn(p, "a notice names a call that went to another address than the gateway has here; it does not count yet")
			return NoticeEarly, nil
		}
		word, counts := in.word(p, n, h, f)
		if h.reference != "" && gateways.OwnReference(f) && (n.Object == "" || n.Object != r.Object) {
			counts = false // the app's own reference may stand on other payments too, also on those made elsewhere
		}
		switch {
		case !n.Fits(f):
			in.Log.Warn("a notice tells another amount or currency than the call's; the gateway is asked",
				"tenant", h.key.Tenant, "call", h.key.Call, "gateway", p.g.Name, "notice", n.ID)
			in.wakes.put(h.key)
			return NoticeMismatch, nil
		case !counts:
			in.wakes.put(h.key)
			return NoticeWoken, nil
		}
		if try == 0 && word.Outcome == claims.Succeeded && word.Answer == nil && r.Reconcilable(v.Now) {
			in.ask(ctx, h.key) // it also brings the answer
			continue
		}
		result, again, err := in.hear(ctx, p, v, word)
		if err != nil || !again {
			if result == NoticeEarly && !retry {
				in.wakes.put(h.key)
			}
			return result, err
		}
	}
	return "", fmt.Errorf("the record moved on at each of %d tries", maxSwaps)
}

// word makes of a notice what it says of a call; false: nothing that counts.
func (in *Intake) word(p place, n *gateways.Notice, h hit, f claims.Facts) (w claims.Noticed, ok bool) {
	o, payment, ok := n.ReadingOf(f, h.reference == "")
	w = claims.Noticed{
		ID: n.ID, Reference: f.Reference, Outcome: o, Payment: payment, Object: n.Object,
		By: "gateway " + p.g.Name, Why: "signed notice to account " + p.account,
	}
	if o == claims.Succeeded { // what the event is about may be another object than the call's: an order, of a refund
		w.Answer = p.g.KeepFor(f.Route, n.Answer)
		if n.Answer != nil {
			w.Object = p.g.ObjectOf(f.Route, n.Answer)
		}
	}
	return w, ok && !h.shared && n.Signed
}

// hear decides on one snapshot and writes. again: another write came first.
func (in *Intake) hear(ctx context.Context, p place, v claims.View, word claims.Noticed) (result string, again bool, err error) {
	k := v.Record.Key
	v.Record.Facts.SettleAfter = max(v.Record.Facts.SettleAfter, p.g.LookupRules(v.Record.Facts.Route).SettleAfter)
	next, h, changed, err := claims.Notice(v, word)
	switch {
	case is[*claims.EarlyError](err):
		return NoticeEarly, false, nil
	case errors.Is(err, claims.ErrOrphan):
		return NoticeIgnored, false, nil
	case err != nil:
		in.Log.Warn("a notice was not taken", "tenant", k.Tenant, "call", k.Call, "gateway", p.g.Name, "notice", word.ID, "reason", err)
		in.wakes.put(k)
		return NoticeRefused, false, nil
	case !changed:
		return h.String(), false, nil
	}
	write := claims.Write{Version: v.Record.Version, Next: next, Event: claims.EventOf(v.Record, next)}
	_, err = in.Store.Swap(ctx, claims.Condition{}, write)
	switch {
	case errors.Is(err, claims.ErrLost):
		return "", true, nil
	case err != nil:
		return "", false, fmt.Errorf("write: %w", err)
	}
	level := in.Log.Info
	if h == claims.HeardConflict {
		level = in.Log.Warn
	}
	level("notice heard", "tenant", k.Tenant, "call", k.Call, "gateway", p.g.Name, "notice", word.ID, "result", h.String(),
		"from", string(v.Record.State), "to", string(next.State), "payment", next.Payment)
	if in.Happened != nil {
		in.Happened()
	}
	if h == claims.HeardNoted {
		in.wakes.put(k) // it decides nothing: the gateway may know more
	}
	return h.String(), false, nil
}
