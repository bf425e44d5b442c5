package sandbox

import (
	"cmp"
	"fmt"
	"time"
)

// ckoAct keeps an action of a payment that is under way: it shows no approval yet.
func (x *call) ckoAct(pay *object, kind string, amount int64, reference string) *object {
	return x.ckoMake("action", "act", map[string]any{
		"type": kind, "amount": amount, "reference": reference, "processed_on": x.s.now().UTC().Format(time.RFC3339),
		"payment": pay.id, "currency": pay.str("currency"),
	})
}

func (s *Server) ckoApprove(act *object) {
	act.fields["approved"], act.fields["response_code"], act.fields["response_summary"] = true, "10000", "Approved"
}

// ckoAccept answers an operation that is carried out later: 202 with the id of its action.
func (x *call) ckoAccept(pay *object, op, kind string, amount int64, doc map[string]any) (answer, bool) {
	act := x.ckoAct(pay, kind, amount, textIn(doc, "reference"))
	x.book(op, act, amount, true)
	return answerJSON(202, map[string]any{
		"action_id": act.id, "reference": act.str("reference"), "_links": map[string]any{"payment": ckoLinks("/payments/" + pay.id)["self"]},
	}), true
}

// ckoTotal is what actions of a kind amount to, those under way too.
func (s *Server) ckoTotal(pay *object, kind string) (sum int64) {
	for _, o := range s.order {
		if o.kind == "action" && o.str("payment") == pay.id && o.str("type") == kind && o.fields["approved"] != false {
			sum += o.num("amount")
		}
	}
	return sum
}

// ckoCaptured is what of a payment is captured or about to be: all of it once its own capture is through.
func (s *Server) ckoCaptured(pay *object) int64 {
	sum := s.ckoTotal(pay, "Capture")
	if sum == 0 && (pay.str("status") == "Captured" || pay.str("status") == "Refunded" || pay.str("status") == "Partially Refunded") {
		return pay.num("amount")
	}
	return sum
}

// ckoAmount is what an operation is about: what its body says, or all that is left.
func ckoAmount(doc map[string]any, left int64) (int64, bool) {
	if textIn(doc, "amount") == "" {
		return left, true
	}
	return wholeIn(doc, "amount")
}

func ckoCapture(x *call, doc map[string]any, ids []string) (answer, bool) {
	pay := x.ckoFind(ids[0])
	if pay == nil {
		return ckoEmpty(404), false
	}
	left := pay.num("amount") - x.s.ckoCaptured(pay)
	n, ok := ckoAmount(doc, left)
	switch {
	case !ok:
		return ckoInvalid("amount_invalid"), false
	case pay.fields["approved"] != true || left <= 0 || pay.str("status") == "Voided" || x.s.ckoTotal(pay, "Void") > 0:
		return ckoEmpty(403), false
	case n > left:
		return ckoInvalid("capture_value_greater_than_remaining_authorized"), false
	}
	return x.ckoAccept(pay, "captures.create", "Capture", n, doc)
}

func ckoRefund(x *call, doc map[string]any, ids []string) (answer, bool) {
	pay := x.ckoFind(ids[0])
	if pay == nil {
		return ckoEmpty(404), false
	}
	left := x.s.ckoCaptured(pay) - x.s.ckoTotal(pay, "Refund")
	n, ok := ckoAmount(doc, left)
	switch {
	case !ok:
		return ckoInvalid("amount_invalid"), false
	case left <= 0:
		return ckoEmpty(403), false
	case n > left:
		return ckoInvalid("refund_amount_exceeds_balance"), false
	}
	return x.ckoAccept(pay, "refunds.create", "Refund", n, doc)
}

func ckoVoid(x *call, doc map[string]any, ids []string) (answer, bool) {
	pay := x.ckoFind(ids[0])
	if pay == nil {
		return ckoEmpty(404), false
	}
	if pay.str("status") != "Authorized" || x.s.ckoCaptured(pay) > 0 || x.s.ckoTotal(pay, "Void") > 0 {
		return ckoEmpty(403), false
	}
	return x.ckoAccept(pay, "voids.create", "Void", pay.num("amount"), doc)
}

// ckoReverse voids what is only held, and refunds what was captured.
func ckoReverse(x *call, doc map[string]any, ids []string) (answer, bool) {
	if pay := x.ckoFind(ids[0]); pay != nil && x.s.ckoCaptured(pay) > 0 {
		return ckoRefund(x, doc, ids)
	}
	return ckoVoid(x, doc, ids)
}

// ckoIncrement raises what is held, at once.
func ckoIncrement(x *call, doc map[string]any, ids []string) (answer, bool) {
	pay := x.ckoFind(ids[0])
	if pay == nil {
		return ckoEmpty(404), false
	}
	n, ok := wholeIn(doc, "amount")
	switch {
	case !ok:
		return ckoInvalid("amount_invalid"), false
	case pay.str("status") != "Authorized":
		return ckoEmpty(403), false
	}
	act := x.ckoAct(pay, "Authorization", n, textIn(doc, "reference"))
	code, summary := ckoDeclines(n, pay.str("currency"))
	if code == "" && !x.fs.has("decline") {
		x.s.ckoApprove(act)
		pay.fields["amount"] = pay.num("amount") + n
		x.book("authorizations.create", act, n, true)
	} else {
		act.fields["approved"], act.fields["response_code"], act.fields["response_summary"] = false, cmp.Or(code, "20005"), summary
		x.made = act
	}
	return answerJSON(201, map[string]any{
		"action_id": act.id, "amount": n, "currency": pay.str("currency"), "approved": act.fields["approved"], "status": pay.str("status"),
		"response_code": act.fields["response_code"], "reference": act.str("reference"), "_links": ckoLinks("/payments/" + pay.id),
	}), true
}

// ckoCancel takes back a retry that the gateway has scheduled.
func ckoCancel(x *call, doc map[string]any, ids []string) (answer, bool) {
	pay := x.ckoFind(ids[0])
	switch {
	case pay == nil:
		return ckoEmpty(404), false
	case pay.fields["retry"] == nil:
		return ckoEmpty(403), false
	}
	delete(pay.fields, "retry")
	pay.fields["status"] = "Canceled"
	act := x.ckoAct(pay, "Void", 0, textIn(doc, "reference"))
	x.s.ckoApprove(act)
	x.book("cancellations.create", act, 0, false)
	return answerJSON(202, map[string]any{"action_id": act.id, "reference": act.str("reference")}), true
}

// ckoMoveAction ends what is under way, and moves the payment on with it.
func (s *Server) ckoMoveAction(act *object, to string) error {
	if _, over := act.fields["approved"]; over || to == "reversed" {
		return fmt.Errorf("action %s cannot be moved to %q", act.id, to)
	}
	if to == "failed" {
		act.fields["approved"], act.fields["response_code"], act.fields["response_summary"] = false, "20005", "Declined - Do Not Honour"
		return nil
	}
	s.ckoApprove(act)
	pay := s.objects[act.str("payment")]
	whole := s.ckoTotal(pay, act.str("type")) >= pay.num("amount")
	pay.fields["status"] = map[string]map[bool]string{
		"Capture": {true: "Captured", false: "Partially Captured"},
		"Refund":  {true: "Refunded", false: "Partially Refunded"},
		"Void":    {true: "Voided", false: "Voided"},
	}[act.str("type")][whole]
	return nil
}
