package console

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// When a notice that could not be taken is to be sent again, where nothing tells a better time.
const noticeAgain = 30 * time.Second

// maxScan bounds how many calls are looked at for a reference.
const maxScan = 1000

type evidenceAnswer struct {
	Result string `json:"result"`
	Call   Call   `json:"call"`
}

// target is which call a notice is about.
type target struct {
	tenant    string
	key       *string
	reference string // "": unsaid
}

// evidence takes in a notice of a call's outcome. It never makes a send: it tells at most that a repeat may be sent.
func (c *Console) evidence(x *exchange) error {
	who, err := x.operator()
	if err != nil {
		return err
	}
	t, err := x.target()
	if err != nil {
		return err
	}
	n, err := x.noticed(who, t.reference)
	if err != nil {
		return err
	}
	for range maxDecisions {
		k, err := x.aim(t)
		if err != nil {
			return x.unheard(n, err)
		}
		v, err := x.get(k)
		if err != nil {
			return err
		}
		Strict(&v.Record, c.Gateways)
		is, h, changed, err := claims.Notice(v, n)
		if err != nil {
			return x.unheard(n, refuseNotice(err, &v.Record))
		}
		r, again := v.Record, false
		if changed {
			r, again, err = x.change(v.Record, is)
		} else {
			again, err = x.passing(&r)
		}
		switch {
		case err != nil:
			return err
		case again:
			continue
		}
		return x.heard(n, h, &r)
	}
	return busy()
}

// target reads which call a notice is about: by its key, by the gateway's reference, or by both, which also tells the revision.
func (x *exchange) target() (t target, err error) {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return t, err
	}
	q, err := x.query("tenant", "key", "reference")
	if err != nil {
		return t, err
	}
	if t.tenant, err = x.c.tenant(q["tenant"]); err != nil {
		return t, err
	}
	t.key = q["key"]
	if q["reference"] != nil {
		t.reference = *q["reference"]
		if err := checkText("reference", t.reference, 1); err != nil {
			return t, err
		}
	}
	if t.key == nil && t.reference == "" {
		return t, bad("key or reference is missing")
	}
	return t, nil
}

// noticed reads a notice.
func (x *exchange) noticed(who, reference string) (n claims.Noticed, err error) {
	b, err := x.object("id", "outcome", "payment", "attempt", "why")
	if err != nil {
		return n, err
	}
	n = claims.Noticed{Reference: reference, By: who}
	for _, m := range []struct {
		name  string
		from  *string
		to    *string
		least int
	}{{"id", b.ID, &n.ID, 1}, {"payment", b.Payment, &n.Payment, 1}, {"why", b.Why, &n.Why, 0}} {
		if m.from == nil {
			continue
		}
		if err := checkText(m.name, *m.from, m.least); err != nil {
			return n, err
		}
		*m.to = *m.from
	}
	if b.Outcome != nil {
		for _, o := range []claims.Outcome{claims.Succeeded, claims.Declined, claims.NotExecuted} {
			if o.String() == *b.Outcome {
				n.Outcome = o
			}
		}
		if !n.Outcome.Definite() {
			return n, bad("outcome: want succeeded, declined or not-executed")
		}
	}
	if b.Attempt != nil {
		if *b.Attempt < 1 || *b.Attempt > 1<<20 {
			return n, bad("attempt: want its number, from 1")
		}
		n.Attempt = int(*b.Attempt)
	}
	if err := n.Check(); err != nil {
		return n, bad(err.Error())
	}
	return n, nil
}

// aim finds the call that a notice is about.
func (x *exchange) aim(t target) (claims.Key, error) {
	if t.key != nil {
		return x.c.newKey(&t.tenant, *t.key)
	}
	var found []claims.Key
	unread := false
	for _, states := range [][]claims.State{{claims.StatePending, claims.StateUnknown, claims.StateReview}, nil} {
		rs, unreadable, err := x.newest([]string{t.tenant}, states, maxScan)
		if err != nil {
			return claims.Key{}, err
		}
		unread = unread || unreadable
		for i := range rs {
			if named(&rs[i], t.reference) && !slices.Contains(found, rs[i].Key) {
				found = append(found, rs[i].Key)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && unread: // it may be one of those
		return claims.Key{}, claims.ErrUnreadable
	case len(found) == 0:
		return claims.Key{}, claims.ErrOrphan
	}
	return claims.Key{}, refusal(claims.NoticeRefused, "several calls have the reference: name the call by its key")
}

// named reports whether one of a call's revisions has a reference.
func named(r *claims.Record, reference string) bool {
	return r.Facts.Reference == reference ||
		slices.ContainsFunc(r.Past, func(p claims.Past) bool { return p.Facts.Reference == reference })
}

// refuseNotice says why a notice was not taken in.
func refuseNotice(err error, r *claims.Record) error {
	early, ok := errors.AsType[*claims.EarlyError](err)
	switch {
	case errors.Is(err, claims.ErrOrphan):
		return err
	case !ok:
		return conflict(claims.NoticeRefused, err.Error(), r)
	}
	p := conflict(claims.NoticeEarly, early.Why, r)
	p.RetryAfter = noticeAgain
	if early.Left > 0 {
		p.RetryAfter = early.Left
	}
	return p
}

// unheard counts and logs a notice that was not taken in. One about no call is no row: it is to come again.
func (x *exchange) unheard(n claims.Noticed, err error) error {
	result := heardRefused
	p, isProblem := errors.AsType[*problem](err)
	switch {
	case errors.Is(err, claims.ErrOrphan):
		result = heardOrphan
		p = refusal(claims.NoSuchCall, claims.ErrOrphan.Error()+"; send it again, the call may not be stored yet")
		p.RetryAfter = noticeAgain
		err = p
	case !isProblem:
		return err // the store's trouble
	case p.Reason == claims.NoticeEarly:
		result = heardEarly
	}
	x.c.Metrics.noticed(result)
	x.c.Log.LogAttrs(x.r.Context(), slog.LevelWarn, "a notice was not taken", slog.String("result", result), slog.String("notice", n.ID),
		slog.String("reference", n.Reference), slog.String("operator", n.By), slog.String("detail", p.Detail))
	return err
}

// heard answers what became of a notice.
func (x *exchange) heard(n claims.Noticed, h claims.Hearing, r *claims.Record) error {
	x.c.Metrics.noticed(h.String())
	x.note("notice heard", r, slog.String("result", h.String()), slog.String("notice", n.ID), slog.String("operator", n.By))
	if h == claims.HeardConflict {
		return conflict(claims.NoticeConflict, "the notice contradicts how the call was settled: it is kept as evidence, and a person decides", r)
	}
	x.json(evidenceAnswer{h.String(), Show(r)})
	return nil
}
