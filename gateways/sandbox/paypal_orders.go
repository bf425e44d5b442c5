package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// paypalMake keeps a new object of the merchant. Its id has 17 characters and no long run of digits, which could be a card's.
func (x *call) paypalMake(kind string, fields map[string]any) *object {
	n := len(x.s.order) + 1
	id := fmt.Sprintf("%05dSB%07dT%02d", n%100000, n, n%100)
	o := &object{kind: kind, id: id, account: paypalMerchant(x.r), made: x.s.now(), fields: fields}
	fields["id"], fields["create_time"] = o.id, o.made.UTC().Format(time.RFC3339)
	x.keep(o)
	return o
}

// paypalFind returns an object of the merchant, or the 404 that PayPal gives.
func (x *call) paypalFind(kind, id string) (*object, answer) {
	o := x.s.objects[id]
	if x.r.method == "GET" && x.fs.has("lookup-blind") || o == nil || o.kind != kind || o.account != paypalMerchant(x.r) {
		return nil, paypalError(404, "RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID")
	}
	return o, answer{}
}

func paypalRead(kind string) func(*call, []string, map[string]any) (answer, bool) {
	return func(x *call, ids []string, _ map[string]any) (answer, bool) {
		o, a := x.paypalFind(kind, ids[0])
		if o == nil {
			return a, false
		}
		return answerJSON(200, x.s.paypalView(o)), true
	}
}

// paypalShow answers with an object: whole, or what is left of it where the app did not ask for a representation.
func (x *call) paypalShow(status int, o *object) answer {
	view := x.s.paypalView(o)
	if strings.Contains(x.r.header.Get("Prefer"), "return=representation") || o.kind == "payout" || o.kind == "payout_item" {
		return answerJSON(status, view)
	}
	names := []string{"id", "status", "links"}
	if o.kind == "order" && paypalOperation(x.r).name != "orders.create" {
		names = append(names, "purchase_units", "payment_source")
	}
	maps.DeleteFunc(view, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return answerJSON(status, view)
}

// paypalView is an object as PayPal shows it: what begins with _ is the sandbox's own. The lock is held.
func (s *Server) paypalView(o *object) map[string]any {
	view := maps.Clone(o.fields)
	maps.DeleteFunc(view, func(name string, _ any) bool { return strings.HasPrefix(name, "_") })
	if o.kind != "order" {
		return view
	}
	var units []any
	for i, u := range o.fields["purchase_units"].([]any) {
		unit, payments := maps.Clone(u.(map[string]any)), map[string]any{}
		for kind, name := range map[string]string{"authorization": "authorizations", "capture": "captures", "refund": "refunds"} {
			var list []any
			for _, p := range s.order {
				if p.kind == kind && p.str("_order") == o.id && p.num("_unit") == int64(i) {
					list = append(list, s.paypalView(p))
				}
			}
			if list != nil {
				payments[name] = list
			}
		}
		if len(payments) > 0 {
			unit["payments"] = payments
		}
		units = append(units, unit)
	}
	view["purchase_units"] = units
	return view
}

// paypalUnits reads the purchase units of an order: a list of one to ten with an amount each.
func paypalUnits(doc map[string]any) ([]any, answer, bool) {
	list, _ := doc["purchase_units"].([]any)
	if len(list) == 0 || len(list) > 10 {
		return nil, paypalInvalid("MISSING_REQUIRED_PARAMETER"), false
	}
	for _, u := range list {
		unit, ok := u.(map[string]any)
		if !ok || textIn(unit, "amount.currency_code") == "" || textIn(unit, "amount.value") == "" {
			return nil, paypalInvalid("MISSING_REQUIRED_PARAMETER"), false
		}
		if n, ok := minorIn(unit, "amount.value"); !ok || n <= 0 {
			return nil, paypalIssue("DECIMAL_PRECISION"), false
		}
	}
	return list, answer{}, true
}

func (x *call) paypalCreateOrder(_ []string, doc map[string]any) (answer, bool) {
	intent := textIn(doc, "intent")
	if intent != "CAPTURE" && intent != "AUTHORIZE" {
		return paypalInvalid("INVALID_PARAMETER_VALUE"), false
	}
	units, a, ok := paypalUnits(doc)
	outcome, given := x.paypalSource(doc)
	switch {
	case !ok:
		return a, false
	case given && x.r.key() == "":
		return paypalInvalid("PAYPAL_REQUEST_ID_REQUIRED"), false
	case intent == "AUTHORIZE" && len(units) > 1:
		return paypalIssue("UNSUPPORTED_INTENT"), false
	case given && strings.HasPrefix(outcome, "422 "):
		return paypalIssue(strings.TrimPrefix(outcome, "422 ")), true
	case given && outcome != "PAYER_ACTION_REQUIRED" && x.paypalInvoiced(units):
		return paypalIssue("DUPLICATE_INVOICE_ID"), false
	}
	o := x.paypalMake("order", map[string]any{"intent": intent, "status": "CREATED", "purchase_units": units, "links": []any{}})
	switch {
	case given && outcome == "PAYER_ACTION_REQUIRED":
		o.fields["status"] = outcome
	case given:
		return x.paypalPay(o, outcome), true
	}
	x.bookIn("orders.create", o, paypalTotal(o), paypalCurrency(o), false)
	return x.paypalShow(201, o), true
}

// paypalSource reads how an order is paid. outcome is the status that the payment gets, PAYER_ACTION_REQUIRED, or 422 and an
// issue. A card whose holder is called CCREJECT-… is declined inside a completed order.
func (x *call) paypalSource(doc map[string]any) (outcome string, given bool) {
	source, _ := doc["payment_source"].(map[string]any)
	wallet := textIn(source, "paypal.vault_id") == "" && in(source, "paypal") != nil
	f, declined := x.fs["decline"]
	switch {
	case declined && f.Arg == "DECLINED", strings.HasPrefix(textIn(source, "card.name"), "CCREJECT-"):
		outcome = "DECLINED"
	case declined && f.Arg != "":
		outcome = "422 " + f.Arg
	case declined:
		outcome = "422 INSTRUMENT_DECLINED"
	case x.fs.has("action"), wallet:
		outcome = "PAYER_ACTION_REQUIRED"
	case x.fs.has("processing"):
		outcome = "PENDING"
	}
	return outcome, len(source) > 0
}

// paypalInvoiced reports whether an invoice id was used before; only accounts whose client id starts with unique-invoice look.
func (x *call) paypalInvoiced(units []any) bool {
	if !strings.HasPrefix(paypalMerchant(x.r), "unique-invoice") {
		return false
	}
	for _, u := range units {
		id := textIn(u, "invoice_id")
		if id != "" && slices.ContainsFunc(x.s.order, func(o *object) bool {
			return o.kind == "capture" && o.account == paypalMerchant(x.r) && o.str("invoice_id") == id
		}) {
			return true
		}
	}
	return false
}

func paypalTotal(o *object) (sum int64) {
	for _, u := range o.fields["purchase_units"].([]any) {
		n, _ := minorIn(u, "amount.value")
		sum += n
	}
	return sum
}

func paypalCurrency(o *object) string {
	return textIn(o.fields, "purchase_units.0.amount.currency_code")
}

// paypalPay completes an order with one payment for each unit. status is the payment's own; "": what it is when all is well. A
// declined one moves no money.
func (x *call) paypalPay(o *object, status string) answer {
	kind := "capture"
	if o.str("intent") == "AUTHORIZE" {
		kind = "authorization"
	}
	well := map[string]string{"capture": "COMPLETED", "authorization": "CREATED"}[kind]
	if kind == "authorization" && status == "DECLINED" {
		status = "DENIED"
	}
	var made []*object
	for i, u := range o.fields["purchase_units"].([]any) {
		p := x.paypalPayment(kind, u, o.id, int64(i))
		p.fields["status"] = well
		if status != "" {
			p.fields["status"] = status
		}
		if kind == "authorization" {
			p.fields["_left"], _ = minorIn(u, "amount.value")
		}
		made = append(made, p)
	}
	o.fields["status"] = "COMPLETED"
	if status != "DECLINED" && status != "DENIED" {
		x.bookIn(paypalOperation(x.r).name, made[0], paypalTotal(o), paypalCurrency(o), true)
		for _, p := range made[1:] {
			x.s.tell(p, "created", 0)
		}
	}
	x.made = o
	return x.paypalShow(201, o)
}

// paypalPayment makes a capture or an authorization with what it has of a purchase unit.
func (x *call) paypalPayment(kind string, unit any, order string, n int64) *object {
	fields := map[string]any{
		"amount": in(unit, "amount"), "_order": order, "_unit": n, "links": []any{},
		"supplementary_data": map[string]any{"related_ids": map[string]any{"order_id": order}},
	}
	for _, name := range []string{"invoice_id", "custom_id"} {
		if v := textIn(unit, name); v != "" {
			fields[name] = v
		}
	}
	if kind == "capture" {
		fields["final_capture"], fields["_refunded"] = true, int64(0)
	}
	return x.paypalMake(kind, fields)
}

func (x *call) paypalAuthorizeOrder(ids []string, doc map[string]any) (answer, bool) {
	return x.paypalComplete(ids[0], doc, "AUTHORIZE", "ORDER_ALREADY_AUTHORIZED")
}

func (x *call) paypalCaptureOrder(ids []string, doc map[string]any) (answer, bool) {
	return x.paypalComplete(ids[0], doc, "CAPTURE", "ORDER_ALREADY_CAPTURED")
}

// paypalComplete authorises or captures an order that the payer approved, or that is paid by a source in the request.
func (x *call) paypalComplete(id string, doc map[string]any, intent, already string) (answer, bool) {
	o, a := x.paypalFind("order", id)
	if o == nil {
		return a, false
	}
	outcome, given := x.paypalSource(doc)
	units := o.fields["purchase_units"].([]any)
	switch {
	case o.str("intent") != intent:
		return paypalIssue("ACTION_DOES_NOT_MATCH_INTENT"), false
	case o.str("status") == "COMPLETED":
		return paypalIssue(already), false
	case o.str("status") == "VOIDED":
		return paypalIssue("ORDER_COMPLETED_OR_VOIDED"), false
	case o.str("status") != "APPROVED" && !given:
		return paypalIssue("ORDER_NOT_APPROVED"), false
	case outcome == "PAYER_ACTION_REQUIRED":
		return paypalIssue(outcome), true
	case strings.HasPrefix(outcome, "422 "):
		return paypalIssue(strings.TrimPrefix(outcome, "422 ")), true
	case x.paypalInvoiced(units):
		return paypalIssue("DUPLICATE_INVOICE_ID"), false
	}
	return x.paypalPay(o, outcome), true
}
