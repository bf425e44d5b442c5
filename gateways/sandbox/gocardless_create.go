package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// gcPrefixes begin the ids of resources.
var gcPrefixes = map[string]string{
	"payments": "PM", "refunds": "RF", "subscriptions": "SB", "mandates": "MD", "customers": "CU", "instalment_schedules": "IS",
	"outbound_payments": "OUT", "billing_requests": "BRQ",
}

// gcCreate makes a resource. The body holds it in an envelope of the resource's name.
func (x *call) gcCreate(kind string, body map[string]any) (answer, bool) {
	given, ok := body[kind].(map[string]any)
	if !ok {
		return gcError(400, "invalid_api_usage", "invalid_document_structure", "The document has no "+kind), false
	}
	meta, a, ok := gcMetadata(kind, given)
	if !ok {
		return a, false
	}
	fields := map[string]any{"metadata": meta, "reference": given["reference"], "description": given["description"], "links": map[string]any{}}
	var book func(o *object)
	switch kind {
	case "customers":
		fields["email"], fields["company_name"] = given["email"], given["company_name"]
	case "mandates":
		fields["status"] = "pending_submission"
	case "billing_requests":
		a, ok = gcBilling(given, fields)
	case "refunds":
		book, a, ok = x.gcRefund(given, fields)
	case "outbound_payments":
		fields["currency"], fields["status"] = cmp.Or(textIn(given, "currency"), "GBP"), "scheduled"
		a, ok = gcMoney(kind, given, fields)
	default:
		a, ok = x.gcCollect(kind, given, fields)
	}
	if !ok {
		return a, false
	}
	o := x.gcMake(kind, fields)
	if book != nil {
		book(o)
	}
	x.book(kind+".create", o, o.num(gcAmount(kind)), fields[gcAmount(kind)] != nil)
	return gcShown(201, o), true
}

// gcMake keeps a new resource. The digits of its id are few, so that nobody takes it for a card number.
func (x *call) gcMake(kind string, fields map[string]any) *object {
	o := &object{
		kind: kind, id: fmt.Sprintf("%s00SBX%08d", gcPrefixes[kind], len(x.s.order)+1), account: x.r.account(),
		made: x.s.now(), fields: fields,
	}
	fields["id"], fields["created_at"] = o.id, o.made.UTC().Format(gcTime)
	x.keep(o)
	return o
}

// gcTime is how GoCardless writes a time.
const gcTime = "2006-01-02T15:04:05.000Z"

// gcMetadata takes up to three keys of 50 characters, with values of 500.
func gcMetadata(kind string, given map[string]any) (map[string]any, answer, bool) {
	meta := map[string]any{}
	if given["metadata"] == nil {
		return meta, answer{}, true
	}
	asked, ok := given["metadata"].(map[string]any)
	if !ok || len(asked) > 3 {
		return nil, gcInvalid(kind, "metadata", "must have at most 3 keys"), false
	}
	for name, v := range asked {
		text, ok := v.(string)
		if !ok || len(name) > 50 || len(text) > 500 {
			return nil, gcInvalid(kind, "metadata", "keys have at most 50, values at most 500 characters"), false
		}
		meta[name] = text
	}
	return meta, answer{}, true
}

// gcMoney reads the amount.
func gcMoney(kind string, given, fields map[string]any) (answer, bool) {
	n, ok := wholeIn(given, gcAmount(kind))
	if !ok {
		return gcInvalid(kind, gcAmount(kind), "must be a positive whole number"), false
	}
	fields[gcAmount(kind)] = n
	return answer{}, true
}

// gcCollect makes what collects money on a mandate: a payment, a subscription, an instalment schedule. Mandates that this sandbox
// does not know are taken as given.
func (x *call) gcCollect(kind string, given, fields map[string]any) (answer, bool) {
	if a, ok := gcMoney(kind, given, fields); !ok {
		return a, false
	}
	currency, mandate := strings.ToUpper(textIn(given, "currency")), textIn(given, "links.mandate")
	switch {
	case len(currency) != 3:
		return gcInvalid(kind, "currency", "is not a currency"), false
	case mandate == "":
		return gcInvalid(kind, "links.mandate", "can't be blank"), false
	}
	if md := x.s.objects[mandate]; x.fs.has("decline") || md != nil && slices.Contains([]string{"cancelled", "failed", "expired"}, md.str("status")) {
		return gcError(422, "invalid_state", "mandate_is_inactive", "Mandate is inactive"), false
	}
	fields["currency"], fields["links"] = currency, map[string]any{"mandate": mandate, "creditor": "CR00SBX"}
	fields["status"] = map[string]string{"payments": "pending_submission", "subscriptions": "active", "instalment_schedules": "pending"}[kind]
	if kind == "payments" {
		fields["amount_refunded"], fields["scheme"], fields["retry_if_possible"] = int64(0), "bacs", textIn(given, "retry_if_possible") == "true"
	}
	if x.fs.has("action") && kind != "instalment_schedules" {
		fields["status"] = "pending_customer_approval"
	}
	return answer{}, true
}

// gcRefund gives money of a payment back. book takes it from the payment once the refund is made.
func (x *call) gcRefund(given, fields map[string]any) (book func(*object), a answer, ok bool) {
	if a, ok := gcMoney("refunds", given, fields); !ok {
		return nil, a, false
	}
	n, _ := fields["amount"].(int64)
	pm := x.gcFind("payments", textIn(given, "links.payment"))
	if pm == nil {
		return nil, gcError(400, "invalid_api_usage", "link_not_found", "The payment was not found"), false
	}
	total := pm.num("amount_refunded") + n
	confirmed, given2 := wholeIn(given, "total_amount_confirmation")
	switch {
	case !slices.Contains([]string{"confirmed", "paid_out"}, pm.str("status")):
		return nil, gcError(422, "invalid_state", "refund_payment_invalid_state", "The payment has a status of "+pm.str("status")), false
	case total > pm.num("amount"):
		return nil, gcError(422, "invalid_state", "available_refund_amount_insufficient", "The refund is more than is left"), false
	case given2 && confirmed != total:
		return nil, gcError(422, "invalid_state", "total_amount_confirmation_invalid", "The total does not match"), false
	}
	links, _ := pm.fields["links"].(map[string]any)
	fields["currency"], fields["status"] = pm.str("currency"), "created"
	fields["links"] = map[string]any{"payment": pm.id, "mandate": links["mandate"]}
	return func(*object) { pm.fields["amount_refunded"] = total }, answer{}, true
}

// gcBilling asks a payer for a payment; nothing is paid before it is fulfilled.
func gcBilling(given, fields map[string]any) (answer, bool) {
	fields["status"] = "ready_to_fulfil"
	if in(given, "payment_request") == nil {
		return answer{}, true
	}
	n, ok := wholeIn(given, "payment_request.amount")
	if !ok {
		return gcInvalid("billing_requests", "payment_request.amount", "must be a positive whole number"), false
	}
	fields["payment_request"] = map[string]any{"amount": n, "currency": textIn(given, "payment_request.currency")}
	return answer{}, true
}

// gcFulfil executes a billing request's payment, once.
func gcFulfil(x *call, _ map[string]any, ids []string) (answer, bool) {
	o := x.gcFind("billing_requests", ids[0])
	switch {
	case o == nil:
		return gcNotFound(), false
	case o.str("status") != "ready_to_fulfil":
		return gcError(422, "invalid_state", "billing_request_not_ready_to_fulfil", "The billing request has a status of "+o.str("status")), false
	}
	o.fields["status"] = "fulfilled"
	asked, _ := o.fields["payment_request"].(map[string]any)
	if asked == nil {
		x.book("billing_requests.fulfil", o, 0, false)
		return gcShown(200, o), true
	}
	n, _ := asked["amount"].(int64)
	currency, _ := asked["currency"].(string)
	pm := x.gcMake("payments", map[string]any{
		"amount": n, "amount_refunded": int64(0), "currency": currency, "status": "pending_submission", "scheme": "faster_payments",
		"metadata": map[string]any{}, "links": map[string]any{"creditor": "CR00SBX"},
	})
	o.fields["links"] = map[string]any{"payment_request_payment": pm.id}
	x.bookIn("billing_requests.fulfil", o, n, currency, true)
	return gcShown(200, o), true
}
