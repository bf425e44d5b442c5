package sandbox

import "strings"

// paypalCreatePayout takes a batch of payouts. A sender's batch id that was used before is refused, with a link to the first
// batch; the note ERRPYO002 is PayPal's test value of a sender whose address is not confirmed.
func (x *call) paypalCreatePayout(_ []string, doc map[string]any) (answer, bool) {
	list, _ := doc["items"].([]any)
	total, currency := int64(0), textIn(doc, "items.0.amount.currency")
	for _, it := range list {
		n, ok := minorIn(it, "amount.value")
		if !ok || textIn(it, "receiver") == "" || textIn(it, "amount.currency") != currency || currency == "" {
			return paypalError(400, "VALIDATION_ERROR", "REQUIRED_FIELD_MISSING"), false
		}
		total += n
	}
	batch := textIn(doc, "sender_batch_header.sender_batch_id")
	switch {
	case len(list) == 0 || in(doc, "sender_batch_header") == nil:
		return paypalError(400, "VALIDATION_ERROR", "REQUIRED_FIELD_MISSING"), false
	case textIn(doc, "items.0.note") == "ERRPYO002":
		return paypalError(403, "SENDER_EMAIL_UNCONFIRMED", ""), false
	}
	if first := x.paypalBatch(batch); first != nil {
		a := paypalError(400, "USER_BUSINESS_ERROR", "DUPLICATE_SENDER_BATCH_ID")
		a.body = []byte(strings.Replace(string(a.body), `"links": []`,
			`"links": [{"rel": "self", "method": "GET", "href": "https://api-m.sandbox.paypal.com/v1/payments/payouts/`+first.id+`"}]`, 1))
		return a, false
	}
	o := x.paypalMake("payout", map[string]any{"links": []any{}, "_batch": batch})
	delete(o.fields, "id")
	delete(o.fields, "create_time")
	o.fields["batch_header"] = map[string]any{
		"payout_batch_id": o.id, "batch_status": "PENDING", "time_created": o.made.UTC().Format("2006-01-02T15:04:05Z"),
		"sender_batch_header": in(doc, "sender_batch_header"),
		"amount":              map[string]any{"currency": currency, "value": paypalMoney(total, "")["value"]},
	}
	var items []any
	for _, it := range list {
		p := x.paypalMake("payout_item", map[string]any{
			"transaction_status": "PENDING", "payout_batch_id": o.id, "payout_item": it, "sender_batch_id": batch, "links": []any{},
		})
		p.fields["payout_item_id"] = p.id
		delete(p.fields, "id")
		delete(p.fields, "create_time")
		items = append(items, p.fields)
	}
	o.fields["items"] = items
	x.bookIn("payouts.create", o, total, currency, true)
	return x.paypalShow(201, o), true
}

func (x *call) paypalBatch(id string) *object {
	for _, o := range x.s.order {
		if o.kind == "payout" && id != "" && o.str("_batch") == id && o.account == paypalMerchant(x.r) {
			return o
		}
	}
	return nil
}

// movePayout moves a batch and its items on. A receiver called unclaimed… has no account, so the item waits.
func (s *Server) movePayout(o *object, status string) {
	o.fields["batch_header"].(map[string]any)["batch_status"] = status
	for _, it := range o.fields["items"].([]any) {
		item := it.(map[string]any)
		switch {
		case status == "SUCCESS" && strings.HasPrefix(textIn(item, "payout_item.receiver"), "unclaimed"):
			item["transaction_status"] = "UNCLAIMED"
		case status == "SUCCESS":
			item["transaction_status"] = "SUCCESS"
		case status == "DENIED":
			item["transaction_status"] = "FAILED"
		default:
			item["transaction_status"] = "RETURNED"
		}
	}
}

// paypalCancelItem gives an item that nobody claimed back to the sender.
func (x *call) paypalCancelItem(ids []string, _ map[string]any) (answer, bool) {
	o, a := x.paypalFind("payout_item", ids[0])
	switch {
	case o == nil:
		return a, false
	case o.str("transaction_status") == "RETURNED":
		return paypalError(400, "ITEM_ALREADY_CANCELLED", ""), false
	case o.str("transaction_status") != "UNCLAIMED":
		return paypalError(400, "ITEM_INCORRECT_STATUS", ""), false
	}
	o.fields["transaction_status"] = "RETURNED"
	n, _ := minorIn(o.fields, "payout_item.amount.value")
	x.bookIn("payouts_items.cancel", o, n, textIn(o.fields, "payout_item.amount.currency"), true)
	return x.paypalShow(200, o), true
}
