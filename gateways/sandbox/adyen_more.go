package sandbox

import (
	"net/url"
	"time"
)

func adyenMethods(*call, map[string]any, []string) (answer, bool) {
	return answerJSON(200, map[string]any{"paymentMethods": []any{map[string]any{"type": "scheme", "name": "Cards"}}}), true
}

// adyenPage makes a session or a link that a shopper pays with later.
func adyenPage(kind string) adyenHandler {
	return func(x *call, doc map[string]any, _ []string) (answer, bool) {
		m, a, ok := adyenMoney(doc, "amount")
		if !ok {
			return a, a.status == 422
		}
		o := x.adyenMake(kind, textIn(doc, "reference"), m)
		o.fields["status"] = "active"
		x.book(kind+"s.create", o, m.n, false)
		return answerJSON(201, adyenPageShown(o)), true
	}
}

func adyenPageShown(o *object) map[string]any {
	shown := map[string]any{"id": o.id, "merchantAccount": o.account, "reference": o.str("reference"), "amount": adyenAmount(o)}
	if o.kind == "paymentLink" {
		shown["status"], shown["url"] = o.str("status"), "https://test.adyen.link/"+o.id
	} else {
		shown["sessionData"] = "Ab02b4c0!" + o.id
	}
	return shown
}

func adyenOrder(x *call, doc map[string]any, _ []string) (answer, bool) {
	m, a, ok := adyenMoney(doc, "amount")
	if !ok {
		return a, a.status == 422
	}
	o := x.adyenMake("order", textIn(doc, "reference"), m)
	x.book("orders.create", o, m.n, false)
	return answerJSON(200, map[string]any{
		"pspReference": o.id, "resultCode": "Success", "orderData": "sandbox", "remainingAmount": adyenAmount(o),
		"reference": o.str("reference"),
	}), true
}

func adyenOrderCancel(x *call, doc map[string]any, _ []string) (answer, bool) {
	order := x.adyenFind("order", textIn(doc, "merchantAccount"), textIn(doc, "order.pspReference"))
	if order == nil {
		return adyenInvalid("167", "Original pspReference required for this operation"), true
	}
	o := x.adyenMake("orderCancel", "", order.adyenSum())
	x.book("orders.cancel", o, order.num("amount"), false)
	return answerJSON(200, map[string]any{"pspReference": o.id, "resultCode": "Received"}), true
}

func adyenDonate(x *call, doc map[string]any, _ []string) (answer, bool) {
	m, a, ok := adyenMoney(doc, "amount")
	if !ok {
		return a, a.status == 422
	}
	o := x.adyenMake("donation", textIn(doc, "reference"), m)
	shown := map[string]any{"id": "D" + o.id, "reference": o.str("reference"), "merchantAccount": m.merchant, "amount": adyenAmount(o)}
	status, code := "completed", "Authorised"
	switch {
	case x.fs.has("decline"):
		status, code = "refused", "Refused"
	case x.fs.has("processing"):
		status, code = "pending", "Pending"
	}
	if status != "refused" {
		x.book("donations.create", o, m.n, true)
	}
	shown["status"] = status
	shown["payment"] = map[string]any{"pspReference": o.id, "resultCode": code, "merchantReference": o.str("reference")}
	return answerJSON(200, shown), true
}

// adyenAuthorise is the Classic API's payment; it keeps no key.
func adyenAuthorise(x *call, doc map[string]any, _ []string) (answer, bool) {
	m, a, ok := adyenMoney(doc, "amount")
	if !ok {
		return a, a.status == 422
	}
	o := x.adyenMake("payment", textIn(doc, "reference"), m)
	code, reason := x.adyenResult(doc)
	return x.adyenCome(o, "classic.authorise", code, reason), true
}

// adyenClassic is a modification of the Classic API.
func adyenClassic(kind, name string) adyenHandler {
	return func(x *call, doc map[string]any, _ []string) (answer, bool) {
		amount := ""
		if adyenTakesAmount(kind) {
			amount = "modificationAmount"
		}
		m, a, ok := adyenMoney(doc, amount)
		if !ok {
			return a, a.status == 422
		}
		pay := x.adyenFind("payment", m.merchant, textIn(doc, "originalReference"))
		if pay == nil {
			return adyenInvalid("167", "Original pspReference required for this operation"), true
		}
		o := x.adyenChange(kind, pay, m.n, textIn(doc, "reference"))
		return answerJSON(200, map[string]any{"pspReference": o.id, "response": "[" + name + "-received]"}), true
	}
}

// adyenProblem is an error of the Transfers API.
func adyenProblem(status int, code, title string, fields ...string) answer {
	v := map[string]any{
		"type": "https://docs.adyen.com/errors/validation", "errorCode": code, "title": title, "detail": title, "status": status,
	}
	if len(fields) > 0 {
		invalid := []any{}
		for _, f := range fields {
			invalid = append(invalid, map[string]any{"name": f, "message": "is missing"})
		}
		v["invalidFields"] = invalid
	}
	return answerJSON(status, v)
}

func adyenTransfer(x *call, doc map[string]any, _ []string) (answer, bool) {
	n, ok := wholeIn(doc, "amount.value")
	currency := textIn(doc, "amount.currency")
	if !ok || currency == "" {
		return adyenProblem(422, "00_600", "Invalid request", "amount"), true
	}
	reference := textIn(doc, "reference")
	o := x.adyenMake("transfer", reference, adyenSum{n: n, currency: currency})
	if reference == "" {
		o.fields["reference"] = o.id // Adyen makes one up
	}
	o.fields["status"] = adyenAuthorised
	switch {
	case x.fs.has("decline"):
		o.fields["status"] = adyenRefused
	case x.fs.has("processing"):
		o.fields["status"] = "received"
	}
	if o.str("status") != adyenRefused {
		x.book("transfers.create", o, n, true)
	}
	return answerJSON(202, adyenTransferShown(o)), true
}

func adyenReturn(x *call, doc map[string]any, ids []string) (answer, bool) {
	from := x.adyenFind("transfer", "", ids[0])
	n, ok := wholeIn(doc, "amount.value")
	if from == nil || !ok {
		return adyenProblem(422, "00_600", "Invalid request", "transferId"), true
	}
	o := x.adyenMake("return", textIn(doc, "reference"), adyenSum{n: n, currency: from.str("currency")})
	shown := map[string]any{"id": o.id, "transferId": from.id, "reference": o.str("reference"), "status": "Authorised"}
	if n > from.num("amount")-from.num("refunded") {
		shown["status"] = "Declined"
		return answerJSON(200, shown), true
	}
	from.fields["refunded"] = from.num("refunded") + n
	x.book("transfers.return", o, n, true)
	return answerJSON(200, shown), true
}

func adyenTransferShown(o *object) map[string]any {
	return map[string]any{
		"id": o.id, "reference": o.str("reference"), "amount": adyenAmount(o), "status": o.str("status"),
		"creationDate": o.made.UTC().Format(time.RFC3339),
	}
}

// adyenGet reads what can be read: no payment can.
func (x *call) adyenGet(path string) answer {
	if path == "btl/transfers" {
		return x.adyenTransfers()
	}
	kinds := map[string]string{"btl/transfers/*": "transfer", "paymentLinks/*": "paymentLink", "sessions/*": "session"}
	for pattern, kind := range kinds {
		ids, ok := fits(pattern, path)
		if !ok || x.fs.has("lookup-blind") {
			continue
		}
		switch o := x.s.objects[ids[0]]; {
		case o == nil || o.kind != kind:
		case kind == "transfer":
			return answerJSON(200, adyenTransferShown(o))
		default:
			return answerJSON(200, adyenPageShown(o))
		}
	}
	return adyenError(404, "000", "validation", "Not found")
}

// adyenTransfers lists transfers between two dates, which must be given and be six months apart at most.
func (x *call) adyenTransfers() answer {
	q, err := url.ParseQuery(x.r.query())
	since, err1 := time.Parse(time.RFC3339, q.Get("createdSince"))
	until, err2 := time.Parse(time.RFC3339, q.Get("createdUntil"))
	if err != nil || err1 != nil || err2 != nil || until.After(since.AddDate(0, 6, 0)) {
		return adyenProblem(422, "00_600", "Invalid request", "createdSince", "createdUntil")
	}
	lag := time.Duration(0)
	if f, ok := x.fs["list-lag"]; ok {
		lag = f.time()
	}
	data := []any{}
	for _, o := range x.visible("transfer", lag) {
		if ref := q.Get("reference"); (ref == "" || ref == o.str("reference")) && !o.made.Before(since) && o.made.Before(until) {
			data = append(data, adyenTransferShown(o))
		}
	}
	return answerJSON(200, map[string]any{"data": data, "_links": map[string]any{}})
}
