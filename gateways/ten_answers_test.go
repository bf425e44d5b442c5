package gateways

import (
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// tenAnswer is one line of how an answer is read.
type tenAnswer struct {
	route   string
	status  int
	body    string
	want    claims.Outcome
	payment string
	object  string
}

// answer carries the media type that the body shows.
func (a tenAnswer) answer() *claims.Answer {
	if strings.HasPrefix(a.body, "<") {
		return xmlReply(a.status, a.body)
	}
	return reply(a.status, a.body, "Content-Type", "application/json")
}

const tenMark = "\xef\xbb\xbf"

func btSale(status string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><transaction><id>x1</id><status>` + status + `</status><amount>10.00</amount></transaction>`
}

func btRefused(status, more string) string {
	return `<api-error-response><errors><errors type="array"/></errors><message>no</message><transaction><id>x1</id><status>` + status +
		`</status>` + more + `</transaction></api-error-response>`
}

func btErrors(codes ...string) string {
	var s strings.Builder
	for _, c := range codes {
		s.WriteString(`<error><code>` + c + `</code><attribute type="symbol">base</attribute><message>no</message></error>`)
	}
	return `<api-error-response><errors><errors type="array"/><transaction><errors type="array">` + s.String() +
		`</errors></transaction></errors><message>no</message></api-error-response>`
}

func sqErr(category, code string) string {
	return `{"errors":[{"category":"` + category + `","code":"` + code + `","detail":"x"}]}`
}

func sqPay(status string) string { return `{"payment":{"id":"p1","status":"` + status + `"}}` }

func sqBack(status string) string { return `{"refund":{"id":"r1","status":"` + status + `"}}` }

func tenObject(kind, id, status string) string {
	return `{"resource":"` + kind + `","entity":"` + kind + `","type":"` + kind + `","id":"` + id + `","status":"` + status + `"}`
}

func tenAnet(code, reason string) string {
	errors := ""
	if reason != "" {
		errors = `,"errors":[{"errorCode":"` + reason + `","errorText":"x"}]`
	}
	return tenMark + `{"transactionResponse":{"responseCode":"` + code + `","transId":"60"` + errors + `},"messages":{"resultCode":"Ok","message":[{"code":"I00001"}]}}`
}

func tenAnetMessage(code string) string {
	return tenMark + `{"messages":{"resultCode":"Error","message":[{"code":"` + code + `","text":"x"}]}}`
}

func tenAnetXML(code, reason string) string {
	errors := ""
	if reason != "" {
		errors = `<errors><error><errorCode>` + reason + `</errorCode></error></errors>`
	}
	return `<createTransactionResponse xmlns="AnetApi/xml/v1/schema/AnetApiSchema.xsd"><messages><resultCode>Ok</resultCode><message><code>I00001</code>` +
		`</message></messages><transactionResponse><responseCode>` + code + `</responseCode><transId>60</transId>` + errors +
		`</transactionResponse></createTransactionResponse>`
}

func payErr(code, kind string) string {
	return `{"status":false,"message":"x","type":"` + kind + `","code":"` + code + `"}`
}

func payData(status string) string {
	return `{"status":true,"message":"Charge attempted","data":{"status":"` + status + `","reference":"r"}}`
}

// tenAnswers is how each gateway's answers are read.
func tenAnswers() map[string][]tenAnswer {
	const yes, no, not, doubt = claims.Succeeded, claims.Declined, claims.NotExecuted, claims.Unknown
	return map[string][]tenAnswer{
		"braintree": {
			{"transactions_create", 201, btSale("submitted_for_settlement"), yes, "done", "x1"},
			{"transactions_create", 201, btSale("authorized"), yes, "pending", "x1"},
			{"transactions_create", 201, btSale("settlement_confirmed"), yes, "done", "x1"},
			{"transactions_create", 201, btSale("processor_declined"), doubt, "", ""},
			{"transactions_create", 201, btSale("gateway_rejected"), doubt, "", ""},
			{"transactions_create", 201, btSale("failed"), doubt, "", ""},
			{"transactions_create", 201, btSale("voided"), doubt, "", ""},
			{"transactions_create", 201, strings.Replace(btSale("settled"), "<id>x1</id>", "", 1), doubt, "", ""},
			{"transactions_create", 201, strings.TrimSuffix(btSale("settled"), "</transaction>"), doubt, "", ""},
			{"transactions_create", 201, `{"transaction":{"id":"x1","status":"voided"}}`, doubt, "", ""},
			{"transactions_void", 200, btSale("voided"), yes, "done", "x1"},
			{"transactions_void", 200, btSale("settling"), doubt, "", ""},
			{"transactions_submit", 200, btSale("submitted_for_settlement"), yes, "done", "x1"},
			{"transactions_submit", 200, btSale("authorized"), doubt, "", ""},
			{"transactions_submit_partial", 201, btSale("authorized"), doubt, "", ""},
			{"transactions_refund", 201, btSale("submitted_for_settlement"), yes, "done", "x1"},
			{"transactions_create", 422, btRefused("processor_declined", ""), no, "", ""},
			{"transactions_create", 422, btRefused("gateway_rejected", "<gateway-rejection-reason>cvv</gateway-rejection-reason>"),
				no, "", ""},
			{"transactions_create", 422, btRefused("gateway_rejected",
				"<gateway-rejection-reason>duplicate</gateway-rejection-reason>"), doubt, "", ""},
			{"transactions_create", 422, btRefused("gateway_rejected",
				"<gateway-rejection-reason>new_one</gateway-rejection-reason>"), doubt, "", ""},
			{"transactions_create", 422, btRefused("gateway_rejected", ""), doubt, "", ""},
			{"transactions_create", 422, btRefused("failed", "<processor-response-code>3000</processor-response-code>"), doubt, "", ""},
			{"transactions_create", 422, btErrors("81502"), not, "", ""},
			{"transactions_create", 422, btErrors("81502", "81501"), not, "", ""},
			{"transactions_create", 422, btErrors("1", "2", "3", "4"), not, "", ""},
			{"transactions_create", 422, btErrors("1", "2", "3", "4", "915233"), doubt, "", ""},
			{"transactions_create", 422, btErrors("915232"), doubt, "", ""},
			{"transactions_create", 422, btErrors("915233"), doubt, "", ""},
			{"transactions_create", 422, btErrors("915234"), doubt, "", ""},
			{"transactions_create", 422, btErrors("915235"), doubt, "", ""},
			{"transactions_create", 422, btErrors("81502", "915233"), doubt, "", ""},
			{"transactions_create", 422, btErrors("1", "2", "3", "915235"), doubt, "", ""},
			{"transactions_create", 422, btErrors(), doubt, "", ""},
			{"transactions_create", 422,
				`<api-error-response><errors><transaction><credit-card><errors><error><code>81715</code></error></errors>` +
					`</credit-card></transaction></errors></api-error-response>`, doubt, "", ""},
			{"transactions_create", 401, "", not, "", ""},
			{"transactions_create", 404, `<api-error-response><message>no</message></api-error-response>`, not, "", ""},
			{"transactions_create", 404, "<html></html>", doubt, "", ""},
			{"transactions_create", 429, "", doubt, "", ""},
		},
		"square": {
			{"payments_create", 200, sqPay("COMPLETED"), yes, "done", "p1"},
			{"payments_create", 200, sqPay("APPROVED"), yes, "pending", "p1"},
			{"payments_create", 200, sqPay("PENDING"), yes, "pending", "p1"},
			{"payments_create", 200, sqPay("FAILED"), no, "", ""},
			{"payments_create", 200, sqPay("CANCELED"), doubt, "", ""},
			{"payments_create", 200, sqPay(""), doubt, "", ""},
			{"payments_complete", 200, sqPay("COMPLETED"), yes, "done", "p1"},
			{"payments_complete", 200, sqPay("APPROVED"), doubt, "", ""},
			{"payments_complete", 200, sqPay("FAILED"), doubt, "", ""},
			{"payments_cancel", 200, sqPay("CANCELED"), yes, "done", "p1"},
			{"payments_cancel", 200, sqPay("COMPLETED"), doubt, "", ""},
			{"payments_cancel_by_key", 200, `{}`, yes, "", ""},
			{"payments_cancel_by_key", 200, sqErr("API_ERROR", "INTERNAL_SERVER_ERROR"), doubt, "", ""},
			{"refunds_create", 200, sqBack("PENDING"), yes, "pending", "r1"},
			{"refunds_create", 200, sqBack("REJECTED"), no, "", ""},
			{"refunds_create", 200, sqBack("FAILED"), no, "", ""},
			{"payments_create", 402, sqErr("PAYMENT_METHOD_ERROR", "CARD_DECLINED"), no, "", ""},
			{"refunds_create", 400, sqErr("REFUND_ERROR", "REFUND_AMOUNT_INVALID"), no, "", ""},
			{"payments_create", 400, sqErr("INVALID_REQUEST_ERROR", "BAD_REQUEST"), not, "", ""},
			{"payments_create", 401, sqErr("AUTHENTICATION_ERROR", "UNAUTHORIZED"), not, "", ""},
			{"payments_create", 429, sqErr("RATE_LIMIT_ERROR", "RATE_LIMITED"), not, "", ""},
			{"payments_create", 400, sqErr("PAYMENT_METHOD_ERROR", "TEMPORARY_ERROR"), doubt, "", ""},
			{"payments_create", 400, sqErr("INVALID_REQUEST_ERROR", "REQUEST_TIMEOUT"), doubt, "", ""},
			{"payments_create", 400, sqErr("INVALID_REQUEST_ERROR", "CONFLICT"), doubt, "", ""},
			{"payments_create", 400, sqErr("INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED"), doubt, "", ""},
			{"payments_create", 400, sqErr("API_ERROR", "INTERNAL_SERVER_ERROR"), doubt, "", ""},
			{"payments_create", 400,
				`{"errors":[{"category":"PAYMENT_METHOD_ERROR","code":"CVV_FAILURE"},{"category":"API_ERROR","code":"CONFLICT"}]}`,
				doubt, "", ""},
		},
		"mollie": {
			{"payments_create", 201, tenObject("payment", "tr_1", "paid"), yes, "done", "tr_1"},
			{"payments_create", 201, tenObject("payment", "tr_1", "open"), yes, "pending", "tr_1"},
			{"customer_payments_create", 201, tenObject("payment", "tr_1", "pending"), yes, "pending", "tr_1"},
			{"payments_create", 201, tenObject("payment", "tr_1", "failed"), no, "", ""},
			{"payments_create", 201, tenObject("payment", "tr_1", "expired"), doubt, "", ""},
			{"payments_create", 201, tenObject("payment", "tr_1", "canceled"), doubt, "", ""},
			{"payments_create", 201, tenObject("refund", "re_1", "pending"), doubt, "", ""},
			{"refunds_create", 201, tenObject("refund", "re_1", "queued"), yes, "pending", "re_1"},
			{"refunds_create", 201, tenObject("refund", "re_1", "failed"), no, "", ""},
			{"payments_cancel", 200, tenObject("payment", "tr_1", "canceled"), yes, "done", "tr_1"},
			{"payments_release", 202, "", doubt, "", ""},
			{"post", 201, `{"resource":"customer","id":"cst_1"}`, yes, "", ""},
			{"post", 201, tenObject("payment", "tr_1", "failed"), doubt, "", ""},
			{"payments_create", 422, `{"status":422,"title":"Unprocessable Entity","detail":"x"}`, not, "", ""},
			{"payments_create", 400, `{"status":400,"title":"Bad Request","detail":"x"}`, not, "", ""},
			{"payments_create", 403, `<html></html>`, doubt, "", ""},
			{"refunds_create", 409, `{"status":409,"title":"Conflict","detail":"duplicate refund"}`, doubt, "", ""},
			{"payments_create", 503, `{"status":503,"title":"Service Unavailable","detail":"x"}`, doubt, "", ""},
		},
		"authorizenet": {
			{"request", 200, tenAnet("1", ""), yes, "done", "60"},
			{"request", 200, strings.TrimPrefix(tenAnet("1", ""), tenMark), yes, "done", "60"},
			{"request", 200, tenMark + tenAnet("1", ""), doubt, "", ""},
			{"request", 200, tenAnet("4", ""), yes, "pending", "60"},
			{"request", 200, tenAnet("2", "2"), no, "", ""},
			{"request", 200, tenAnet("3", "11"), doubt, "", "60"},
			{"request", 200, tenAnet("3", "6"), not, "", ""},
			{"request", 200, tenAnet("3", "19"), doubt, "", ""},
			{"request", 200, strings.Replace(tenAnet("3", "6"), `}],`, `},{"errorCode":"19"}],`, 1), not, "", ""},
			{"request", 200, strings.Replace(tenAnet("3", "6"), `"x"}]`, `"x"},{"errorCode":"19"}]`, 1), doubt, "", ""},
			{"request", 200, strings.Replace(tenAnet("1", ""), `"Ok"`, `"Error"`, 1), doubt, "", ""},
			{"request", 200, strings.Replace(tenAnet("1", ""), `"transId":"60"`, `"transId":""`, 1), doubt, "", ""},
			{"request", 200, tenAnetMessage("E00003"), not, "", ""},
			{"request", 200, tenAnetMessage("E00007"), not, "", ""},
			{"request", 200, tenAnetMessage("E00001"), doubt, "", ""},
			{"request", 200, tenAnetMessage("E00027"), doubt, "", ""},
			{"request", 200, tenAnetXML("1", ""), yes, "done", ""},
			{"request", 200, tenAnetXML("4", ""), yes, "pending", ""},
			{"request", 200, tenAnetXML("2", "2"), no, "", ""},
			{"request", 200, tenAnetXML("3", "11"), doubt, "", "60"},
			{"request", 200, tenAnetXML("3", "6"), not, "", ""},
			{"request", 200, tenAnetXML("3", "19"), doubt, "", ""},
			{"request", 200,
				`<ErrorResponse><messages><resultCode>Error</resultCode><message><code>E00007</code></message></messages></ErrorResponse>`, not, "", ""},
			{"request", 200,
				`<ErrorResponse><messages><resultCode>Error</resultCode><message><code>E00001</code></message></messages></ErrorResponse>`, doubt, "", ""},
			{"request", 400, tenAnet("2", "2"), doubt, "", ""},
		},
		"razorpay": {
			{"orders_create", 200, tenObject("order", "order_1", "created"), yes, "", "order_1"},
			{"payments_capture", 200, tenObject("payment", "pay_1", "captured"), yes, "done", "pay_1"},
			{"payments_capture", 200, tenObject("payment", "pay_1", "authorized"), doubt, "", ""},
			{"payments_capture", 200, tenObject("payment", "pay_1", "failed"), doubt, "", ""},
			{"payments_refund", 200, tenObject("refund", "rfnd_1", "processed"), yes, "done", "rfnd_1"},
			{"payments_refund", 200, tenObject("refund", "rfnd_1", "pending"), yes, "pending", "rfnd_1"},
			{"payments_refund", 200, tenObject("refund", "rfnd_1", "failed"), no, "", ""},
			{"payouts_create", 200, tenObject("payout", "pout_1", "queued"), yes, "pending", "pout_1"},
			{"payouts_create", 200, tenObject("payout", "pout_1", "processed"), yes, "done", "pout_1"},
			{"payouts_create", 200, tenObject("payout", "pout_1", "rejected"), doubt, "", ""},
			{"payouts_create", 200, tenObject("payout", "pout_1", "reversed"), doubt, "", ""},
			{"payouts_create", 400, `{"error":{"code":"BAD_REQUEST_ERROR"}}`, not, "", ""},
			{"payments_recurring", 400, `{"error":{"code":"BAD_REQUEST_ERROR","reason":"payment_failed"}}`, doubt, "", ""},
			{"payments_recurring", 200, tenObject("payment", "pay_1", "failed"), doubt, "", ""},
			{"payments_recurring", 401, `{"error":{"code":"BAD_REQUEST_ERROR"}}`, not, "", ""},
			{"payouts_create", 400, `{"error":{"code":"GATEWAY_ERROR"}}`, doubt, "", ""},
			{"payouts_create", 400, `{"error":{"code":"SERVER_ERROR"}}`, doubt, "", ""},
			{"other", 200, `{"id":"cust_1","entity":"customer"}`, yes, "", ""},
		},
		"worldpay": {
			{"payments_create", 201, `{"outcome":"authorized"}`, yes, "pending", ""},
			{"payments_create", 201, `{"outcome":"sentForSettlement"}`, yes, "pending", ""},
			{"payments_create", 201, `{"outcome":"3dsChallenged"}`, yes, "pending", ""},
			{"payments_create", 201, `{"outcome":"refused"}`, no, "", ""},
			{"payments_create", 201, `{"outcome":"fraudHighRisk"}`, doubt, "", ""},
			{"payments_create", 201, `{"outcome":"sentForRefund"}`, doubt, "", ""},
			{"customer_initiated_create", 201, `{"outcome":"refused"}`, no, "", ""},
			{"refunds_create", 202, `{"outcome":"sentForRefund"}`, yes, "pending", ""},
			{"refunds_create", 202, `{"outcome":"authorized"}`, doubt, "", ""},
			{"refunds_create", 202, `{"outcome":"refused"}`, doubt, "", ""},
			{"card_settlements_create", 202, `{"_links":{}}`, doubt, "", ""},
			{"account_payouts_create", 202, `{"payoutRequestId":"p1","idempotencyKey":"k"}`, yes, "pending", "p1"},
			{"account_payouts_create", 200, `{"errorName":"x","payoutRequestId":"p1"}`, doubt, "", ""},
			{"payments_create", 400, `{"errorName":"bodyDoesNotMatchSchema"}`, not, "", ""},
			{"payments_create", 404, `<html></html>`, doubt, "", ""},
		},
		"airwallex": {
			{"payment_intents_create", 201, tenObject("", "int_1", "REQUIRES_PAYMENT_METHOD"), yes, "pending", "int_1"},
			{"payment_intents_confirm", 200, tenObject("", "int_1", "SUCCEEDED"), yes, "done", "int_1"},
			{"payment_intents_confirm", 200, tenObject("", "int_1", "REQUIRES_CUSTOMER_ACTION"), yes, "pending", "int_1"},
			{"payment_intents_confirm", 200, tenObject("", "int_1", "REQUIRES_PAYMENT_METHOD"), doubt, "", ""},
			{"payment_intents_confirm", 200, tenObject("", "int_1", "CANCELLED"), doubt, "", ""},
			{"payment_intents_capture", 200, tenObject("", "int_1", "REQUIRES_CAPTURE"), doubt, "", ""},
			{"payment_intents_cancel", 200, tenObject("", "int_1", "CANCELLED"), yes, "done", "int_1"},
			{"refunds_create", 201, tenObject("", "rfd_1", "RECEIVED"), yes, "pending", "rfd_1"},
			{"refunds_create", 201, tenObject("", "rfd_1", "FAILED"), doubt, "", ""},
			{"transfers_create", 201, tenObject("", "tra_1", "SCHEDULED"), yes, "pending", "tra_1"},
			{"transfers_create", 201, tenObject("", "tra_1", "FAILED"), doubt, "", ""},
			{"payment_intents_confirm", 400, `{"code":"issuer_declined"}`, no, "", ""},
			{"payment_intents_confirm", 400, `{"code":"insufficient_fund"}`, no, "", ""},
			{"payment_intents_create", 400, `{"code":"validation_error"}`, not, "", ""},
			{"payment_intents_create", 400, `{"code":"duplicate_request"}`, doubt, "", ""},
			{"payment_intents_create", 403, `{"code":"duplicate_request"}`, doubt, "", ""},
			{"payment_intents_confirm", 400, `{"code":"provider_unavailable"}`, doubt, "", ""},
			{"payment_intents_confirm", 400, `{"code":"new_one"}`, doubt, "", ""},
			{"payment_intents_create", 401, `{"code":"unauthorized"}`, not, "", ""},
			{"payment_intents_create", 429, `{"code":"too_many_requests"}`, not, "", ""},
		},
		"mercadopago": {
			{"payments_create", 201, `{"id":1,"status":"approved"}`, yes, "done", "1"},
			{"payments_create", 201, `{"id":1,"status":"in_process"}`, yes, "pending", "1"},
			{"payments_create", 200, `{"id":1,"status":"authorized"}`, yes, "pending", "1"},
			{"payments_create", 201, `{"id":1,"status":"rejected","status_detail":"cc_rejected_other_reason"}`, no, "", ""},
			{"payments_create", 201, `{"id":1,"status":"cancelled"}`, doubt, "", ""},
			{"payments_create", 201, `{"status":"approved"}`, doubt, "", ""},
			{"refunds_create", 201, `{"id":2,"status":"approved"}`, yes, "done", "2"},
			{"payments_update", 200, `{"id":1,"status":"cancelled"}`, yes, "reversed", "1"},
			{"payments_update", 200, `{"id":1,"status":"authorized"}`, doubt, "", ""},
			{"orders_create", 201, `{"id":"ORD1","status":"processed"}`, yes, "done", "ORD1"},
			{"orders_create", 201, `{"id":"ORD1","status":"failed"}`, doubt, "", ""},
			{"orders_create", 402, `{"errors":[{"code":"failed"}]}`, no, "", ""},
			{"orders_create", 402, `{"errors":[{"code":"other"}]}`, doubt, "", ""},
			{"payments_create", 402, `{"errors":[{"code":"failed"}]}`, doubt, "", ""},
			{"orders_refund", 200, `{"id":"ORD1","status":"refunded"}`, yes, "done", "ORD1"},
			{"payments_create", 400, `{"message":"x","error":"bad_request","status":400}`, not, "", ""},
			{"orders_create", 400, `{"errors":[{"code":"empty_required_header"}]}`, not, "", ""},
			{"orders_create", 409, `{"errors":[{"code":"idempotency_key_already_used"}]}`, doubt, "", ""},
			{"orders_create", 423, `{"errors":[{"code":"resource_locked"}]}`, doubt, "", ""},
			{"orders_create", 500, `{"errors":[{"code":"idempotency_validation_failed"}]}`, doubt, "", ""},
			{"other", 201, `{"id":"123"}`, yes, "", ""},
		},
		"paystack": {
			{"charge_authorization", 200, payData("success"), yes, "done", ""},
			{"charges_create", 200, payData("send_otp"), yes, "pending", ""},
			{"charges_create", 200, payData("failed"), no, "", ""},
			{"charges_create", 200, payData("abandoned"), doubt, "", ""},
			{"charges_create", 200, payData("reversed"), doubt, "", ""},
			{"charges_create", 200, strings.Replace(payData("success"), "true", "false", 1), doubt, "", ""},
			{"charges_create", 200, `{"status":true}`, doubt, "", ""},
			{"transaction_initialize", 200, `{"status":true,"data":{"authorization_url":"u","reference":"r"}}`, yes, "pending", ""},
			{"transfers_create", 200, `{"status":true,"data":{"status":"otp","transfer_code":"TRF_1"}}`, yes, "pending", "TRF_1"},
			{"transfers_create", 200, `{"status":true,"data":{"status":"reversed","transfer_code":"TRF_1"}}`, doubt, "", ""},
			{"refunds_create", 200, `{"status":true,"data":{"status":"processed"}}`, yes, "done", ""},
			{"transfers_bulk", 200, `{"status":true,"data":[{"status":"success"}]}`, doubt, "", ""},
			{"charges_create", 400, payErr("duplicate_reference", "validation_error"), doubt, "", ""},
			{"charges_create", 400, payErr("invalid_params", "validation_error"), not, "", ""},
			{"charges_create", 400, payErr("x", "api_error"), doubt, "", ""},
			{"charges_create", 400, payErr("x", "processor_error"), doubt, "", ""},
			{"charges_create", 401, payErr("invalid_key", "validation_error"), not, "", ""},
			{"charges_create", 404, payErr("transaction_not_found", "validation_error"), doubt, "", ""},
			{"charges_create", 429, payErr("x", "validation_error"), doubt, "", ""},
		},
		"increase": {
			{"ach_transfers_create", 200, tenObject("ach_transfer", "ach_transfer_1", "pending_submission"), yes, "pending",
				"ach_transfer_1"},
			{"account_transfers_create", 200, tenObject("account_transfer", "account_transfer_1", "complete"), yes, "done",
				"account_transfer_1"},
			{"card_push_transfers_create", 200, tenObject("card_push_transfer", "c", "declined"), doubt, "", ""},
			{"wire_transfers_create", 200, tenObject("wire_transfer", "w", "rejected"), doubt, "", ""},
			{"fednow_transfers_create", 200, tenObject("fednow_transfer", "f", "reviewing_rejected"), doubt, "", ""},
			{"wire_transfers_create", 200, tenObject("ach_transfer", "w", "complete"), doubt, "", ""},
			{"wire_transfers_approve", 200, tenObject("wire_transfer", "w", "pending_creating"), yes, "pending", "w"},
			{"wire_transfers_cancel", 200, tenObject("wire_transfer", "w", "canceled"), yes, "done", "w"},
			{"wire_transfers_cancel", 200, tenObject("wire_transfer", "w", "complete"), doubt, "", ""},
			{"check_transfers_stop", 200, tenObject("check_transfer", "c", "stopped"), yes, "done", "c"},
			{"ach_transfers_create", 409,
				`{"type":"idempotency_key_already_used_error","resource_id":"ach_transfer_1","title":"x","status":409}`, doubt, "",
				"ach_transfer_1"},
			{"ach_transfers_create", 409, `{"type":"invalid_operation_error","title":"x","status":409}`, doubt, "", ""},
			{"ach_transfers_create", 400, `{"type":"invalid_parameters_error","title":"x","status":400,"errors":[]}`, not, "", ""},
			{"ach_transfers_create", 400, `{"type":"new_error","title":"x","status":400}`, doubt, "", ""},
			{"ach_transfers_create", 401, `{"type":"invalid_api_key_error","title":"x","status":401}`, not, "", ""},
			{"ach_transfers_create", 404, `{"type":"object_not_found_error","title":"x","status":404}`, not, "", ""},
			{"ach_transfers_create", 429, `{"type":"rate_limited_error","title":"x","status":429}`, not, "", ""},
			{"post", 200, `{"type":"card","id":"card_1"}`, yes, "", ""},
		},
	}
}

func TestTenAnswers(t *testing.T) {
	for _, declared := range ten {
		g := tenValid(t, declared())
		if len(tenAnswers()[g.Name]) == 0 {
			t.Errorf("%s: no answers", g.Name)
		}
		for _, tt := range tenAnswers()[g.Name] {
			if g.route(tt.route) == nil {
				t.Errorf("%s: no route %s", g.Name, tt.route)
			}
			c := g.Classify(tt.route, tt.answer())
			if c.Outcome != tt.want || c.Payment != tt.payment || c.Object != tt.object || c.Stored {
				t.Errorf("%s.%s: %d %.120s: %+v, want %s %q %q", g.Name, tt.route, tt.status, tt.body, c, tt.want, tt.payment,
					tt.object)
			}
		}
	}
}

// TestTenFlags: what is in flight, what the gateway asks to repeat, and what points at the first object.
func TestTenFlags(t *testing.T) {
	mp, rp, sq := tenValid(t, MercadoPago()), tenValid(t, Razorpay()), tenValid(t, Square())
	if c := mp.Classify("orders_create", reply(423, `{"errors":[{"code":"resource_locked"}]}`)); !c.InUse {
		t.Errorf("%+v", c)
	}
	if c := rp.Classify("payouts_create", reply(409, `{"error":{"code":"BAD_REQUEST_ERROR"}}`)); !c.InUse || c.Outcome != claims.Unknown {
		t.Errorf("%+v", c)
	}
	if c := rp.Classify("orders_create", reply(409, `{"error":{"code":"BAD_REQUEST_ERROR"}}`)); c.InUse {
		t.Errorf("%+v", c)
	}
	if c := sq.Classify("payments_create", reply(400, sqErr("PAYMENT_METHOD_ERROR", "TEMPORARY_ERROR"))); !c.Transient {
		t.Errorf("%+v", c)
	}
}

// tenRefusing are the statuses and outcomes that the gateways' pages call a refusal or an end without money.
var tenRefusing = map[string][]string{
	"braintree": {"processor_declined", "gateway_rejected", "failed", "authorization_expired", "settlement_declined"},
	"square":    {"FAILED", "REJECTED"}, "mollie": {"failed", "expired"}, "razorpay": {"failed", "rejected", "cancelled"},
	"worldpay": {"refused"}, "airwallex": {"FAILED"}, "mercadopago": {"rejected", "failed"},
	"paystack": {"failed", "abandoned", "reversed"}, "increase": {"rejected", "declined", "reviewing_rejected"},
	"authorizenet": {"2", "3"},
}

// tenRefusals make a 2xx of every form, with a state that is a refusal.
func tenRefusals(g *Gateway, word string) (all []tenAnswer) {
	for _, r := range g.Routes {
		for _, status := range []int{200, 201, 202} {
			for _, kind := range []string{"payment", "refund", "payout", "order", "capture", "ach_transfer", "wire_transfer", "card_push_transfer"} {
				o := strings.TrimSuffix(tenObject(kind, "1", word), "}")
				for _, body := range []string{
					o + `,"outcome":"` + word + `","message":"x","data":{"status":"` + word + `","reference":"r"}}`,
					`{"payment":` + o + `}}`, `{"refund":` + o + `}}`, `{"status":true,"data":` + o + `}}`, tenAnet(word, "6"),
					tenAnetXML(word, "6"), btSale(word),
				} {
					all = append(all, tenAnswer{route: r.Name, status: status, body: body})
				}
			}
		}
	}
	return all
}

func TestTenRefusalsIn2xx(t *testing.T) {
	for _, declared := range ten {
		g := tenValid(t, declared())
		if len(tenRefusing[g.Name]) == 0 {
			t.Errorf("%s: nothing is called a refusal", g.Name)
		}
		for _, word := range tenRefusing[g.Name] {
			for _, a := range tenRefusals(g, word) {
				neutral := a.route == "payments_cancel_by_key" // says nothing of a payment
				if c := g.Classify(a.route, a.answer()); c.Outcome == claims.Succeeded && !neutral {
					t.Errorf("%s.%s: %d %.200s: %+v", g.Name, a.route, a.status, a.body, c)
				}
			}
		}
	}
	g := MercadoPago() // It bites.
	g.Routes[0].Answers = append([]*AnswerRule{answered("succeeded", "", on("2xx"), present("/id"))}, g.Routes[0].Answers...)
	tenValid(t, g)
	if !slices.ContainsFunc(tenRefusals(g, "rejected"), func(a tenAnswer) bool { return g.Classify(a.route, a.answer()).Outcome == claims.Succeeded }) {
		t.Error("a decline that counts as a success was not found")
	}
}
