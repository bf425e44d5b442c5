package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// maxShadowBody is how much of a body without a length is kept in memory, in bytes: the gateway is sent a length.
const maxShadowBody = 64 << 20

// shadow passes a request on as the app wrote it, once, and judges beside that what enforcing would have done. Nothing is refused
// but what cannot be passed on at all.
func (x *exchange) shadow(w http.ResponseWriter) {
	x.kind = "shadow"
	began := time.Now()
	if x.r.Method == http.MethodConnect {
		x.refuse(w, bad("the method is not served"))
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.gateway.AttemptTimeout)
	defer cancel()
	call, body, rest, err := x.weigh(w)
	if err != nil {
		x.refuse(w, asRefusal(err))
		return
	}
	if err := x.supply(ctx); err != nil {
		x.refuse(w, asRefusal(err))
		return
	}
	sw := &shadowWriter{statusWriter: statusWriter{ResponseWriter: w}, x: x, limit: x.gateway.AnswerLimit, began: began}
	sent := claims.Sent{Cause: CauseTruncated} // what a panic of the stream leaves
	if call != nil {
		report := make(chan claims.Sent, 1)
		sw.told = x.p.Fence.Shadow(*call, report)
		defer func() { report <- sent; x.compare(sent) }()
	}
	var restLength int64
	if rest != nil {
		restLength = x.r.ContentLength - int64(len(body))
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		if end, ok := ctx.Deadline(); ok {
			rc.SetReadDeadline(end) // an app that stops sending holds nothing
			defer rc.SetReadDeadline(time.Time{})
		}
	}
	err = x.stream(ctx, sw, body, rest, restLength)
	sw.await()
	sent = x.outcome(sw, err)
	x.passed(w, err, sw.status)
}

// weigh reads the request and makes the call that an enforcing proxy would have asked the fence about; nil where it would not have
// come to that, and x.would says why. An error is a request that cannot be passed on.
func (x *exchange) weigh(w http.ResponseWriter) (call *claims.Call, body []byte, rest io.Reader, err error) {
	if why := disguised(x.r.Method, x.head.Fields); why != "" {
		x.wouldRefuse(bad("%s", why))
	}
	safe := gateways.Safe(x.r.Method)
	if safe && x.would == "" {
		x.would = claims.WouldPass
	}
	routed, limit, ref := x.open()
	if ref != nil && x.would == "" {
		x.wouldRefuse(ref)
	}
	limit = max(limit, x.gateway.BodyLimit)
	if body, rest, err = x.shadowBody(w, limit); err != nil {
		return nil, nil, nil, err
	}
	if x.would == "" && (rest != nil || int64(len(body)) > x.bodyLimit(routed)) {
		x.wouldRefuse(&claims.Refusal{Reason: claims.TooLarge})
	}
	if x.would != "" {
		return nil, body, rest, nil
	}
	x.in.Body = body
	c, ref := x.call(routed)
	switch {
	case ref != nil && ref.Reason == claims.Untagged && x.untagged(routed) == gateways.UntaggedPass && x.respelled(routed) != "":
		x.wouldRefuse(bad("the path is respelled"))
	case ref != nil && ref.Reason == claims.Untagged && x.untagged(routed) == gateways.UntaggedPass:
		x.would = claims.WouldPass
	case ref != nil:
		x.wouldRefuse(ref)
	default:
		return &c, body, rest, nil
	}
	return nil, body, rest, nil
}

func (x *exchange) wouldRefuse(ref *claims.Refusal) {
	x.would = claims.Would{What: claims.WouldRefuse, Reason: ref.Reason}.String()
}

func (x *exchange) bodyLimit(routed bool) int64 {
	if routed {
		return x.match.Policy().BodyLimit
	}
	return x.gateway.BodyLimit
}

// shadowBody reads a body up to the limit; the rest of one with a length is left to be read while it is sent.
func (x *exchange) shadowBody(w http.ResponseWriter, limit int64) (body []byte, rest io.Reader, err error) {
	if x.r.ContentLength < 0 {
		limit = maxShadowBody
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	body, err = io.ReadAll(io.LimitReader(x.r.Body, limit+1))
	switch {
	case err != nil:
		return nil, nil, bad("the body could not be read to its end")
	case int64(len(body)) <= limit:
		return body, nil, nil
	case x.r.ContentLength < 0:
		return nil, nil, &claims.Refusal{
			Reason: claims.TooLarge, Detail: fmt.Sprintf("a body without a length and over %d bytes cannot be passed on", limit),
		}
	}
	return body, x.r.Body, nil
}

// outcome is what came of the request, for the record and for the breaker.
func (x *exchange) outcome(sw *shadowWriter, err error) claims.Sent {
	if e, ok := errors.AsType[*SendError](err); ok {
		x.unanswered(&Exchange{Cause: e.Cause, Wrote: e.Wrote, Err: e.Err})
		return claims.Sent{Unsent: !e.Wrote, Local: e.Cause == CauseRequest, Cause: e.Cause}
	}
	if sw.cut || x.match.Route == nil {
		return claims.Sent{Cause: CauseOversize}
	}
	a := &claims.Answer{Status: sw.status, Header: sw.fields, Body: sw.kept.Bytes()}
	return classified(x.gateway.Classify(x.match.Route.Name, a), a)
}

// compare notes what the gateway made of a request that enforcing would have answered by itself.
func (x *exchange) compare(s claims.Sent) {
	if x.would == claims.WouldReplay {
		x.repeat = "other"
		if replayed := x.gateway.Replayed; s.Answer != nil && replayed != nil && marked(s.Answer.Header, replayed) {
			x.repeat = "replayed"
		} else if s.Outcome == claims.Succeeded {
			x.repeat = "executed"
		}
	}
}

func marked(fields []claims.Field, by *gateways.HeaderValue) bool {
	for _, v := range valuesOf(fields, by.Name) {
		if strings.EqualFold(v, by.Value) {
			return true
		}
	}
	return false
}

// shadowWriter says on the answer what the shadow decided, and keeps a copy of it to be read.
type shadowWriter struct {
	statusWriter
	x     *exchange
	told  <-chan claims.Would
	began time.Time

	limit  int64
	fields []claims.Field
	kept   bytes.Buffer
	cut    bool // the answer is over the limit
}

// await takes the decision; after ShadowTime since the request began it is not waited for.
func (w *shadowWriter) await() {
	if w.told == nil || w.x.would != "" {
		return
	}
	left := time.NewTimer(time.Until(w.began.Add(claims.ShadowTime)))
	defer left.Stop()
	select {
	case would := <-w.told:
		w.x.would = would.String()
	case <-left.C:
		w.x.would = claims.WouldNotTell
	}
}

func (w *shadowWriter) WriteHeader(status int) {
	w.await()
	h := w.Header()
	for name, values := range h {
		for _, v := range values {
			w.fields = append(w.fields, claims.Field{Name: name, Value: v})
		}
	}
	h.Set(HeaderShadow, "would="+w.x.would)
	w.statusWriter.WriteHeader(status)
}

func (w *shadowWriter) Write(b []byte) (int, error) {
	if int64(w.kept.Len()+len(b)) > w.limit {
		w.cut = true
	} else {
		w.kept.Write(b)
	}
	return w.statusWriter.Write(b)
}
