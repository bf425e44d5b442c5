package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// paypalRetention is the shortest that PayPal keeps request ids: those of orders.
const paypalRetention = 6 * time.Hour

// PayPal compares no bodies: a used id gets what it made, in its current state, whatever else is asked for. Its ids count per
// type of call, so the type is in what scopes keys; objects belong to a merchant.
func init() {
	profiles["paypal"] = &profile{
		name: "paypal", title: "PayPal", header: "PayPal-Request-Id", credential: "Authorization", retention: paypalRetention,
		key: func(r *request) string {
			if strings.HasPrefix(r.path(), paypalCertPath) && r.header.Get("Authorization") == "" {
				r.header.Set("Authorization", "Public certificate") // it is read without a credential
			}
			return r.header.Get("PayPal-Request-Id")
		},
		keyed:        func(r *request) bool { return paypalOperation(r).keyed && paypalValid(r) },
		account:      func(r *request) string { return paypalMerchant(r) + "\x00" + paypalOperation(r).name },
		unauthorized: func() answer { return paypalError(401, "AUTHENTICATION_FAILURE", "") },
		forbidden:    func() answer { return paypalError(403, "NOT_AUTHORIZED", "PERMISSION_DENIED") },
		limited:      func(string) answer { return paypalError(429, "RATE_LIMIT_REACHED", "") },
		serverError:  paypalServerError,
		inUse:        func(*request) answer { return paypalError(409, "RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS") },
		malformed:    func(string) answer { return paypalError(400, "INVALID_REQUEST", "MALFORMED_REQUEST_JSON") },
		badKey: func(r *request) (answer, bool) {
			return paypalInvalid("INVALID_STRING_LENGTH"), len(r.key()) > 108
		},
		repeat: func(x *call, e *entry) answer {
			if e.object == nil {
				return e.answer
			}
			return x.paypalShow(200, e.object)
		},
		run:       (*call).runPayPal,
		reference: paypalReference,
		move:      movePayPal,
		notice:    noticePayPal,
	}
}

// paypalOp is one operation.
type paypalOp struct {
	name    string
	pattern string // method and path with * for an id
	keyed   bool
	run     func(x *call, ids []string, doc map[string]any) (answer, bool)
}

var paypalOps []paypalOp

func init() { // not in the declaration: the operations look the table up themselves
	paypalOps = []paypalOp{
		{"orders.create", "POST /v2/checkout/orders", true, (*call).paypalCreateOrder},
		{"orders.authorize", "POST /v2/checkout/orders/*/authorize", true, (*call).paypalAuthorizeOrder},
		{"orders.capture", "POST /v2/checkout/orders/*/capture", true, (*call).paypalCaptureOrder},
		{"authorizations.capture", "POST /v2/payments/authorizations/*/capture", true, (*call).paypalCapture},
		{"authorizations.reauthorize", "POST /v2/payments/authorizations/*/reauthorize", true, (*call).paypalReauthorize},
		{"authorizations.void", "POST /v2/payments/authorizations/*/void", false, (*call).paypalVoid},
		{"captures.refund", "POST /v2/payments/captures/*/refund", true, (*call).paypalRefund},
		{"payouts.create", "POST /v1/payments/payouts", true, (*call).paypalCreatePayout},
		{"payouts_items.cancel", "POST /v1/payments/payouts-item/*/cancel", false, (*call).paypalCancelItem},
		{"verify", "POST /v1/notifications/verify-webhook-signature", false, (*call).paypalVerify},
		{"", "GET /v2/checkout/orders/*", false, paypalRead("order")},
		{"", "GET /v2/payments/authorizations/*", false, paypalRead("authorization")},
		{"", "GET /v2/payments/captures/*", false, paypalRead("capture")},
		{"", "GET /v2/payments/refunds/*", false, paypalRead("refund")},
		{"", "GET /v1/payments/payouts/*", false, paypalRead("payout")},
		{"", "GET /v1/payments/payouts-item/*", false, paypalRead("payout_item")},
	}
}

func paypalOperation(r *request) paypalOp {
	i := slices.IndexFunc(paypalOps, func(o paypalOp) bool {
		_, ok := fits(o.pattern, r.method+" "+r.path())
		return ok
	})
	if i < 0 {
		return paypalOp{}
	}
	return paypalOps[i]
}

func (x *call) runPayPal() (answer, bool) {
	switch x.r.method + " " + x.r.path() {
	case "POST /v1/oauth2/token":
		return x.paypalToken(), false
	case "POST /v1/oauth2/token/terminate":
		return answerJSON(200, map[string]any{}), false
	case "GET " + paypalCertPath:
		return answer{status: 200, header: []Line{{"Content-Type", "application/x-pem-file"}}, body: PayPalCertificate()}, true
	}
	op := paypalOperation(x.r)
	switch {
	case !paypalValid(x.r):
		return answerJSON(401, map[string]any{"error": "invalid_token", "error_description": "The token passed in is expired"}), false
	case op.run == nil:
		return paypalError(404, "RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID"), false
	}
	media, _, _ := strings.Cut(x.r.header.Get("Content-Type"), ";")
	if len(x.r.body) > 0 && strings.TrimSpace(media) != "application/json" {
		return paypalError(415, "UNSUPPORTED_MEDIA_TYPE", ""), false
	}
	doc, ok := document(x.r.body)
	if !ok {
		return paypalInvalid("MALFORMED_REQUEST_JSON"), false
	}
	if a, ok := x.paypalMock(); ok {
		return a, false
	}
	ids, _ := fits(op.pattern, x.r.method+" "+x.r.path())
	return op.run(x, ids, doc)
}

// paypalMock answers what PayPal-Mock-Response asks for, as PayPal's sandbox does. Nothing is executed.
func (x *call) paypalMock() (answer, bool) {
	var mock struct {
		Code string `json:"mock_application_codes"`
	}
	if json.Unmarshal([]byte(x.r.header.Get("PayPal-Mock-Response")), &mock) != nil || mock.Code == "" {
		return answer{}, false
	}
	if mock.Code == "INTERNAL_SERVER_ERROR" {
		return paypalServerError(500), true
	}
	return paypalIssue(mock.Code), true
}

// paypalError has PayPal's error shape; an issue is its only detail.
func paypalError(status int, name, issue string) answer {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", " ") }
	e := map[string]any{"name": name, "message": plain(name), "debug_id": "5a6d8c0b1e2f3", "links": []any{}}
	if issue != "" {
		e["details"] = []any{map[string]any{"issue": issue, "description": plain(issue)}}
	}
	return answerJSON(status, e)
}

func paypalInvalid(issue string) answer { return paypalError(400, "INVALID_REQUEST", issue) }
func paypalIssue(issue string) answer   { return paypalError(422, "UNPROCESSABLE_ENTITY", issue) }

func paypalServerError(status int) answer {
	if status == 503 {
		return paypalError(status, "SERVICE_UNAVAILABLE", "")
	}
	return paypalError(status, "INTERNAL_SERVER_ERROR", "")
}

// paypalTokenLife is how long a token is good. A client whose id is expires-2s gets tokens for two seconds.
const paypalTokenLife = 9 * time.Hour

// paypalToken is the token endpoint: HTTP Basic with the client's id and secret, grant client_credentials.
func (x *call) paypalToken() answer {
	refused := answerJSON(401, map[string]any{"error": "invalid_client", "error_description": "Client Authentication failed"})
	basic, ok := strings.CutPrefix(x.r.header.Get("Authorization"), "Basic ")
	b, err := base64.StdEncoding.DecodeString(basic)
	client, secret, both := strings.Cut(string(b), ":")
	if !ok || err != nil || !both || client == "" || secret == "" {
		return refused
	}
	form, err := url.ParseQuery(string(x.r.body))
	if err != nil || form.Get("grant_type") != "client_credentials" {
		return answerJSON(400, map[string]any{"error": "unsupported_grant_type", "error_description": "unsupported grant_type"})
	}
	life := paypalTokenLife
	if text, ok := strings.CutPrefix(client, "expires-"); ok {
		if d, err := time.ParseDuration(text); err == nil {
			life = d
		}
	}
	name := base64.RawURLEncoding.EncodeToString([]byte(client))
	token := fmt.Sprintf("A21AA%d.%06d.%s", x.s.now().Add(life).UnixNano(), x.s.serial, name)
	return answerJSON(200, map[string]any{
		"scope": "https://uri.paypal.com/services/payments/payment", "access_token": token, "token_type": "Bearer",
		"app_id": "APP-80W284485P519543T", "expires_in": int64(life / time.Second), "nonce": fmt.Sprintf("sandbox-%d", x.s.serial),
	})
}

// paypalBearer reads a token of paypalToken's; false: it is none, or a broken one.
func paypalBearer(r *request) (client string, until time.Time, own, ok bool) {
	token, own := strings.CutPrefix(r.header.Get("Authorization"), "Bearer A21AA")
	parts := strings.Split(token, ".")
	if !own || len(parts) != 3 {
		return "", time.Time{}, own, false
	}
	n, err1 := strconv.ParseInt(parts[0], 10, 64)
	b, err2 := base64.RawURLEncoding.DecodeString(parts[2])
	return string(b), time.Unix(0, n), own, err1 == nil && err2 == nil
}

// paypalValid reports whether a request's token is good. Any text that does not look like one of the sandbox's own tokens is a
// token of one merchant that never ends, so that a test need not fetch one.
func paypalValid(r *request) bool {
	_, until, own, ok := paypalBearer(r)
	return !own || ok && r.send.At.Before(until)
}

// paypalMerchant is whose objects a request sees: the client's, or those of the merchant that it acts for.
func paypalMerchant(r *request) string {
	client, _, _, _ := paypalBearer(r)
	return strings.TrimSpace(client + " " + r.header.Get("PayPal-Auth-Assertion"))
}

// paypalReference is the app's or our reference of a request.
func paypalReference(x *call, _ string, _ *object) string {
	doc, _ := document(x.r.body)
	for _, at := range []string{"custom_id", "sender_batch_header.sender_batch_id", "purchase_units.0.custom_id", "invoice_id"} {
		if v := textIn(doc, at); v != "" {
			return v
		}
	}
	return ""
}
