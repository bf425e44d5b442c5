package gateways

import "time"

// Builtin returns the built-in gateways, fresh copies each time.
func Builtin() []*Gateway {
	return []*Gateway{
		Stripe(), Adyen(), PayPal(), CheckoutCom(), GoCardless(),
		Braintree(), Square(), Mollie(), AuthorizeNet(), Razorpay(), Worldpay(), Airwallex(), MercadoPago(), Paystack(), Increase(),
	}
}

// StripeVersion is the API version of Stripe's lookups: the one whose fields the tables below were read in.
const StripeVersion = "2026-03-25.dahlia"

// Stripe is Stripe's API v1. Sources: https://docs.stripe.com/api/idempotent_requests (keys, 24 hours, replay marker),
// https://docs.stripe.com/error-low-level (what is stored, what runs before the key layer), the official Go SDK (paths,
// statuses, error codes).
func Stripe() *Gateway {
	return &Gateway{
		Name:           "stripe",
		Title:          "Stripe",
		Guarantees:     stripeGuarantees(),
		Notes:          stripeNotes,
		Hosts:          []string{"api.stripe.com"},
		BaseURL:        "https://api.stripe.com",
		KeyRetention:   24 * time.Hour,
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyA,
		RollsForward:   true, // https://docs.stripe.com/error-low-level
		Replayed:       &HeaderValue{Name: "Idempotent-Replayed", Value: "true"},
		Key:            &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 64}},
		AccountHeaders: []string{"Stripe-Account", "Stripe-Context"},
		LookupHeaders:  []HeaderValue{{Name: "Stripe-Version", Value: StripeVersion}},
		Answers:        stripeAnswers(),
		Routes:         stripeRoutes(),
		Webhook:        stripeWebhook(),
		Checks:         stripeChecks(),
		UnknownStatus:  504, // the SDKs resend it, but Stripe-Should-Retry: false wins
		Error: ErrorShape{
			Members: map[string]any{"error": map[string]any{
				"type": "api_error", "code": "fence_{slug}", "message": "{detail}",
			}},
			Header: []HeaderValue{{Name: "Stripe-Should-Retry", Value: "false"}},
		},
	}
}

// StripeCallKey takes the Idempotency-Key that the app chose for a call key. The refused ones are what the SDKs make up:
// UUIDs (Python, Ruby, PHP, Java, .NET), stripe-node-retry-<uuid>, <nanoseconds>_<6 characters> (Go).
func StripeCallKey() *CallKey {
	return &CallKey{Header: "Idempotency-Key", Refuse: []string{
		madeUp, `stripe-node-retry-.*`, `[0-9]{16,20}_[A-Za-z0-9_-]{6}`,
	}}
}

// stripeRefusals are the codes of invalid_request_error that prove that nothing ran: a missing, invalid or unknown
// parameter, or an object that is not there.
var stripeRefusals = []string{
	"amount_too_large", "amount_too_small", "charge_invalid_parameter", "email_invalid", "invalid_characters",
	"parameter_invalid_empty", "parameter_invalid_integer", "parameter_invalid_string_blank",
	"parameter_invalid_string_empty", "parameter_missing", "parameter_unknown", "parameters_exclusive",
	"payment_intent_invalid_parameter", "payment_method_invalid_parameter", "resource_missing", "url_invalid",
}

// stripeAnswers hold for every route; what is not here (any *_unexpected_state, *_already_*, idempotency_error, 409, 424,
// 5xx, bodies that are no JSON) is unknown.
func stripeAnswers() []*AnswerRule {
	parsed := Condition{At: "/error/type"}
	return []*AnswerRule{
		{Status: []string{"2xx"}, When: []Condition{{At: "/object"}, {At: "/error", Absent: true}}, Outcome: "succeeded", Stored: "yes"},
		{Status: []string{"402"}, When: []Condition{{At: "/error/type", In: []string{"card_error"}}}, Outcome: "declined", Stored: "yes"},
		{Status: []string{"401", "403"}, When: []Condition{parsed}, Outcome: "not-executed", Stored: "no"},
		{Status: []string{"429"}, When: []Condition{{At: "/error/code", In: []string{"rate_limit", "lock_timeout"}}}, Outcome: "not-executed", Stored: "no"},
		{Status: []string{"401", "403", "429"}, Outcome: "unknown", Stored: "no"},
		{Status: []string{"400", "404"}, When: []Condition{
			{At: "/error/type", In: []string{"invalid_request_error"}}, {At: "/error/code", In: stripeRefusals},
		}, Outcome: "not-executed"},
		{Status: []string{"409"}, When: []Condition{{At: "/error/code", In: []string{"idempotency_key_in_use"}}}, Outcome: "unknown", InUse: true, Stored: "no"},
	}
}

// stripeObject makes a 2xx count only with the expected object and an id.
func stripeObject(object string) []*AnswerRule {
	return []*AnswerRule{
		{Status: []string{"2xx"}, When: []Condition{
			{At: "/object", In: []string{object}}, {At: "/id"}, {At: "/error", Absent: true},
		}, Outcome: "succeeded", Stored: "yes"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
}

func stripeReference(name string) *RefPlace {
	return &RefPlace{Field: "metadata." + name, Body: "form", Owned: true, Required: true, Shape: Shape{Alphabet: "hex", Length: 32}}
}

func is(at string, in ...string) Condition { return Condition{At: at, In: in} }

func absent(at string) Condition { return Condition{At: at, Absent: true} }

func when(cs ...Condition) []Condition { return cs }
