package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Acme is nobody's gateway: a plain JSON API that plays each way of dealing with a repeat. Its gateway file is the worked example.
func init() {
	acme := func(name, title string, set func(*profile)) {
		p := &profile{
			name: name, title: title, header: "Idempotency-Key", credential: "Authorization",
			unauthorized: func() answer { return acmeError(401, "unauthorized", "The API key is not known") },
			forbidden:    func() answer { return acmeError(403, "forbidden", "The API key may not do this") },
			limited:      func(string) answer { return acmeError(429, "rate_limited", "Too many requests") },
			serverError:  func(status int) answer { return acmeError(status, "internal", "Something went wrong on our side") },
			inUse:        func(*request) answer { return acmeError(409, "key_in_use", "A request with this key is under way") },
			malformed:    func(message string) answer { return acmeError(400, "malformed", message) },
			params:       func(r *request) string { return r.method + " " + r.target + " " + string(r.body) },
			conflict: func(*request, *entry) answer {
				return acmeError(422, "key_reused", "The key was used for another request")
			},
			repeat:    func(_ *call, e *entry) answer { return e.answer.with("Acme-Replayed", "true") },
			run:       (*call).runAcme,
			reference: func(_ *call, _ string, o *object) string { return o.str("reference") },
			move:      moveAcme,
			notice:    acmeNotice,
		}
		set(p)
		profiles[name] = p
	}
	acme("acme", "Acme: the stored first answer", func(*profile) {})
	acme("acme-state", "Acme: the current state of the first object", func(p *profile) {
		p.repeat = func(_ *call, e *entry) answer {
			if e.object == nil {
				return e.answer
			}
			return answerJSON(200, e.object.fields)
		}
	})
	acme("acme-pointing", "Acme: a refusal that points at the first object", func(p *profile) {
		p.keeps = func(a answer) bool { return a.status/100 == 2 }
		p.conflict = nil
		p.repeat = func(_ *call, e *entry) answer {
			if e.object == nil { // what stands under the key is an error
				return e.answer
			}
			return answerJSON(409, map[string]any{"error": map[string]any{"code": "already_done", "message": "The key was used", "payment": e.object.id}})
		}
	})
	acme("acme-after-error", "Acme: nothing stored after an error", func(p *profile) {
		p.keeps = func(a answer) bool { return a.status/100 == 2 }
	})
	acme("acme-ignored-body", "Acme: the body of a repeat is ignored", func(p *profile) { p.conflict = nil })
	acme("acme-window", "Acme: duplicates by content, for two minutes, no keys", func(p *profile) {
		p.key = func(r *request) string {
			sum := sha256.Sum256([]byte(r.target + " " + string(r.body)))
			return hex.EncodeToString(sum[:8])
		}
		p.retention = 2 * time.Minute
		p.repeat = func(*call, *entry) answer { return acmeError(422, "duplicate", "A duplicate was submitted") }
		p.inUse = func(*request) answer { return acmeError(422, "duplicate", "A duplicate was submitted") }
	})
	acme("acme-keyless", "Acme: no keys at all", func(p *profile) { p.keyed = func(*request) bool { return false } })
}

func acmeError(status int, code, message string) answer {
	return answerJSON(status, map[string]any{"error": map[string]any{"code": code, "message": message}})
}

func (x *call) runAcme() (answer, bool) {
	p := x.r.path()
	if x.r.method == "GET" {
		return x.getAcme(p), true
	}
	doc, ok := document(x.r.body)
	if !ok {
		return acmeError(400, "malformed", "The body is no JSON object"), false
	}
	if x.r.method == "POST" {
		if p == "/payments" {
			return x.payAcme(doc)
		}
		for _, kind := range []string{"capture", "refunds", "void"} {
			if ids, ok := fits("/payments/*/"+kind, p); ok {
				return x.changeAcme(ids[0], kind, doc)
			}
		}
	}
	return acmeError(404, "no_such_path", x.r.method+" "+p), false
}

// acmeCards pick the outcome of a payment.
var acmeCards = map[string]string{"ok": "paid", "slow": "pending", "declined": "failed"}

func (x *call) payAcme(doc map[string]any) (answer, bool) {
	amount, ok := wholeIn(doc, "amount")
	currency, card := textIn(doc, "currency"), textIn(doc, "card")
	status, known := acmeCards[card]
	switch {
	case !ok || currency == "":
		return acmeError(400, "invalid", "amount and currency are needed"), false
	case !known:
		return acmeError(400, "invalid", "card must be ok, slow or declined"), false
	case x.fs.has("decline"):
		status = "failed"
	case x.fs.has("processing"):
		status = "pending"
	case status == "paid" && textIn(doc, "capture") == "false":
		status = "authorized"
	}
	o := x.madeAcme("payment", "pay", map[string]any{
		"amount": amount, "currency": currency, "status": status, "reference": textIn(doc, "reference"), "refunded": int64(0),
	})
	if status == "failed" {
		return answerJSON(402, map[string]any{"error": map[string]any{"code": "declined", "message": "The card was declined", "payment": o.id}}), true
	}
	x.book("payments.create", o, amount, true)
	return answerJSON(201, o.fields), true
}

func (x *call) madeAcme(kind, prefix string, fields map[string]any) *object {
	o := &object{kind: kind, id: fmt.Sprintf("%s_%08d", prefix, len(x.s.order)+1), account: x.r.account(), made: x.s.now(), fields: fields}
	fields["id"], fields["created"] = o.id, o.made.UTC().Format(time.RFC3339)
	x.keep(o)
	return o
}

func (x *call) changeAcme(id, kind string, doc map[string]any) (answer, bool) {
	pay := x.s.objects[id]
	if pay == nil || pay.kind != "payment" || pay.account != x.r.account() {
		return acmeError(404, "no_such_payment", id), false
	}
	from := map[string]string{"capture": "authorized", "refunds": "paid", "void": "authorized"}[kind]
	if pay.str("status") != from {
		return acmeError(409, "wrong_state", "The payment is "+pay.str("status")), true
	}
	if kind != "refunds" {
		pay.fields["status"] = map[string]string{"capture": "paid", "void": "voided"}[kind]
		x.book("payments."+kind, pay, pay.num("amount"), kind == "capture")
		return answerJSON(200, pay.fields), true
	}
	amount, ok := wholeIn(doc, "amount")
	if !ok {
		amount = pay.num("amount") - pay.num("refunded")
	}
	if amount <= 0 || amount > pay.num("amount")-pay.num("refunded") {
		return acmeError(409, "too_much", "There is not so much left to refund"), true
	}
	pay.fields["refunded"] = pay.num("refunded") + amount
	o := x.madeAcme("refund", "ref", map[string]any{
		"amount": amount, "currency": pay.str("currency"), "status": "paid", "reference": textIn(doc, "reference"), "payment": id,
	})
	x.book("refunds.create", o, amount, true)
	return answerJSON(201, o.fields), true
}

func (x *call) getAcme(p string) answer {
	q, err := url.ParseQuery(x.r.query())
	if err != nil {
		return acmeError(400, "malformed", "The query cannot be read")
	}
	lag := time.Duration(0)
	if f, ok := x.fs["list-lag"]; ok {
		lag = f.time()
	}
	switch ids, of := fits("/payments/*/refunds", p); {
	case p == "/payments":
		return x.listAcme("payments", "payment", lag, q, func(*object) bool { return true })
	case p == "/payments/search":
		lag = max(x.s.cfg.SearchLag, 0)
		if f, ok := x.fs["search-lag"]; ok {
			lag = f.time()
		}
		return x.listAcme("payments", "payment", lag, q, func(o *object) bool { return o.str("reference") == q.Get("reference") })
	case of:
		return x.listAcme("refunds", "refund", lag, q, func(o *object) bool { return o.str("payment") == ids[0] })
	}
	if ids, ok := fits("/payments/*", p); ok && !x.fs.has("lookup-blind") {
		if o := x.s.objects[ids[0]]; o != nil && o.kind == "payment" && o.account == x.r.account() {
			return answerJSON(200, o.fields)
		}
	}
	return acmeError(404, "not_found", p)
}

// listAcme shows a hundred at most, newest first.
func (x *call) listAcme(name, kind string, lag time.Duration, q url.Values, also func(*object) bool) answer {
	since, err := time.Parse(time.RFC3339, q.Get("created_after"))
	if err != nil && q.Has("created_after") {
		return acmeError(400, "malformed", "created_after must be a time")
	}
	hits := slices.DeleteFunc(x.visible(kind, lag), func(o *object) bool { return o.made.Before(since) || !also(o) })
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(hits, func(o *object) bool { return o.id == after })
		hits = hits[i+1:]
	}
	items := []any{}
	for _, o := range hits[:min(100, len(hits))] {
		items = append(items, o.fields)
	}
	return answerJSON(200, map[string]any{name: items, "has_more": len(hits) > 100})
}

func moveAcme(_ *Server, o *object, to string) error {
	status := map[string]string{"done": "paid", "failed": "failed", "reversed": "voided"}[to]
	if status == "" || !slices.Contains([]string{"pending", "authorized"}, o.str("status")) {
		return fmt.Errorf("%s %s is %s: it cannot be moved to %q", o.kind, o.id, o.str("status"), to)
	}
	o.fields["status"] = status
	return nil
}

// acmeNotice is signed over its body.
func acmeNotice(s *Server, o *object, _ string, h Hook) (notice, bool) {
	if o.kind != "payment" && o.kind != "refund" {
		return notice{}, false
	}
	s.serial++
	a := answerJSON(200, map[string]any{
		"id": fmt.Sprintf("evt_%08d", s.serial), "type": o.kind + "." + o.str("status"), "created": s.now().UTC().Format(time.RFC3339), "data": o.fields,
	})
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write(a.body)
	return notice{body: a.body, header: []Line{{"Content-Type", "application/json"}, {"Acme-Signature", hex.EncodeToString(mac.Sum(nil))}}}, true
}
