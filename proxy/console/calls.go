package console

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Limits of a list.
const (
	defaultList = 50
	maxList     = 500
)

type listAnswer struct {
	Calls []Call `json:"calls"`
	// More says that there are older ones.
	More bool `json:"more"`
	// Unreadable says that some were left out, because this version cannot read them.
	Unreadable bool `json:"unreadable"`
}

type callAnswer struct {
	Call Call `json:"call"`
}

type explainAnswer struct {
	Text string `json:"text"`
	Call Call   `json:"call"`
}

// list shows calls, newest first.
func (c *Console) list(x *exchange) error {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return err
	}
	q, err := x.query("tenant", "state", "limit")
	if err != nil {
		return err
	}
	tenants := c.Tenants
	if q["tenant"] != nil {
		if tenants = []string{*q["tenant"]}; !slices.Contains(c.Tenants, tenants[0]) {
			return c.serves(tenants[0])
		}
	}
	states, err := parseStates(q["state"])
	if err != nil {
		return err
	}
	limit := defaultList
	if v := q["limit"]; v != nil {
		n, err := strconv.Atoi(*v)
		if err != nil || n < 1 || n > maxList || strconv.Itoa(n) != *v {
			return bad(fmt.Sprintf("limit: want 1 to %d", maxList))
		}
		limit = n
	}
	rs, unreadable, err := x.newest(tenants, states, limit+1)
	if err != nil {
		return err
	}
	a := listAnswer{Calls: []Call{}, More: len(rs) > limit, Unreadable: unreadable}
	for i := range rs[:min(limit, len(rs))] {
		a.Calls = append(a.Calls, Show(&rs[i]))
	}
	x.json(a)
	return nil
}

// parseStates reads a list with commas; nil: all.
func parseStates(v *string) (states []claims.State, err error) {
	if v == nil {
		return nil, nil
	}
	for s := range strings.SplitSeq(*v, ",") {
		st := claims.State(s)
		if st == claims.None || !st.Readable() {
			return nil, bad("state: " + clip(s) + " is none of pending, unknown, succeeded, declined, open, review, cancelled")
		}
		states = append(states, st)
	}
	return states, nil
}

// newest lists the calls of several tenants together.
func (x *exchange) newest(tenants []string, states []claims.State, limit int) (all []claims.Record, unreadable bool, err error) {
	for _, t := range tenants {
		ctx, cancel := x.store()
		rs, err := x.c.Lister.List(ctx, t, states, limit)
		cancel()
		if errors.Is(err, claims.ErrUnreadable) {
			unreadable, err = true, nil
		}
		if err != nil {
			return nil, false, err
		}
		all = append(all, rs...)
	}
	slices.SortStableFunc(all, func(a, b claims.Record) int { return b.Created.Store.Compare(a.Created.Store) })
	return all[:min(limit, len(all))], unreadable, nil
}

// queryCall reads which call a request is about. It stands in the query, also of a POST, because there every byte of a key
// survives.
func (x *exchange) queryCall() (claims.Key, error) {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return claims.Key{}, err
	}
	q, err := x.query("tenant", "key")
	if err != nil {
		return claims.Key{}, err
	}
	if q["key"] == nil {
		return claims.Key{}, bad("key is missing")
	}
	return x.c.newKey(q["tenant"], *q["key"])
}

// newKey checks what names a call. tenant may be nil where only one is served.
func (c *Console) newKey(tenant *string, key string) (claims.Key, error) {
	t, err := c.tenant(tenant)
	if err != nil {
		return claims.Key{}, err
	}
	k := claims.Key{Tenant: t, Call: key}
	if err := k.Check(); err != nil {
		return claims.Key{}, bad(err.Error())
	}
	return k, nil
}

func (c *Console) tenant(tenant *string) (string, error) {
	switch {
	case tenant == nil && len(c.Tenants) > 1:
		return "", bad("this sidecar serves several tenants: tenant is missing")
	case tenant == nil:
		return c.Tenants[0], nil
	}
	return *tenant, c.serves(*tenant)
}

// get reads a call. A record is there only if its view says so.
func (x *exchange) get(k claims.Key) (claims.View, error) {
	ctx, cancel := x.store()
	defer cancel()
	return x.c.Calls.Get(ctx, k, claims.Guard{})
}

// found reads a call that must be there.
func (x *exchange) found() (claims.View, error) {
	k, err := x.queryCall()
	if err != nil {
		return claims.View{}, err
	}
	v, err := x.get(k)
	if err == nil && !v.Record.Exists() {
		err = noSuchCall()
	}
	return v, err
}

func noSuchCall() error { return refusal(claims.NoSuchCall, "the tenant has no call under this key") }

// show tells how a call stands.
func (c *Console) show(x *exchange) error {
	v, err := x.found()
	if err != nil {
		return err
	}
	x.json(callAnswer{Show(&v.Record)})
	return nil
}

// explain says in words how a call stands.
func (c *Console) explain(x *exchange) error {
	v, err := x.found()
	if err != nil {
		return err
	}
	text := Explain(v, c.Gateways, c.Attempts)
	x.w.Header().Set("Vary", "Accept")
	if wantsText(x.r.Header) {
		x.write(http.StatusOK, "text/plain; charset=utf-8", []byte(text))
		return nil
	}
	x.json(explainAnswer{text, Show(&v.Record)})
	return nil
}

// wantsText reports whether a client prefers plain text: it names that first.
func wantsText(h http.Header) bool {
	first, _, _ := strings.Cut(h.Get("Accept"), ",")
	t, _, err := mime.ParseMediaType(first)
	return err == nil && t == "text/plain"
}

// conflict is a refusal with the call as it stands.
func conflict(why claims.Reason, detail string, r *claims.Record) *problem {
	p := refusal(why, detail)
	p.more = map[string]any{"call": Show(r)}
	return p
}

// maxDecisions bounds how often a change is decided anew because the record moved between its reading and its writing.
const maxDecisions = 5

// change writes what was decided on a record. again says that it must be decided anew: the record moved, or it is not known
// whether the write was applied.
func (x *exchange) change(was, is claims.Record) (r claims.Record, again bool, err error) {
	ctx, cancel := x.store()
	sw, err := x.c.Calls.Swap(ctx, claims.Condition{}, claims.Write{Version: was.Version, Next: is, Event: claims.EventOf(was, is)})
	cancel()
	switch {
	case err == nil:
		x.c.Nudge()
		return sw.Records[0], false, nil
	case errors.Is(err, claims.ErrLost):
		return r, true, nil
	case claims.Refused(err):
		return r, false, err
	}
	if cerr := x.confirmed(); cerr != nil {
		return r, false, err // perhaps applied: a repeat of the request finds out
	}
	x.c.Nudge()
	return r, true, nil
}

// busy says that a record moved on at every try.
func busy() error {
	return fmt.Errorf("the record moved on at each of %d tries: %w", maxDecisions, context.DeadlineExceeded)
}
