package sandbox

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// ckoCodes are the response codes that the last digits of an amount pick, for currencies of two decimals
// (https://www.checkout.com/docs/previous/testing/response-code-testing). Any other amount is approved.
var ckoCodes = []struct{ digits, code, summary string }{
	{"9998", "20068", "Response received too late / Timeout"}, {"4001", "40101", "Payment blocked due to risk"},
	{"05", "20005", "Declined - Do Not Honour"}, {"12", "20012", "Invalid payment"}, {"14", "20014", "Invalid card number"},
	{"51", "20051", "Insufficient funds"}, {"54", "20087", "Bad track data"}, {"62", "20062", "Restricted card"},
	{"63", "20063", "Security violation"}, {"33", "30033", "Expired card - Pick up"},
}

// ckoDeclines says whether an amount is declined, and how.
func ckoDeclines(amount int64, currency string) (code, summary string) {
	if currency == "JPY" || currency == "KWD" {
		return "", ""
	}
	for _, c := range ckoCodes {
		text := fmt.Sprintf("%04d", amount)
		if len(c.digits) == 4 && text == c.digits || len(c.digits) == 2 && strings.HasSuffix(text, c.digits) {
			return c.code, c.summary
		}
	}
	return "", ""
}

// ckoPay makes a payment from a source, or a payout to a destination. An approved payment is authorized first, also where it is to
// be captured at once: that comes later (Server.Move).
func ckoPay(x *call, doc map[string]any, _ []string) (answer, bool) {
	amount, err := strconv.ParseInt(textIn(doc, "amount"), 10, 64)
	currency := textIn(doc, "currency")
	payout := in(doc, "destination.type") != nil
	switch {
	case !payout && textIn(doc, "source.type") == "":
		return ckoInvalid("payment_source_required"), false
	case err != nil || amount < 0 || payout && amount == 0:
		return ckoInvalid("amount_invalid"), false
	case len(currency) != 3:
		return ckoInvalid("currency_invalid"), false
	case len(textIn(doc, "reference")) > 80:
		return ckoInvalid("reference_invalid"), false
	}
	pay := x.ckoMake("payment", "pay", map[string]any{
		"amount": amount, "currency": currency, "reference": textIn(doc, "reference"), "payment_type": "Regular",
		"requested_on": x.s.now().UTC().Format(time.RFC3339), "approved": false,
	})
	pay.fields["_links"] = ckoLinks("/payments/"+pay.id, "actions")
	if payout {
		pay.fields["status"], pay.fields["destination"] = "Pending", map[string]any{"type": textIn(doc, "destination.type")}
		x.book("payments.create", pay, amount, true)
		return ckoShown(202, pay, nil), true
	}
	pay.fields["source"] = map[string]any{"type": textIn(doc, "source.type"), "id": ckoID("src", pay.id)}
	code, summary := ckoDeclines(amount, currency)
	if x.fs.has("decline") {
		code, summary = "20005", "Declined - Do Not Honour"
	}
	switch {
	case x.fs.has("action"), textIn(doc, "3ds.enabled") == "true", x.fs.has("processing"):
		return x.ckoWaiting(pay, textIn(doc, "3ds.enabled") == "true" || x.fs.has("action")), true
	case code != "":
		return x.ckoDeclined(pay, code, summary, textIn(doc, "retry.dunning.enabled") == "true"), true
	}
	act := x.ckoAct(pay, "Authorization", amount, pay.str("reference"))
	x.s.ckoApprove(act)
	ckoAuthorize(pay)
	x.book("payments.create", pay, amount, true)
	return ckoShown(201, pay, act), true
}

// ckoAuthorize is a payment whose money is held; without an amount its card was verified only.
func ckoAuthorize(pay *object) {
	pay.fields["approved"], pay.fields["status"] = true, "Authorized"
	pay.fields["response_code"], pay.fields["response_summary"] = "10000", "Approved"
	if pay.num("amount") == 0 {
		pay.fields["status"] = "Card Verified"
	}
}

// ckoWaiting is a payment that waits for the payer (3-D Secure) or for a bank.
func (x *call) ckoWaiting(pay *object, secure bool) answer {
	pay.fields["status"] = "Pending"
	if secure {
		pay.fields["3ds"] = map[string]any{"downgraded": false, "enrolled": "Y"}
		pay.fields["_links"] = ckoLinks("/payments/"+pay.id, "redirect")
	}
	x.book("payments.create", pay, pay.num("amount"), !secure)
	if secure {
		x.s.tell(pay, "created", 0)
	}
	return ckoShown(202, pay, nil)
}

// ckoDeclined is a payment that was carried out and declined. With dunning on, the gateway will try it again by itself.
func (x *call) ckoDeclined(pay *object, code, summary string, again bool) answer {
	act := x.ckoAct(pay, "Authorization", pay.num("amount"), pay.str("reference"))
	act.fields["approved"], act.fields["response_code"], act.fields["response_summary"] = false, code, summary
	pay.fields["status"], pay.fields["response_code"], pay.fields["response_summary"] = "Declined", code, summary
	if again {
		pay.fields["retry"] = map[string]any{
			"max_attempts": 6, "attempts_made": 1, "next_attempt_on": x.s.now().Add(24 * time.Hour).UTC().Format(time.RFC3339),
		}
	}
	x.made = pay
	x.s.tell(pay, "failed", 0)
	return ckoShown(201, pay, act)
}

// ckoShown is the answer to a call that made a payment: its fields and the action's id. A 202 says nothing of approval.
func ckoShown(status int, pay, act *object) answer {
	out := maps.Clone(pay.fields)
	for _, name := range []string{"requested_on", "payment_type"} {
		delete(out, name)
	}
	if act != nil {
		out["action_id"], out["processed_on"] = act.id, act.fields["processed_on"]
	} else {
		delete(out, "approved")
	}
	return answerJSON(status, out)
}

// ckoMove moves a payment or an action that is under way on.
func ckoMove(s *Server, o *object, to string) error {
	if o.kind == "action" {
		return s.ckoMoveAction(o, to)
	}
	from := o.str("status")
	next := map[string]map[string]string{
		"Pending":    {"done": "Authorized", "failed": "Declined", "reversed": "Canceled"},
		"Authorized": {"done": "Captured", "failed": "Expired", "reversed": "Voided"},
		"Declined":   {"done": "Authorized", "reversed": "Canceled"}, // where it is tried again
	}[from][to]
	switch {
	case o.kind != "payment":
		return fmt.Errorf("a %s cannot be moved", o.kind)
	case next == "" || from == "Declined" && o.fields["retry"] == nil:
		return fmt.Errorf("payment %s has a status of %s: it cannot be moved to %q", o.id, from, to)
	}
	delete(o.fields, "retry")
	if next == "Authorized" {
		ckoAuthorize(o)
		if o.fields["destination"] != nil {
			o.fields["status"] = "Paid"
		}
		return nil
	}
	o.fields["status"] = next
	if next == "Declined" {
		o.fields["response_code"], o.fields["response_summary"] = "20153", "3D Secure system malfunction"
	}
	return nil
}
