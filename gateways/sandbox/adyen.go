package sandbox

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Adyen: paths, fields and errors by its API descriptions (https://github.com/Adyen/adyen-openapi), which also tell what its two
// test errors do to a key. What another body under a used key gets is not documented, so that here it gets the first answer. Keys
// belong to the company account, so that every merchant account and credential shares them.
func init() {
	profiles["adyen"] = &profile{
		name: "adyen", title: "Adyen", header: "Idempotency-Key", credential: "X-API-Key",
		keyed:        func(r *request) bool { return r.method == "POST" && !strings.HasPrefix(r.path(), "/pal/") },
		unauthorized: func() answer { return adyenError(401, "000", "security", "HTTP Status Response - Unauthorized") },
		forbidden:    func() answer { return adyenError(403, "901", "security", "Invalid Merchant Account") },
		limited:      func(string) answer { return adyenError(429, "000", "security", "Too many requests") },
		serverError:  func(status int) answer { return adyenError(status, "905", "internal", "Internal error") },
		inUse:        func(*request) answer { return adyenInUse() },
		malformed:    func(message string) answer { return adyenError(400, "702", "validation", message) },
		badKey: func(r *request) (answer, bool) {
			return adyenError(422, "702", "validation", "The idempotency key is longer than 64 characters"), len(r.key()) > 64
		},
		retention: 7 * 24 * time.Hour,
		echo: func(r *request, a answer) answer {
			if a.status/100 != 2 && a.status != 422 {
				return a
			}
			return a.with("Idempotency-Key", r.key())
		},
		run:       (*call).runAdyen,
		reference: func(_ *call, _ string, o *object) string { return o.str("reference") },
		move:      adyenMove,
		notice:    adyenNotice,
	}
}

func adyenError(status int, code, kind, message string) answer {
	return answerJSON(status, map[string]any{"status": status, "errorCode": code, "errorType": kind, "message": message})
}

func adyenInvalid(code, message string) answer { return adyenError(422, code, "validation", message) }

func adyenInUse() answer { return adyenInvalid("704", "request already processed or in progress") }

// adyenID is a pspReference: 16 letters and digits, the same for the same thing.
func adyenID(of string) string {
	sum := sha256.Sum256([]byte("psp" + of))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// adyenMake keeps a new object of a merchant account.
func (x *call) adyenMake(kind, reference string, m adyenSum) *object {
	id := adyenID(strconv.Itoa(len(x.s.order) + 1))
	o := &object{kind: kind, id: id, account: m.merchant, made: x.s.now(), fields: map[string]any{
		"reference": reference, "amount": m.n, "currency": m.currency, "captured": int64(0), "refunded": int64(0),
	}}
	x.keep(o)
	return o
}

// adyenFind is an object of a merchant account; nil: there is none.
func (x *call) adyenFind(kind, merchant, id string) *object {
	if o := x.s.objects[id]; o != nil && o.kind == kind && o.account == merchant {
		return o
	}
	return nil
}

type adyenHandler func(x *call, doc map[string]any, ids []string) (answer, bool)

// adyenOperations are the POSTs, by path without host prefix and version.
var adyenOperations = map[string]adyenHandler{
	"payments":                 adyenPay,
	"payments/details":         adyenDetails,
	"payments/*/captures":      adyenModify("capture"),
	"payments/*/refunds":       adyenModify("refund"),
	"payments/*/cancels":       adyenModify("cancel"),
	"payments/*/reversals":     adyenModify("reversal"),
	"payments/*/amountUpdates": adyenModify("amountUpdate"),
	"cancels":                  adyenStandaloneCancel,
	"donations":                adyenDonate,
	"sessions":                 adyenPage("session"),
	"paymentLinks":             adyenPage("paymentLink"),
	"orders":                   adyenOrder,
	"orders/cancel":            adyenOrderCancel,
	"paymentMethods":           adyenMethods,
	"btl/transfers":            adyenTransfer,
	"btl/transfers/*/returns":  adyenReturn,
	"pal/authorise":            adyenAuthorise,
	"pal/capture":              adyenClassic("capture", "capture"),
	"pal/refund":               adyenClassic("refund", "refund"),
	"pal/cancel":               adyenClassic("cancel", "cancel"),
	"pal/cancelOrRefund":       adyenClassic("reversal", "cancelOrRefund"),
	"pal/adjustAuthorisation":  adyenClassic("amountUpdate", "adjustAuthorisation"),
}

var adyenVersion = regexp.MustCompile(`^(?:/checkout)?/v[0-9]+/(.+)$|^/(btl)/v[0-9]+/(.+)$|^/(pal)/servlet/Payment/v[0-9]+/(.+)$`)

// adyenPath is a path without host prefix and version; "": Adyen has none like it.
func adyenPath(path string) string {
	m := adyenVersion.FindStringSubmatch(path)
	switch {
	case m == nil:
		return ""
	case m[1] != "":
		return m[1]
	}
	return m[2] + m[4] + "/" + m[3] + m[5]
}

func (x *call) runAdyen() (answer, bool) {
	path := adyenPath(x.r.path())
	if x.r.method == "GET" {
		return x.adyenGet(path), true
	}
	for pattern, do := range adyenOperations {
		ids, ok := fits(pattern, path)
		if !ok || x.r.method != "POST" {
			continue
		}
		doc, ok := document(x.r.body)
		if !ok {
			return adyenError(400, "702", "validation", "Unexpected input"), false
		}
		return do(x, doc, ids)
	}
	return adyenError(404, "000", "validation", "Not found"), false
}

// adyenSum is whose money, and how much.
type adyenSum struct {
	merchant string
	n        int64
	currency string
}

// adyenMoney reads merchant account and amount. false: the refusal, of which a 422 stands under the key.
func adyenMoney(doc map[string]any, amount string) (adyenSum, answer, bool) {
	m := adyenSum{merchant: textIn(doc, "merchantAccount")}
	if m.merchant == "" {
		return m, adyenError(403, "901", "security", "Invalid Merchant Account"), false
	}
	if amount == "" {
		return m, answer{}, true
	}
	ok := false
	m.n, ok = wholeIn(doc, amount+".value")
	if m.currency = textIn(doc, amount+".currency"); !ok || len(m.currency) != 3 {
		return m, adyenInvalid("100", "No amount specified"), false
	}
	return m, answer{}, true
}

func adyenAmount(o *object) map[string]any {
	return map[string]any{"value": o.num("amount"), "currency": o.str("currency")}
}

// adyenSum is all of an object's money.
func (o *object) adyenSum() adyenSum { return adyenSum{o.account, o.num("amount"), o.str("currency")} }
