package gateways

import "time"

const (
	paystackSpec    = "https://github.com/PaystackOSS/openapi"
	paystackPython  = "https://github.com/PaystackOSS/paystack-python"
	paystackNotices = "https://github.com/api-evangelist/paystack"
)

// Paystack is Paystack's API. Source: https://github.com/PaystackOSS/openapi (paths, fields, statuses, error codes).
//
// It takes no key: the reference must be unique, and a repeat is refused, not replayed. An app's own reference stays as it is; it
// is what the app will ask for.
func Paystack() *Gateway {
	return &Gateway{
		Name: "paystack", Title: "Paystack",
		Hosts:          []string{"api.paystack.co"},
		BaseURL:        "https://api.paystack.co",
		Guarantees:     paystackGuarantees(),
		Notes:          paystackNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyC,
		Answers:        paystackAnswers(),
		Routes:         paystackRoutes(),
		Webhook: &Webhook{ // event names are known at second hand, so that a notice only has the gateway asked
			Signature: &Signature{Header: "x-paystack-signature", Hash: "sha512"}, References: []string{"/data/reference"},
		},
		UnknownStatus: 504, // no official SDK resends by itself
		Error:         ErrorShape{Members: map[string]any{"message": "{detail}", "code": "fence_{slug}"}},
	}
}

func paystackGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Partial, MarkDocumented,
			"A reference that must be unique, of letters, digits, - . =; of transfers lower-case letters, digits, - _, at "+
				"least 16. Refunds have none.",
			paystackSpec),
		"G2": guaranteed(Supported, MarkDocumented,
			"GET /transaction/verify/{reference} and GET /transfer/verify/{reference}.", paystackSpec),
		"G3": guaranteed(Undocumented, MarkDocumented, "No time is given; a used reference stays used.", paystackSpec),
		"G4": guaranteed(Lacking, MarkDocumented, "400 duplicate_reference.", paystackSpec),
		"G5": guaranteed(Supported, MarkDocumented, "Every reuse of a reference is refused, whatever the body.", paystackSpec),
		"G6": guaranteed(Supported, MarkSecondHand,
			"Webhooks charge.*, transfer.*, refund.*, signed over the body.", paystackNotices),
	}
}

func paystackNotes() []string {
	return []string{
		"A repeat is refused, not replayed, and no time is given: after doubt nothing is sent again; a lookup by reference " +
			"may find the transaction, else a person decides (review).",
		"duplicate_reference means that the reference was used: in doubt until it was looked up. It must name one call only.",
		"A decline burns the reference too: a new attempt (the next revision) needs a new one, which an app that writes " +
			"its own must choose.",
		"status true only says that the API call worked: data.status says what became of the money.",
		"Refunds, bulk transfers and bulk charges have no reference: after doubt a person decides.",
		"A refusal of the sidecar has the number of its HTTP status in status: an app must look at the HTTP status, not at " +
			"that member.",
	}
}

func paystackAnswers() []*AnswerRule {
	refused := is("/status", "false")
	return []*AnswerRule{
		answered("unknown", "", on("400"), is("/code", "duplicate_reference")),
		answered("not-executed", "", on("400"), refused, is("/type", "validation_error"), present("/code")),
		answered("not-executed", "", on("401"), refused),
	}
}

// paystackPending are the statuses of what is under way.
var paystackPending = []string{"pending", "ongoing", "processing", "queued", "send_otp", "otp", "received"}

// paystackMade makes a 2xx count by data.status.
func paystackMade(good ...string) []*AnswerRule {
	ok := is("/status", "true")
	return []*AnswerRule{
		answered("succeeded", "done", on("2xx"), ok, is("/data/status", good...)),
		answered("succeeded", "pending", on("2xx"), ok, is("/data/status", paystackPending...)),
		answered("declined", "", on("2xx"), ok, is("/data/status", "failed")),
		answered("unknown", "", on("2xx")),
	}
}

func paystackReference() *RefPlace {
	return &RefPlace{Field: "reference", Unique: true, Required: true, Shape: Shape{Alphabet: "hex", Length: 32}}
}

func paystackRoutes() []*Route {
	refund := undo(unkeyed("refunds_create", "POST", "/refund"))
	refund.Params, refund.Answers = map[string]string{"transaction": "body:transaction", "amount": "body:amount"},
		paystackMade("processed")
	finalize := unkeyed("transfers_finalize", "POST", "/transfer/finalize_transfer")
	finalize.Params, finalize.Answers = map[string]string{"id": "body:transfer_code"}, paystackMade("success")
	partial := paystackCharge("partial_debit", "/transaction/partial_debit")
	partial.Lookup.Amount = "" // it charges what there is
	return []*Route{
		paystackInitialize(),
		paystackCharge("charge_authorization", "/transaction/charge_authorization"), partial, paystackCharge("charges_create",
			"/charge"),
		paystackSubmit(), refund, paystackTransfer(),
		unkeyed("transfers_bulk", "POST", "/transfer/bulk"), finalize,
		unkeyed("bulk_charges_create", "POST", "/bulkcharge"),
		elsewhere(),
	}
}

// paystackVerify reads the one transaction that has the reference.
func paystackVerify(kind string, cases ...Case) *Lookup {
	return &Lookup{
		Kind: KindGet, Target: "/" + kind + "/verify/{reference}", Reference: "/data/reference", Is: when(is("/status", "true"),
			present("/data/status")),
		Amount: "/data/amount", Currency: "/data/currency", Cases: cases, Answer: &FoundAnswer{},
	}
}

func paystackCases() []Case {
	return []Case{
		{When: when(is("/data/status", "success")), Reference: "ours", Is: CaseDone, Payment: "done"},
		{When: when(is("/data/status", paystackPending...)), Reference: "ours", Is: CaseDone, Payment: "pending"},
		{When: when(is("/data/status", "failed")), Reference: "ours", Is: CaseFailed},
	}
}

func paystackCharge(name, path string) *Route {
	return &Route{
		Name: name, Method: "POST", Path: path, Keyless: true, Reference: paystackReference(),
		Params:  map[string]string{"amount": "body:amount", "currency": "body:currency"},
		Answers: paystackMade("success"), Lookup: paystackVerify("transaction", paystackCases()...),
	}
}

// paystackInitialize opens a page and moves no money: that it is there is enough, and the page's address is not found again.
func paystackInitialize() *Route {
	r := paystackCharge("transaction_initialize", "/transaction/initialize")
	r.Answers = []*AnswerRule{
		answered("succeeded", "pending", on("2xx"), is("/status", "true"), present("/data/reference"),
			present("/data/authorization_url")),
		answered("unknown", "", on("2xx")),
	}
	r.Lookup = paystackVerify("transaction",
		Case{When: when(is("/data/status", "success")), Reference: "ours", Is: CaseDone, Payment: "done"},
		Case{When: when(is("/data/status", append([]string{"abandoned", "failed"}, paystackPending...)...)), Reference: "ours",
			Is: CaseDone, Payment: "pending"})
	r.Lookup.Answer = nil
	return r
}

// paystackSubmit goes on with a charge that its reference names; one that is still open does not say whether it came.
func paystackSubmit() *Route {
	r := unkeyed("charge_submit", "POST", "/charge/submit_otp")
	r.Also = []string{"/charge/submit_pin", "/charge/submit_phone", "/charge/submit_birthday", "/charge/submit_address"}
	r.Params, r.Answers = map[string]string{"id": "body:reference"}, paystackMade("success")
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/transaction/verify/{id}", ID: "/data/reference", SameAs: "id", Is: when(is("/status", "true")),
		Cases: []Case{
			{When: when(is("/data/status", "success")), Is: CaseDone, Payment: "done"},
			{When: when(is("/data/status", paystackPending...)), Is: CaseBusy},
		},
		Answer: &FoundAnswer{},
	}
	return r
}

// paystackTransfer: one that failed or was reversed is read by a person, as its states are known by inference only.
func paystackTransfer() *Route {
	r := paystackCharge("transfers_create", "/transfer")
	r.Lookup = paystackVerify("transfer", paystackCases()[:2]...)
	r.Object = "/data/transfer_code"
	return r
}
