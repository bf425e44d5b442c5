package gateways

import (
	"slices"
	"time"
)

// PayPal's documentation of what is declared here.
const (
	paypalSpecs       = "https://github.com/paypal/paypal-rest-api-specifications"
	paypalIdempotency = "https://developer.paypal.com/api/rest/reference/idempotency/"
	paypalEvents      = "https://developer.paypal.com/api/rest/webhooks/event-names/"
	paypalPayouts     = "https://developer.paypal.com/api/payments.payouts-batch/v1/payouts-post"
	paypalSDK         = "https://github.com/paypal/PayPal-Python-Server-SDK"
)

// How long PayPal keeps request ids: its API descriptions say 6 hours for orders, 45 days for payments, 30 days for payouts.
const (
	paypalOrderKeys   = 6 * time.Hour
	paypalPaymentKeys = 45 * 24 * time.Hour
	paypalPayoutKeys  = 30 * 24 * time.Hour
)

// PayPal is PayPal's REST API: Orders v2, Payments v2, Payouts v1. An access token lasts for hours (OAuth2), so it names no
// account: one account is configured, with OAuth2{TokenPath: "/v1/oauth2/token"} for lookups.
//
// A repeat of a request id gets the current state of what it made, with 200 where the first answer was 201. The ids of an
// authorisation and of a capture count apart.
func PayPal() *Gateway {
	return &Gateway{
		Name: "paypal", Title: "PayPal",
		Hosts:          []string{"api-m.paypal.com", "api.paypal.com"},
		BaseURL:        "https://api-m.paypal.com",
		Guarantees:     paypalGuarantees(),
		Notes:          slices.Clone(paypalNotes),
		KeyRetention:   paypalOrderKeys,
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyB,
		Key:            &KeyPlace{Header: "PayPal-Request-Id", Shape: Shape{Alphabet: "hex", Length: 64}},
		Rotating:       true,
		AccountHeaders: []string{"PayPal-Auth-Assertion"},
		Answers:        paypalAnswers(),
		Routes:         paypalRoutes(),
		Webhook:        paypalWebhook(),
		Checks:         paypalChecks(),
		// The server SDKs resend on 408, 413, 429, 500, 502, 503, 504, 521, 522 and 524 (GET and PUT only, and not unless they
		// are told to). 409 is none of them, and is PayPal's own word for an earlier request that is in progress.
		UnknownStatus: 409,
		Error: ErrorShape{Members: map[string]any{
			"name": "FENCE_REFUSED", "message": "{detail}",
			"details": []any{map[string]any{"issue": "fence_{slug}", "description": "{detail}"}},
		}},
	}
}

// paypalDeclines are the issues of a 422 that say that the payer, the instrument or PayPal's risk rules refused the payment.
var paypalDeclines = []string{
	"ALIAS_DECLINED_BY_PROCESSOR", "CARD_EXPIRED", "COMPLIANCE_VIOLATION", "INSTRUMENT_DECLINED",
	"MAX_NUMBER_OF_PAYMENT_ATTEMPTS_EXCEEDED", "PAYEE_BLOCKED_TRANSACTION", "PAYER_ACCOUNT_LOCKED_OR_CLOSED",
	"PAYER_ACCOUNT_RESTRICTED", "PAYER_CANNOT_PAY", "PAYMENT_SOURCE_CANNOT_BE_USED", "PAYMENT_SOURCE_DECLINED_BY_PROCESSOR",
	"PAYMENT_SOURCE_INFO_CANNOT_BE_VERIFIED", "REDIRECT_PAYER_FOR_ALTERNATE_FUNDING", "REFUND_FAILED_INSUFFICIENT_FUNDS",
	"TRANSACTION_BLOCKED_BY_PAYEE", "TRANSACTION_LIMIT_EXCEEDED", "TRANSACTION_RECEIVING_LIMIT_EXCEEDED", "TRANSACTION_REFUSED",
}

// paypalRefusals are the issues of a 422 about what the request says or about what an account may do. Not among them is any
// that an earlier request could be the reason of: *_ALREADY_*, PREVIOUSLY_*, *_EXCEEDED of sums and counts, DUPLICATE_*,
// CAPTURE_FULLY_REFUNDED, AUTHORIZATION_VOIDED, ORDER_COMPLETED_OR_VOIDED, ORDER_COMPLETION_IN_PROGRESS.
var paypalRefusals = []string{
	"ACTION_DOES_NOT_MATCH_INTENT", "AMOUNT_CANNOT_BE_SPECIFIED", "AMOUNT_MISMATCH", "APPLE_PAY_AMOUNT_MISMATCH",
	"AUTH_CAPTURE_CURRENCY_MISMATCH", "AUTH_CAPTURE_NOT_ENABLED", "AUTH_CURRENCY_MISMATCH", "AUTHORIZATION_CURRENCY_MISMATCH",
	"AUTHORIZATION_DENIED", "AUTHORIZATION_EXPIRED", "BILLING_ADDRESS_INVALID", "CANCEL_URL_REQUIRED", "CANNOT_BE_NEGATIVE",
	"CANNOT_BE_VOIDED", "CANNOT_BE_ZERO_OR_NEGATIVE", "CARD_BRAND_NOT_SUPPORTED", "CARD_EXPIRY_REQUIRED", "CARD_NUMBER_REQUIRED",
	"CITY_REQUIRED", "CURRENCY_MISMATCH", "DECIMAL_PRECISION", "DECIMALS_NOT_SUPPORTED", "DUPLICATE_REFERENCE_ID",
	"INCOMPATIBLE_PARAMETER_VALUE", "INVALID_CURRENCY_CODE", "INVALID_EXPIRY_DATE", "INVALID_PAYER_ID",
	"INVALID_SECURITY_CODE_LENGTH", "ITEM_TOTAL_MISMATCH", "ITEM_TOTAL_REQUIRED", "MAX_VALUE_EXCEEDED", "MULTI_CURRENCY_ORDER",
	"NOT_ENABLED_FOR_CARD_PROCESSING", "ORDER_NOT_APPROVED", "PARTIAL_REFUND_NOT_ALLOWED", "PAYEE_ACCOUNT_INVALID",
	"PAYEE_ACCOUNT_LOCKED_OR_CLOSED", "PAYEE_ACCOUNT_RESTRICTED", "PAYER_ACTION_REQUIRED", "PENDING_CAPTURE",
	"PLATFORM_FEE_NOT_ENABLED", "POSTAL_CODE_REQUIRED", "REAUTHORIZATION_NOT_SUPPORTED", "REFERENCE_ID_REQUIRED",
	"REFUND_AMOUNT_TOO_LOW", "REFUND_CAPTURE_CURRENCY_MISMATCH", "REFUND_IS_RESTRICTED", "REFUND_NOT_PERMITTED_DUE_TO_CHARGEBACK",
	"REFUND_TIME_LIMIT_EXCEEDED", "RETURN_URL_REQUIRED", "SHIPPING_ADDRESS_INVALID", "TAX_TOTAL_MISMATCH", "TAX_TOTAL_REQUIRED",
	"TRANSACTION_DISPUTED", "UNSUPPORTED_INTENT", "UNSUPPORTED_INTENT_FOR_PAYMENT_SOURCE", "VAULT_INSTRUCTION_REQUIRED",
}

// paypalAnswers hold for every route, behind its own. A 422 may name several issues, and it counts only where it names one:
// another beside it could be that of an order that was captured before. What is not here, DUPLICATE_* and *_ALREADY_* among it,
// is unknown. PayPal has idempotent calls retried after a 5xx for as long as the id is kept, so a 5xx does not stand.
func paypalAnswers() []*AnswerRule {
	named := func(names ...string) Condition { return is("/name", names...) }
	issue := func(outcome string, issues []string) *AnswerRule {
		return &AnswerRule{Status: []string{"422"}, When: when(named("UNPROCESSABLE_ENTITY"), is("/details/0/issue", issues...),
			absent("/details/1")), Outcome: outcome}
	}
	return []*AnswerRule{
		{Status: []string{"400"}, When: when(named("INVALID_REQUEST")), Outcome: "not-executed"},
		{Status: []string{"401"}, When: when(named("AUTHENTICATION_FAILURE")), Outcome: "not-executed"},
		{Status: []string{"401"}, When: when(is("/error", "invalid_token", "invalid_client")), Outcome: "not-executed"},
		{Status: []string{"403"}, When: when(named("NOT_AUTHORIZED")), Outcome: "not-executed"},
		{Status: []string{"404"}, When: when(named("RESOURCE_NOT_FOUND")), Outcome: "not-executed"},
		{Status: []string{"429"}, When: when(named("RATE_LIMIT_REACHED")), Outcome: "not-executed"},
		issue("declined", paypalDeclines),
		issue("not-executed", paypalRefusals),
		{Status: []string{"409"}, When: when(named("RESOURCE_CONFLICT")), Outcome: "unknown", InUse: true},
		{Status: []string{"422"}, When: when(is("/details/0/issue", "ORDER_COMPLETION_IN_PROGRESS")), Outcome: "unknown", InUse: true},
		{Status: []string{"5xx"}, Outcome: "unknown", Transient: true},
	}
}

// paypalState is one state of an object: what it says of the call, and where the money is.
type paypalState struct {
	when     []Condition
	payment  string
	declined bool // the call was refused: no money moved
}

// paypalRules reads answers by an object's states. What is in none of them is unknown.
func paypalRules(states []paypalState) (rules []*AnswerRule) {
	for _, s := range states {
		r := &AnswerRule{Status: []string{"200", "201"}, When: s.when, Outcome: "succeeded", Payment: s.payment}
		if s.declined {
			r.Outcome = "declined"
		}
		rules = append(rules, r)
	}
	return append(rules, &AnswerRule{Status: []string{"2xx"}, Outcome: "unknown"})
}

// paypalCases reads a found object by its states.
func paypalCases(states []paypalState) (cases []Case) {
	for _, s := range states {
		c := Case{When: s.when, Is: CaseDone, Payment: s.payment}
		if s.declined {
			c.Is = CaseFailed
		}
		cases = append(cases, c)
	}
	return cases
}

const (
	paypalCapture0       = "/purchase_units/0/payments/captures/0"
	paypalAuthorization0 = "/purchase_units/0/payments/authorizations/0"
)

// paypalInside is the state of a completed order by the only payment in it.
func paypalInside(at, payment string, declined bool, status ...string) paypalState {
	other := at[:len(at)-1] + "1"
	return paypalState{when(is("/status", "COMPLETED"), Condition{At: "/id"}, is(at+"/status", status...),
		absent(other), absent("/purchase_units/1")), payment, declined}
}

func paypalOrderCaptures() []paypalState {
	states := []paypalState{
		paypalInside(paypalCapture0, "done", false, "COMPLETED", "PARTIALLY_REFUNDED"),
		paypalInside(paypalCapture0, "reversed", false, "REFUNDED"),
		paypalInside(paypalCapture0, "pending", false, "PENDING"),
		paypalInside(paypalCapture0, "failed", true, "DECLINED", "FAILED"),
	}
	for i := range states { // a capture of an authorization is another call's
		states[i].when = append(states[i].when, absent(paypalAuthorization0))
	}
	return states
}

func paypalOrderAuthorizations() []paypalState {
	return []paypalState{
		paypalInside(paypalAuthorization0, "pending", false, "CREATED", "PENDING"),
		paypalInside(paypalAuthorization0, "done", false, "CAPTURED", "PARTIALLY_CAPTURED"),
		paypalInside(paypalAuthorization0, "reversed", false, "VOIDED"),
		paypalInside(paypalAuthorization0, "failed", true, "DENIED"),
	}
}

// paypalUnseen is a completed order whose payment cannot be seen (a minimal answer), or is one of several: the order was
// carried out, and where its money is must be asked.
func paypalUnseen() paypalState {
	return paypalState{when(is("/status", "COMPLETED"), Condition{At: "/id"}), "pending", false}
}

// paypalCreated are the states of an order that was just made: without a payment source it only waits for the payer. A
// completed one may hold a declined payment, so what is inside counts.
func paypalCreated() []paypalState {
	return slices.Concat([]paypalState{
		paypalStatus("pending", false, "CREATED", "SAVED", "APPROVED", "PAYER_ACTION_REQUIRED"),
		paypalStatus("reversed", false, "VOIDED"),
	}, paypalOrderCaptures(), paypalOrderAuthorizations(), []paypalState{paypalUnseen()})
}

// paypalStatus is a state that an object's own status tells.
func paypalStatus(payment string, declined bool, status ...string) paypalState {
	return paypalState{when(Condition{At: "/id"}, is("/status", status...)), payment, declined}
}

// paypalCaptured are the states of a capture, but for PENDING.
func paypalCaptured() []paypalState {
	return []paypalState{
		paypalStatus("done", false, "COMPLETED", "PARTIALLY_REFUNDED"), paypalStatus("reversed", false, "REFUNDED"),
		paypalStatus("failed", true, "DECLINED", "FAILED"),
	}
}

func paypalAuthorized() []paypalState {
	return []paypalState{
		paypalStatus("pending", false, "CREATED", "PENDING"), paypalStatus("done", false, "CAPTURED", "PARTIALLY_CAPTURED"),
		paypalStatus("reversed", false, "VOIDED"), paypalStatus("failed", true, "DENIED"),
	}
}

func paypalRefunded() []paypalState {
	return []paypalState{
		paypalStatus("done", false, "COMPLETED"), paypalStatus("pending", false, "PENDING"),
		paypalStatus("reversed", false, "CANCELLED"), paypalStatus("failed", true, "FAILED"),
	}
}
