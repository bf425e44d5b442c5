package sandbox

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Checkout.com: paths, fields and statuses by the official SDK (https://github.com/checkout/checkout-sdk-go); what a key keeps by
// https://checkout.com/docs/payments/manage-payments/retry-a-payment: 2xx answers for 24 hours, nothing else. What another request
// under a used key gets is not documented, so that here it gets the first answer, as if it were the same.
func init() {
	profiles["checkout"] = &profile{
		name: "checkout", title: "Checkout.com", header: "Cko-Idempotency-Key", credential: "Authorization",
		account:      func(r *request) string { return strings.TrimPrefix(r.header.Get("Authorization"), "Bearer ") },
		keyed:        ckoKeyed,
		keeps:        func(a answer) bool { return a.status/100 == 2 },
		unauthorized: func() answer { return ckoEmpty(401) },
		forbidden:    func() answer { return ckoEmpty(403) },
		limited:      func(string) answer { return ckoEmpty(429) },
		serverError: func(status int) answer {
			return ckoError(status, "processing_error", "gateway_error")
		},
		inUse:     func(*request) answer { return ckoEmpty(409) },
		malformed: func(string) answer { return ckoInvalid("request_body_malformed") },
		run:       (*call).runCheckout,
		reference: func(_ *call, _ string, o *object) string { return o.str("reference") },
		move:      ckoMove,
		notice:    ckoNotice,
	}
}

// ckoKeyed are the endpoints that are documented to take a key.
func ckoKeyed(r *request) bool {
	if r.method != "POST" {
		return false
	}
	for _, p := range []string{"/payments", "/payment-contexts", "/transfers"} {
		if r.path() == p {
			return true
		}
	}
	_, ok := fits("/payments/*/*", r.path())
	return ok && !strings.HasSuffix(r.path(), "/reversals")
}

func ckoEmpty(status int) answer { return answer{status: status} }

// ckoInvalid is the error of a request that cannot be processed.
func ckoInvalid(code string) answer { return ckoError(422, "request_invalid", code) }

func ckoError(status int, kind, code string) answer {
	return answerJSON(status, map[string]any{"request_id": "sandbox", "error_type": kind, "error_codes": []string{code}})
}

// ckoID is an id as the gateway makes them: a prefix and 26 letters and digits. The same of has the same id.
func ckoID(prefix, of string) string {
	sum := sha256.Sum256([]byte(prefix + of))
	return prefix + "_" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// ckoMake keeps a new object. fields are what the gateway shows of it.
func (x *call) ckoMake(kind, prefix string, fields map[string]any) *object {
	o := &object{kind: kind, id: ckoID(prefix, strconv.Itoa(len(x.s.order)+1)), account: x.r.account(), made: x.s.now(), fields: fields}
	fields["id"] = o.id
	x.keep(o)
	return o
}

// ckoFind is a payment of the account; nil: there is none.
func (x *call) ckoFind(id string) *object {
	o := x.s.objects[id]
	if x.fs.has("lookup-blind") || o == nil || o.kind != "payment" || o.account != x.r.account() {
		return nil
	}
	return o
}

// ckoOperations are the unsafe requests, by path.
var ckoOperations = map[string]func(x *call, doc map[string]any, ids []string) (answer, bool){
	"/payments":                  ckoPay,
	"/payments/*/authorizations": ckoIncrement,
	"/payments/*/captures":       ckoCapture,
	"/payments/*/refunds":        ckoRefund,
	"/payments/*/voids":          ckoVoid,
	"/payments/*/reversals":      ckoReverse,
	"/payments/*/cancellations":  ckoCancel,
	"/transfers":                 ckoTransfer,
	"/payment-contexts":          ckoContext,
}

func (x *call) runCheckout() (answer, bool) {
	if x.r.method == "GET" {
		return x.ckoGet(), true
	}
	for pattern, do := range ckoOperations {
		ids, ok := fits(pattern, x.r.path())
		if !ok || x.r.method != "POST" {
			continue
		}
		doc, ok := document(x.r.body)
		if !ok {
			return ckoInvalid("request_body_malformed"), false
		}
		return do(x, doc, ids)
	}
	return ckoEmpty(404), false
}

func (x *call) ckoGet() answer {
	q, err := url.ParseQuery(x.r.query())
	if err != nil {
		return ckoInvalid("query_invalid")
	}
	if x.r.path() == "/payments" {
		return x.ckoList(q)
	}
	if ids, ok := fits("/payments/*", x.r.path()); ok {
		if o := x.ckoFind(ids[0]); o != nil {
			return shown(o)
		}
	}
	if ids, ok := fits("/payments/*/actions", x.r.path()); ok {
		if o := x.ckoFind(ids[0]); o != nil {
			return x.ckoActions(o)
		}
	}
	if ids, ok := fits("/transfers/*", x.r.path()); ok && !x.fs.has("lookup-blind") {
		if o := x.s.objects[ids[0]]; o != nil && o.kind == "transfer" && o.account == x.r.account() {
			return shown(o)
		}
	}
	return ckoEmpty(404)
}

// ckoLag is how old an object must be to be listed. The delay of the index is not documented.
func (x *call) ckoLag() time.Duration {
	lag := time.Duration(0)
	for _, name := range []string{"list-lag", "search-lag"} {
		if f, ok := x.fs[name]; ok {
			lag = max(lag, f.time())
		}
	}
	return lag
}

// ckoList is GET /payments?reference=, newest first.
func (x *call) ckoList(q url.Values) answer {
	limit, skip := 10, 0
	for name, n := range map[string]*int{"limit": &limit, "skip": &skip} {
		v, err := strconv.Atoi(q.Get(name))
		if q.Has(name) && (err != nil || v < 0 || v > 100) {
			return ckoInvalid(name + "_invalid")
		} else if q.Has(name) {
			*n = v
		}
	}
	if q.Get("reference") == "" {
		return ckoInvalid("reference_required")
	}
	hits := x.visible("payment", x.ckoLag())
	hits = slices.DeleteFunc(hits, func(o *object) bool { return o.str("reference") != q.Get("reference") })
	data := []any{}
	for _, o := range hits[min(skip, len(hits)):min(skip+limit, len(hits))] {
		data = append(data, o.fields)
	}
	return answerJSON(200, map[string]any{"limit": limit, "skip": skip, "total_count": len(hits), "data": data})
}

// ckoActions is what was done to a payment, newest first.
func (x *call) ckoActions(pay *object) answer {
	list := []any{}
	for _, o := range x.visible("action", x.ckoLag()) {
		if o.str("payment") == pay.id {
			list = append(list, ckoShownAction(o))
		}
	}
	return answerJSON(200, list)
}

// ckoShownAction is an action without what only the sandbox keeps of it.
func ckoShownAction(o *object) map[string]any {
	out := map[string]any{}
	for k, v := range o.fields {
		if k != "payment" && k != "currency" {
			out[k] = v
		}
	}
	return out
}

func ckoTransfer(x *call, doc map[string]any, _ []string) (answer, bool) {
	amount, ok := wholeIn(doc, "source.amount")
	switch {
	case x.r.key() == "":
		return ckoInvalid("idempotency_key_required"), false
	case !ok || textIn(doc, "source.id") == "" || textIn(doc, "destination.id") == "":
		return ckoInvalid("transfer_invalid"), false
	}
	o := x.ckoMake("transfer", "tra", map[string]any{
		"status": "pending", "reference": textIn(doc, "reference"), "currency": textIn(doc, "source.currency"), "source": doc["source"],
	})
	x.book("transfers.create", o, amount, true)
	return answerJSON(201, map[string]any{"id": o.id, "status": "pending", "_links": ckoLinks("/transfers/" + o.id)}), true
}

func ckoContext(x *call, doc map[string]any, _ []string) (answer, bool) {
	if textIn(doc, "source.type") == "" {
		return ckoInvalid("payment_source_required"), false
	}
	o := x.ckoMake("context", "pct", map[string]any{"reference": textIn(doc, "reference")})
	x.book("payment_contexts.create", o, 0, false)
	return answerJSON(201, map[string]any{
		"id": o.id, "partner_metadata": map[string]any{}, "_links": ckoLinks("/payment-contexts/" + o.id),
	}), true
}

func ckoLinks(self string, others ...string) map[string]any {
	links := map[string]any{"self": map[string]any{"href": "https://api.sandbox.checkout.com" + self}}
	for _, o := range others {
		links[o] = map[string]any{"href": fmt.Sprintf("https://api.sandbox.checkout.com%s/%s", self, o)}
	}
	return links
}
