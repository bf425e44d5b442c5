package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// send makes one attempt: the request is stamped with the stored key and reference, so that every attempt has the same
// bytes, and leaves once.
func (x *exchange) send(ctx context.Context, a claims.Pass, gate func() error) claims.Sent {
	if err := x.supply(ctx); err != nil { // now, so that a replay needs no credential
		x.p.Log.Warn("no credential for a call: nothing was sent", "gateway", x.gateway.Name, "account", a.Facts.Account, "error", err)
		return claims.Sent{Unsent: true, Local: true, Cause: "credential", Detail: err.Error()}
	}
	in := x.in
	in.Header = x.supplied
	header, body, err := x.match.Stamp(in, a.Facts)
	if err != nil {
		return claims.Sent{Unsent: true, Local: true, Cause: "stamp", Detail: err.Error()}
	}
	policy := x.match.Policy()
	ex := x.p.Egress[x.gateway.Name].Send(ctx, Outbound{
		Method: x.in.Method, Target: x.in.Target, Host: x.host(), Header: header, Body: body,
		HadLength: x.head.HasCL || x.head.HasTE, Fresh: policy.FreshDial,
		AllowCloseFramed: policy.AllowCloseFramed, AnswerLimit: policy.AnswerLimit,
	}, gate)
	x.p.Metrics.attempt(x.gateway.Name, &ex)
	if ex.Answer == nil {
		s := claims.Sent{Unsent: !ex.Wrote, Local: ex.Cause == CauseRequest, Cause: ex.Cause}
		x.unanswered(&ex)
		return s
	}
	if x.p.TurnedDown != nil && ex.Answer.Status == http.StatusUnauthorized && x.gateway.Credentials == gateways.CredentialsSidecar {
		for _, f := range x.supplied {
			if strings.EqualFold(f.Name, x.gateway.CredentialHeader) {
				x.p.TurnedDown(x.gateway.Name, a.Facts.Account, f.Value)
			}
		}
	}
	s := classified(x.gateway.Classify(x.match.Route.Name, ex.Answer), ex.Answer)
	s.Error = x.gateway.IsError(ex.Answer)
	return s
}

// unanswered says why an attempt has no answer. Only the errors of connecting are shown: any other may repeat bytes of the request, or
// of an answer that echoes it.
func (x *exchange) unanswered(ex *Exchange) {
	about := []any{"gateway", x.gateway.Name, "cause", ex.Cause, "wrote", ex.Wrote}
	switch ex.Cause {
	case CauseDNS, CauseDial, CauseTLS, CauseProxy:
		about = append(about, "error", ex.Err)
	}
	x.p.Log.Info("attempt without an answer", about...)
}

// classified puts the gateway's answer table and the sender's words together.
func classified(c gateways.Class, a *claims.Answer) claims.Sent {
	s := claims.Sent{
		Outcome: c.Outcome, Stored: c.Stored, Refused: c.Refused, InUse: c.InUse, Transient: c.Transient, Answer: a, Payment: c.Payment, Object: c.Object, Cause: "answered",
	}
	if !c.Outcome.Definite() {
		s.Cause = "unlisted"
	}
	return s
}

// supply finds the header lines that the request goes out with.
func (x *exchange) supply(ctx context.Context) (err error) {
	in := x.in
	in.Header = ForwardFields(x.head)
	x.supplied, err = x.gateway.Supply(ctx, in, x.p.Realm)
	return err
}

// host is the Host line: the gateway's own name, never ours.
func (x *exchange) host() string {
	if len(x.gateway.Hosts) > 0 {
		return x.gateway.Hosts[0]
	}
	return ""
}

// pass sends an unfenced request on: a safe method, or an untagged one that the gateway's settings let pass.
func (x *exchange) pass(w http.ResponseWriter, body []byte) {
	x.kind = "passed"
	ctx, cancel := context.WithTimeout(x.r.Context(), x.gateway.AttemptTimeout)
	defer cancel()
	if err := x.supply(ctx); err != nil {
		x.refuse(w, asRefusal(err))
		return
	}
	sw := &statusWriter{ResponseWriter: w}
	x.passed(w, x.stream(ctx, sw, body, nil, 0), sw.status)
}

// stream sends a request on as it came. rest are further bytes of the body, of a known length.
func (x *exchange) stream(ctx context.Context, w http.ResponseWriter, body []byte, rest io.Reader, restLength int64) error {
	return x.p.Egress[x.gateway.Name].Stream(ctx, Outbound{
		Method: x.r.Method, Target: x.target, Host: x.host(), Header: x.supplied, Body: body, Rest: rest, RestLength: restLength,
		HadLength: x.head.HasCL || x.head.HasTE, AllowCloseFramed: x.p.Shadow, // as without us
	}, w)
}

// passed answers where no answer of the gateway could be passed on.
func (x *exchange) passed(w http.ResponseWriter, err error, status int) {
	x.status = status
	if err == nil || status != 0 {
		return
	}
	ref := &claims.Refusal{Reason: claims.NotSent, Detail: "the gateway could not be reached", Outcome: claims.Unknown}
	if e, ok := errors.AsType[*SendError](err); ok && e.Wrote {
		ref = &claims.Refusal{Reason: claims.InDoubt, Detail: "the gateway did not answer this unfenced request"}
	}
	kind := x.kind
	x.refuse(w, ref)
	x.kind = kind
}

// statusWriter remembers what was answered.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
