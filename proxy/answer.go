package proxy

import (
	"net/http"
	"strconv"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// writeAnswer gives a gateway's answer: the same status, lines and bytes, whether it is fresh or stored.
func writeAnswer(w http.ResponseWriter, a *claims.Answer) {
	h := w.Header()
	SetFields(h, a.Header)
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified && a.Status >= 200 {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	w.Write(a.Body)
}

// writeFence sets the fence's own answer headers. Fence-Outcome speaks of the call, Fence-Result of this request.
func (x *exchange) writeFence(w http.ResponseWriter) {
	h, r := w.Header(), &x.result
	if x.p.Shadow { // nothing is promised
		h.Set(HeaderShadow, "would="+x.would)
		h.Set("Proxy-Status", proxyStatus(r))
		return
	}
	h.Set(HeaderOutcome, r.Outcome.String())
	h.Set(HeaderResult, string(r.Source))
	if r.Attempt > 0 {
		h.Set(HeaderAttempt, strconv.Itoa(r.Attempt))
	}
	if x.callKey != "" {
		h.Set(HeaderCall, claims.ScopeKey(x.tenant, x.callKey))
	}
	if r.Lease != "" {
		h.Set(HeaderLease, r.Lease)
	}
	h.Set("Proxy-Status", proxyStatus(r))
}

// proxyErrors are the error types of RFC 9209 for what ended a send.
var proxyErrors = map[string]string{
	CauseDNS: "dns_error", CauseDial: "destination_unavailable", CauseTLS: "tls_protocol_error",
	CauseProxy: "destination_unavailable", CauseTimeout: "http_response_timeout", CauseCut: "connection_terminated", CauseWrite: "connection_write_timeout",
	CauseTruncated: "http_response_incomplete", CauseCloseFramed: "http_response_incomplete",
	CauseOversize: "http_response_body_size", CauseMalformed: "http_protocol_error", CauseUpgrade: "http_upgrade_failed",
}

// proxyStatus is the Proxy-Status of RFC 9209.
func proxyStatus(r *claims.Result) string {
	const us = "fence-sidecar"
	if r.Refusal == nil {
		return us + "; received-status=" + strconv.Itoa(r.Answer.Status)
	}
	kind := "http_request_denied"
	if e, ok := proxyErrors[r.Cause]; ok && r.Sends > 0 || ok && r.Refusal.Reason == claims.NotSent {
		kind = e
	} else if problems[r.Refusal.Reason].status == 503 {
		kind = "proxy_internal_response"
	}
	return us + "; error=" + kind + `; details="` + string(r.Refusal.Reason) + `"`
}
