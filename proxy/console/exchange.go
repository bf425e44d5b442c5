package console

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// exchange is one request on its way.
type exchange struct {
	c     *Console
	w     http.ResponseWriter
	r     *http.Request
	asked claims.Reading // before the store was asked anything
	began time.Time
	calls bool // it is no request about leases
}

// httpError is a refusal that HTTP itself has a status for: it is of type about:blank (RFC 9457 section 4.2.1).
type httpError struct {
	status int
	detail string
}

func (e *httpError) Error() string { return e.detail }

var errNoPath = &httpError{http.StatusNotFound, "no such path; GET /openapi.yaml describes what there is"}

// problem is a refusal with the members that it has beside the usual ones.
type problem struct {
	*claims.Refusal
	more map[string]any
}

func (p *problem) Unwrap() error { return p.Refusal }

func refusal(r claims.Reason, detail string) *problem {
	return &problem{Refusal: &claims.Refusal{Reason: r, Detail: detail}}
}

func bad(detail string) error { return refusal(claims.BadRequest, detail) }

// store bounds one transaction. It does not end with the client's connection: a write that is cut off half way would leave in
// doubt what the client will ask about next.
func (x *exchange) store() (context.Context, context.CancelFunc) {
	limit := storeTimeout
	if x.calls { // which may be decided several times over: all of it together must not outlast the answer's deadline
		limit = min(limit, time.Until(x.began.Add(3*storeTimeout)))
	}
	return context.WithTimeout(context.WithoutCancel(x.r.Context()), limit)
}

// refuse answers with a problem document. Whatever is no refusal is the store's trouble, which is logged and not told.
func (x *exchange) refuse(err error) {
	if h, ok := errors.AsType[*httpError](err); ok {
		x.c.Metrics.refused("http", x.calls)
		b, _ := json.Marshal(map[string]any{
			"type": "about:blank", "title": http.StatusText(h.status), "status": h.status, "detail": h.detail,
		})
		x.write(h.status, "application/problem+json", b)
		return
	}
	p := asProblem(err)
	x.c.Metrics.refused(p.Reason, x.calls)
	if p.Reason == claims.StoreUnavailable || p.Reason == claims.Unreadable {
		x.c.Log.LogAttrs(x.r.Context(), slog.LevelWarn, "request failed", slog.String("path", x.r.URL.Path), slog.Any("error", err))
	}
	proxy.WriteLeaseProblem(x.w, p.Refusal, p.more)
}

// asProblem maps the refusals of claims.Leases to problems.
func asProblem(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if q, ok := errors.AsType[*claims.QuarantineError](err); ok {
		p := refusal(claims.Quarantine, "the store perhaps lost leases that it had granted; nothing is granted or renewed until they have surely run out")
		p.RetryAfter = q.Left
		return p
	}
	if f, ok := errors.AsType[*claims.FencedError](err); ok {
		return fencedProblem(f.Status)
	}
	switch {
	case errors.Is(err, claims.ErrFinished):
		return refusal(claims.ScopeFinished, "the scope is finished: it is never granted again")
	case errors.Is(err, claims.ErrCallsInFlight):
		return refusal(claims.CallsInFlight, "calls of the scope are pending or in doubt; repeat this once they are settled, and keep the lease until then")
	case errors.Is(err, claims.ErrBadScope):
		return refusal(claims.BadRequest, "tenant and id make no scope key; it has at most 1024 bytes, percent-encoded")
	case errors.Is(err, claims.ErrBadEvent):
		return refusal(claims.BadRequest, "the id is no event's")
	case errors.Is(err, claims.ErrUnreadable):
		return refusal(claims.Unreadable, "the store holds what this version cannot read")
	}
	return refusal(claims.StoreUnavailable, "the store did not answer, or not in time; what was asked for was perhaps done")
}

// fencedProblem tells a lease that is over. A finished scope is told apart, because there is nothing to wait for.
func fencedProblem(status claims.LeaseStatus) *problem {
	p := refusal(claims.Fenced, "the lease is "+status.String()+": stop the work under this token, and compensate nothing")
	if status == claims.LeaseFinished {
		p = refusal(claims.ScopeFinished, "the scope was finished under this token: it is never granted again")
	}
	p.more = map[string]any{"lease_status": status.String()}
	return p
}

// Answer headers of the lease API, beside proxy.HeaderToken.
const (
	headerTrusted   = "Fence-Trusted-For-Ms"
	headerCancelled = "Fence-Cancelled"
)

// leaseAnswer is what a holder gets.
type leaseAnswer struct {
	FenceToken string  `json:"fence_token"`
	Scope      string  `json:"scope"`
	Tenant     string  `json:"tenant"`
	ID         string  `json:"id"`
	Token      uint64  `json:"token"`
	Status     string  `json:"status"`
	Holder     *string `json:"holder,omitempty"` // nil after the end of a lease: the store was not asked
	TrustedFor int64   `json:"trusted_for_ms"`
	Cancelled  *bool   `json:"cancelled,omitempty"`
}

// scopeAnswer is what anybody gets. It has neither a fence token nor a time to trust: the lease is not the asker's.
type scopeAnswer struct {
	Scope     string `json:"scope"`
	Tenant    string `json:"tenant"`
	ID        string `json:"id"`
	Token     uint64 `json:"token"`
	Status    string `json:"status"`
	Holder    string `json:"holder"`
	Remaining int64  `json:"remaining_ms"`
	Cancelled bool   `json:"cancelled"`
}

// trustedFor is how long a lease may be relied on, counted from before its client sent the request.
//
// The store counts a lease's time from its own transaction, which came after the request was sent. A holder that counts the
// same time from before sending therefore stops before the store lets another one in, however long the answer was under
// way; counted from the answer's arrival it could stop too late. The margin covers clocks that do not run equally fast. More
// than what was asked for is never trusted, so that a store's clock that was set back does not lengthen a lease.
func (c *Console) trustedFor(l claims.Lease, ttl time.Duration) time.Duration {
	if l.Status != claims.LeaseLive {
		return 0
	}
	return max(min(l.Remaining, ttl)-c.Times.Margin, 0)
}

// lease answers a holder.
func (x *exchange) lease(s scope, l claims.Lease, ttl time.Duration) {
	holder := shown(l.Holder)
	trusted := x.c.trustedFor(l, ttl).Milliseconds() // rounds down
	x.w.Header().Set(headerCancelled, strconv.FormatBool(l.Cancelled))
	x.held(s, l.Guard, l.Status, trusted, &holder, &l.Cancelled)
}

func (x *exchange) held(s scope, g claims.Guard, status claims.LeaseStatus, trusted int64, holder *string, cancelled *bool) {
	x.w.Header().Set(proxy.HeaderToken, g.String())
	x.w.Header().Set(headerTrusted, strconv.FormatInt(trusted, 10))
	x.json(leaseAnswer{
		FenceToken: g.String(), Scope: g.Scope, Tenant: s.tenant, ID: s.id, Token: g.Token,
		Status: status.String(), Holder: holder, TrustedFor: trusted, Cancelled: cancelled,
	})
}

// scope answers somebody who need not be the holder.
func (x *exchange) scope(s scope, l claims.Lease) {
	a := scopeAnswer{
		Scope: s.key, Tenant: s.tenant, ID: s.id, Token: l.Token, Status: l.Status.String(), Holder: shown(l.Holder), Cancelled: l.Cancelled,
	}
	if l.Status == claims.LeaseLive {
		a.Remaining = max(l.Remaining, 0).Milliseconds()
	}
	x.json(a)
}

func (x *exchange) json(v any) {
	b, err := json.Marshal(v)
	if err != nil { // our own structs
		panic(err)
	}
	x.write(http.StatusOK, "application/json", b)
}

func (x *exchange) write(status int, contentType string, body []byte) {
	x.w.Header().Set("Content-Type", contentType)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	x.w.Write(body)
}
