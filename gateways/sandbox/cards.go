package sandbox

import "strings"

// TestCards are the payment methods, tokens and numbers that pick an outcome: "" approves, action asks for 3-D Secure,
// processing leaves the payment under way until Server.Move, anything else is a decline code. Source: https://docs.stripe.com/testing.
var TestCards = map[string]string{
	"pm_card_visa": "", "pm_card_mastercard": "", "tok_visa": "", "tok_mastercard": "", "4242424242424242": "",
	"pm_card_chargeDeclined": "generic_decline", "pm_card_visa_chargeDeclined": "generic_decline",
	"tok_chargeDeclined": "generic_decline", "4000000000000002": "generic_decline",
	"pm_card_chargeDeclinedInsufficientFunds": "insufficient_funds", "pm_card_visa_chargeDeclinedInsufficientFunds": "insufficient_funds",
	"tok_chargeDeclinedInsufficientFunds": "insufficient_funds", "4000000000009995": "insufficient_funds",
	"pm_card_chargeDeclinedProcessingError": "processing_error",
	"tok_chargeDeclinedProcessingError":     "processing_error", "4000000000000119": "processing_error",
	"pm_card_authenticationRequired": "action", "pm_card_threeDSecure2Required": "action",
	"tok_threeDSecure2Required": "action", "4000000000003220": "action",
	"pm_usBankAccount_processing": processing, "btok_us_verified": processing,
}

// card reads which card is given; found is false where none is.
func (x *call) card() (outcome string, found bool, a answer, ok bool) {
	given := ""
	for _, name := range []string{"payment_method", "payment_method_data[card][number]", "payment_method_data[card][token]", "source", "card", "source[number]", "card[number]"} {
		if given = x.last(name); given != "" {
			break
		}
	}
	outcome, known := TestCards[given]
	switch {
	case given != "" && !known:
		return "", false, answerError(404, "invalid_request_error", "resource_missing", "No such PaymentMethod or token", "param", "payment_method"), false
	case x.fs.has("decline"):
		outcome = x.fs["decline"].arg()
	case x.fs.has("action"):
		outcome = "action"
	case x.fs.has("processing"):
		outcome = processing
	}
	return outcome, given != "", answer{}, true
}

// declined is Stripe's card error.
func declined(code string, extra ...any) answer {
	kind := "card_declined"
	if code == "processing_error" {
		kind = code
	}
	extra = append(extra, "decline_code", code)
	return answerError(402, "card_error", kind, "Your card was declined ("+strings.ReplaceAll(code, "_", " ")+").", extra...)
}
