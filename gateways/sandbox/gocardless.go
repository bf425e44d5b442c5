package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func init() {
	profiles["gocardless"] = &profile{
		name: "gocardless", title: "GoCardless", header: "Idempotency-Key", credential: "Authorization",
		keyed: func(r *request) bool {
			_, ok := gcCreates[r.path()]
			return r.method == "POST" && ok
		},
		unauthorized: func() answer {
			return gcError(401, "invalid_api_usage", "access_token_not_found", "The access token was not recognised")
		},
		forbidden: func() answer {
			return gcError(403, "invalid_api_usage", "insufficient_permissions", "The access token has not the permission")
		},
		limited: func(string) answer {
			return gcError(429, "invalid_api_usage", "rate_limit_exceeded", "Rate limit exceeded").with("RateLimit-Remaining", "0")
		},
		serverError: func(status int) answer {
			return gcError(status, "gocardless", "internal_server_error", "Internal server error")
		},
		// What a repeat in flight gets is not documented: the SDKs know a conflict that names no resource.
		inUse:     func(*request) answer { return gcConflict("") },
		malformed: func(message string) answer { return gcError(400, "invalid_api_usage", "bad_request", message) },
		badKey: func(r *request) (answer, bool) {
			return gcError(400, "invalid_api_usage", "idempotency_key_too_long", "The idempotency key is too long"), len(r.key()) > 128
		},
		// A repeat names the resource, whatever its body is.
		repeat: func(_ *call, e *entry) answer {
			if e.object == nil {
				return e.answer
			}
			return gcConflict(e.object.id)
		},
		retention: 30 * 24 * time.Hour,
		run:       (*call).runGoCardless,
		reference: gcReference,
		move:      gcMove,
		notice:    gcNotice,
	}
}

// gcError has GoCardless's error shape.
func gcError(status int, kind, reason, message string) answer {
	return gcErrors(status, kind, message, map[string]any{"reason": reason, "message": message})
}

func gcErrors(status int, kind, message string, errors ...any) answer {
	return answerJSON(status, map[string]any{"error": map[string]any{
		"type": kind, "code": status, "message": message, "errors": errors,
		"documentation_url": "https://developer.gocardless.com/api-reference/#errors", "request_id": "sandbox",
	}})
}

// gcConflict says that the key made a resource; "": it does not say which.
func gcConflict(id string) answer {
	const said = "A resource has already been created with this idempotency key"
	links := map[string]any{}
	if id != "" {
		links["conflicting_resource_id"] = id
	}
	return gcErrors(409, "invalid_state", said, map[string]any{"reason": "idempotent_creation_conflict", "message": said, "links": links})
}

// gcInvalid refuses a field.
func gcInvalid(resource, field, message string) answer {
	return gcErrors(422, "validation_failed", "Validation failed", map[string]any{
		"field": field, "message": message, "request_pointer": "/" + resource + "/" + strings.ReplaceAll(field, ".", "/"),
	})
}

// gcStep is one operation. false: refused before anything ran.
type gcStep func(x *call, body map[string]any, ids []string) (answer, bool)

// gcCreates are the endpoints that create, by path: the resource that they make.
var gcCreates = map[string]string{
	"/payments": "payments", "/refunds": "refunds", "/subscriptions": "subscriptions", "/mandates": "mandates", "/customers": "customers",
	"/instalment_schedules": "instalment_schedules", "/instalment_schedules/create_with_dates": "instalment_schedules",
	"/instalment_schedules/create_with_schedule": "instalment_schedules", "/outbound_payments": "outbound_payments",
	"/billing_requests": "billing_requests",
}

// gcActions are the other unsafe requests, by path with * for an id.
var gcActions = map[string]gcStep{
	"/payments/*/actions/cancel": gcTurn("payments", "cancelled", "cancellation_failed", "pending_submission", "pending_customer_approval"),
	"/payments/*/actions/retry":  gcTurn("payments", "pending_submission", "retry_failed", "failed"),
	"/subscriptions/*/actions/cancel": gcTurn("subscriptions", "cancelled", "cancellation_failed",
		"active", "paused", "pending_customer_approval"),
	"/instalment_schedules/*/actions/cancel": gcTurn("instalment_schedules", "cancelled", "cancellation_failed", "pending", "active"),
	"/billing_requests/*/actions/cancel":     gcTurn("billing_requests", "cancelled", "cancellation_failed", "pending", "ready_to_fulfil"),
	"/mandates/*/actions/cancel": gcTurn("mandates", "cancelled", "cancellation_failed",
		"active", "submitted", "pending_submission", "pending_customer_approval"),
	"/outbound_payments/*/actions/cancel": gcTurn("outbound_payments", "cancelled", "cancellation_failed",
		"verifying", "pending_approval", "scheduled"),
	"/outbound_payments/*/actions/approve": gcTurn("outbound_payments", "scheduled", "approval_failed", "pending_approval"),
	"/billing_requests/*/actions/fulfil":   gcFulfil,
	"/scenario_simulators/*/actions/run":   gcSimulate,
}

func (x *call) runGoCardless() (answer, bool) {
	if x.r.header.Get("GoCardless-Version") != "2015-07-06" {
		return gcError(400, "invalid_api_usage", "missing_version_header", "The GoCardless-Version header is missing or unknown"), false
	}
	if x.r.method == "GET" {
		return x.gcGet(), false
	}
	raw := x.r.body
	if string(raw) == "null" { // what the Python SDK sends with an action that has no parameters
		raw = nil
	}
	body, ok := document(raw)
	media, _, _ := strings.Cut(x.r.header.Get("Content-Type"), ";")
	switch {
	case !ok, len(x.r.body) > 0 && strings.TrimSpace(media) != "application/json":
		return gcError(400, "invalid_api_usage", "invalid_document_structure", "The document is no JSON"), false
	case x.r.method != "POST":
	case gcCreates[x.r.path()] != "":
		return x.gcCreate(gcCreates[x.r.path()], body)
	default:
		for pattern, step := range gcActions {
			if ids, ok := fits(pattern, x.r.path()); ok {
				return step(x, body, ids)
			}
		}
	}
	return gcNotFound(), false
}

func gcNotFound() answer {
	return gcError(404, "invalid_api_usage", "resource_not_found", "Resource not found")
}

func (x *call) gcFind(kind, id string) *object {
	o := x.s.objects[id]
	if o == nil || o.kind != kind || o.account != x.r.account() || x.fs.has("lookup-blind") {
		return nil
	}
	return o
}

func gcShown(status int, o *object) answer {
	return answerJSON(status, map[string]any{o.kind: o.fields})
}

// gcTurn is an action that takes a resource from one of some statuses to another; money moves where a payment is tried again.
func gcTurn(kind, to, reason string, from ...string) gcStep {
	return func(x *call, body map[string]any, ids []string) (answer, bool) {
		o := x.gcFind(kind, ids[0])
		switch {
		case o == nil:
			return gcNotFound(), false
		case len(body) > 0 && in(body, "data") == nil:
			return gcError(400, "invalid_api_usage", "invalid_document_structure", "The document has no data"), false
		case !slices.Contains(from, o.str("status")):
			return gcError(422, "invalid_state", reason, "The resource has a status of "+o.str("status")), false
		}
		_, action, _ := strings.Cut(x.r.path(), "/actions/")
		o.fields["status"] = to
		x.book(kind+"."+action, o, o.num(gcAmount(kind)), false)
		event := to
		if action == "retry" {
			event = "resubmission_requested"
			x.s.ledger[len(x.s.ledger)-1].Money = true
		}
		x.s.tell(o, event, 0)
		return gcShown(200, o), true
	}
}

// gcAmount is the field of a resource's amount.
func gcAmount(kind string) string {
	if kind == "instalment_schedules" {
		return "total_amount"
	}
	return "amount"
}

// gcReference is our reference: of what the request made.
func gcReference(_ *call, kind string, o *object) string {
	meta, _ := o.fields["metadata"].(map[string]any)
	ref, _ := meta["fence_ref"].(string)
	if !strings.HasSuffix(kind, ".create") {
		return ""
	}
	return ref
}

// gcMove moves a resource that is under way on.
func gcMove(_ *Server, o *object, to string) error {
	m := gcMoves[o.kind]
	status, from := m.to[to], o.str("status")
	if status == "" {
		return fmt.Errorf("a resource of %s cannot be moved to %q", o.kind, to)
	}
	late := o.kind == "payments" && to != "done" && slices.Contains([]string{"confirmed", "paid_out"}, from)
	if !late && !slices.Contains(m.from, from) {
		return fmt.Errorf("%s has a status of %s: it is not under way", o.id, from)
	}
	o.fields["status"] = status
	return nil
}

// gcMoves are the statuses that a resource under way has, and comes to.
var gcMoves = map[string]struct {
	from []string
	to   map[string]string
}{
	"payments": {[]string{"pending_customer_approval", "pending_submission", "submitted"},
		map[string]string{"done": "confirmed", "failed": "failed", "reversed": "charged_back"}},
	"refunds": {[]string{"created", "pending_submission", "submitted", "paid"},
		map[string]string{"done": "paid", "failed": "bounced", "reversed": "funds_returned"}},
	"instalment_schedules": {[]string{"pending"}, map[string]string{"done": "active", "failed": "creation_failed"}},
	"outbound_payments": {[]string{"verifying", "pending_approval", "scheduled", "executing"},
		map[string]string{"done": "executed", "failed": "failed", "reversed": "cancelled"}},
}
