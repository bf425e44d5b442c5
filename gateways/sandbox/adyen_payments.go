package sandbox

import (
	"slices"
	"strings"
)

// States of a payment, beside those that its result code names.
const (
	adyenAuthorised = "authorised"
	adyenAction     = "action"  // the shopper has to do something
	adyenWaits      = "pending" // somebody else has to
	adyenRefused    = "refused"
	adyenCancelled  = "cancelled"
)

// adyenTypes are payment methods that do not end with the call, by their result codes.
var adyenTypes = map[string]string{
	"ideal": "RedirectShopper", "klarna": "RedirectShopper", "paypal": "RedirectShopper", "sepadirectdebit": "Received",
	"ach": "Received", "bcmc_mobile": "Pending", "multibanco": "PresentToShopper", "boletobancario": "PresentToShopper",
}

// adyenResult picks the result as Adyen's test scenarios do: an acquirer's response code, a holder whose name begins with
// DECLINED, the payment method (https://docs.adyen.com/development-resources/testing/result-codes).
func (x *call) adyenResult(doc map[string]any) (code, reason string) {
	acquirer := textIn(doc, "additionalData.RequestedTestAcquirerResponseCode")
	holder, _ := in(doc, "paymentMethod.holderName").(string)
	switch {
	case x.fs.has("decline"):
		return "Refused", x.fs["decline"].arg()
	case x.fs.has("action"):
		return "ChallengeShopper", ""
	case x.fs.has("processing"):
		return "Received", ""
	case acquirer == "4":
		return "Error", "Acquirer Error"
	case acquirer != "", strings.HasPrefix(holder, "DECLINED"):
		return "Refused", "Refused"
	}
	if code := adyenTypes[textIn(doc, "paymentMethod.type")]; code != "" {
		return code, ""
	}
	return "Authorised", ""
}

func adyenPay(x *call, doc map[string]any, _ []string) (answer, bool) {
	m, a, ok := adyenMoney(doc, "amount")
	switch {
	case !ok:
		return a, a.status == 422
	case textIn(doc, "reference") == "":
		return adyenInvalid("130", "Reference Missing"), true
	case textIn(doc, "returnUrl") == "":
		return adyenInvalid("14_030", "Return URL is missing."), true
	case textIn(doc, "paymentMethod.type") == "":
		return adyenInvalid("14_004", "Missing payment method details"), true
	case textIn(doc, "additionalData.RequestedTestErrorResponseCode") == "NO_CONNECTION_AVAILABLE":
		return adyenError(500, "905", "internal", "No connection available").with("Transient-Error", "true"), false
	}
	o := x.adyenMake("payment", textIn(doc, "reference"), m)
	o.fields["manual"] = textIn(doc, "additionalData.manualCapture") == "true" || textIn(doc, "captureDelayHours") != ""
	code, reason := x.adyenResult(doc)
	a = x.adyenCome(o, "payments.create", code, reason)
	if textIn(doc, "additionalData.RequestedTestErrorResponseCode") == "IOEXCEPTION_RECEIVED" {
		// The bank may have acted: here it has.
		return adyenError(500, "905", "internal", "Error while receiving the response"), true
	}
	return a, true
}

// adyenCome brings a payment to a result.
func (x *call) adyenCome(o *object, kind, code, reason string) answer {
	shown := map[string]any{"resultCode": code, "pspReference": o.id, "merchantReference": o.str("reference"), "amount": adyenAmount(o)}
	switch code {
	case "Authorised":
		o.adyenAuthorise()
		x.book(kind, o, o.num("amount"), true)
	case "Refused", "Error":
		o.fields["status"], shown["refusalReason"], shown["refusalReasonCode"] = adyenRefused, reason, "2"
		x.made = o
		x.s.tell(o, "failed", 0)
	case "RedirectShopper", "ChallengeShopper":
		o.fields["status"] = adyenAction
		delete(shown, "pspReference")
		shown["action"] = map[string]any{"type": "redirect", "paymentMethodType": "scheme", "paymentData": "Ab02b4c0!" + o.id}
		x.book(kind, o, o.num("amount"), false)
	default:
		o.fields["status"] = adyenWaits
		x.book(kind, o, o.num("amount"), true)
	}
	return answerJSON(200, shown)
}

// adyenAuthorise also captures, unless that was left to the merchant.
func (o *object) adyenAuthorise() {
	o.fields["status"] = adyenAuthorised
	if manual, _ := o.fields["manual"].(bool); !manual {
		o.fields["captured"] = o.num("amount")
	}
}

// adyenDetails completes a payment that waits for its shopper. A second time is an error also without a key, and after success too.
func adyenDetails(x *call, doc map[string]any, _ []string) (answer, bool) {
	token := textIn(doc, "paymentData")
	for _, name := range []string{"redirectResult", "threeDSResult", "payload", "MD"} {
		if v := textIn(doc, "details."+name); v != "" {
			token = v
		}
	}
	o := x.s.objects[token[max(0, len(token)-16):]]
	switch {
	case o == nil || o.kind != "payment":
		return adyenInvalid("14_018", "Invalid payload provided"), true
	case o.str("status") != adyenAction:
		return adyenInUse(), false
	case x.fs.has("decline"):
		return x.adyenCome(o, "payments.details", "Refused", x.fs["decline"].arg()), true
	}
	return x.adyenCome(o, "payments.details", "Authorised", ""), true
}

// adyenModify asks for a change of a payment. Adyen answers that it received the request, also where it will not be carried out.
func adyenModify(kind string) adyenHandler {
	return func(x *call, doc map[string]any, ids []string) (answer, bool) {
		amount := ""
		if adyenTakesAmount(kind) {
			amount = "amount"
		}
		m, a, ok := adyenMoney(doc, amount)
		if !ok {
			return a, a.status == 422
		}
		pay := x.adyenFind("payment", m.merchant, ids[0])
		if pay == nil || !slices.Contains([]string{adyenAuthorised, adyenCancelled}, pay.str("status")) {
			return adyenInvalid("167", "Original pspReference required for this operation"), true
		}
		if m.currency != "" && m.currency != pay.str("currency") {
			return adyenInvalid("138", "Currency code not supported"), true
		}
		o := x.adyenChange(kind, pay, m.n, textIn(doc, "reference"))
		shown := map[string]any{"merchantAccount": m.merchant, "paymentPspReference": pay.id, "pspReference": o.id, "status": "received"}
		if ref := textIn(doc, "reference"); ref != "" {
			shown["reference"] = ref
		}
		if amount != "" {
			shown["amount"] = adyenAmount(o)
		}
		return answerJSON(201, shown), true
	}
}

func adyenTakesAmount(kind string) bool {
	return kind == "capture" || kind == "refund" || kind == "amountUpdate"
}

// adyenKinds are how the ledger names the changes.
var adyenKinds = map[string]string{
	"capture": "captures.create", "refund": "refunds.create", "cancel": "cancels.create", "reversal": "reversals.create",
	"amountUpdate": "amountUpdates.create", "technicalCancel": "technicalCancels.create",
}

// adyenChange carries a change out, or notes that it cannot be, and has the outcome told.
func (x *call) adyenChange(kind string, pay *object, n int64, reference string) *object {
	if n == 0 {
		n = pay.num("amount")
	}
	o := x.adyenMake(kind, reference, adyenSum{pay.account, n, pay.str("currency")})
	o.fields["payment"] = pay.id
	if reference == "" || kind == "technicalCancel" {
		o.fields["told"] = pay.str("reference")
	}
	moves, ok := pay.adyenApply(kind, n)
	switch {
	case !ok:
		o.fields["status"] = "failed"
		x.book(adyenKinds[kind], o, n, false)
		x.s.tell(o, "failed", 0)
	case x.fs.has("processing"):
		o.fields["status"] = "received"
		x.book(adyenKinds[kind], o, n, moves)
	default:
		o.fields["status"] = "done"
		x.book(adyenKinds[kind], o, n, moves)
		if !moves { // what moves money is told when it is booked
			x.s.tell(o, "created", 0)
		}
	}
	return o
}

// adyenApply changes a payment; moves says whether money moved, ok whether it could be done at all.
func (pay *object) adyenApply(kind string, n int64) (moves, ok bool) {
	authorised, captured, refunded := pay.str("status") == adyenAuthorised, pay.num("captured"), pay.num("refunded")
	held := authorised && captured == 0
	switch kind {
	case "capture":
		if ok = authorised && n <= pay.num("amount")-captured; ok {
			pay.fields["captured"] = captured + n
		}
		return ok, ok
	case "refund":
		if ok = n <= captured-refunded; ok {
			pay.fields["refunded"] = refunded + n
		}
		return ok, ok
	case "reversal":
		if captured > 0 {
			if ok = refunded == 0; ok {
				pay.fields["refunded"] = captured
			}
			return ok, ok
		}
	case "amountUpdate":
		if held {
			pay.fields["amount"] = n
		}
		return false, held
	}
	if held {
		pay.fields["status"] = adyenCancelled
	}
	return false, held
}

// adyenStandaloneCancel cancels by the payment's reference.
func adyenStandaloneCancel(x *call, doc map[string]any, _ []string) (answer, bool) {
	m, a, ok := adyenMoney(doc, "")
	if !ok {
		return a, a.status == 422
	}
	ref := textIn(doc, "paymentReference")
	i := slices.IndexFunc(x.s.order, func(o *object) bool {
		return o.kind == "payment" && o.account == m.merchant && o.str("reference") == ref
	})
	if i < 0 || ref == "" {
		return adyenInvalid("167", "Original payment not found"), true
	}
	o := x.adyenChange("technicalCancel", x.s.order[i], 0, textIn(doc, "reference"))
	return answerJSON(201, map[string]any{
		"merchantAccount": m.merchant, "paymentReference": ref, "pspReference": o.id, "reference": textIn(doc, "reference"),
		"status": "received",
	}), true
}
