package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// gcGet reads a resource, or a list of them with cursors.
func (x *call) gcGet() answer {
	q, err := url.ParseQuery(x.r.query())
	if err != nil {
		return gcError(400, "invalid_api_usage", "bad_request", "The query cannot be read")
	}
	for kind := range gcPrefixes {
		if x.r.path() == "/"+kind {
			return x.gcList(kind, q)
		}
		if ids, ok := fits("/"+kind+"/*", x.r.path()); ok {
			if o := x.gcFind(kind, ids[0]); o != nil {
				return gcShown(200, o)
			}
			return gcNotFound()
		}
	}
	return gcNotFound()
}

// gcList is newest first; a page ends with the cursor of what follows it, or with null.
func (x *call) gcList(kind string, q url.Values) answer {
	lag := time.Duration(0)
	if f, ok := x.fs["list-lag"]; ok {
		lag = f.time()
	}
	limit := 50
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 500 {
			return gcError(400, "invalid_api_usage", "bad_request", "limit must be from 1 to 500")
		}
		limit = n
	}
	hits := slices.DeleteFunc(x.visible(kind, lag), func(o *object) bool { return !gcFiltered(o, q) })
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(hits, func(o *object) bool { return o.id == after })
		if i < 0 {
			return gcError(400, "invalid_api_usage", "invalid_cursor", "The cursor is not known")
		}
		hits = hits[i+1:]
	}
	data, next := []any{}, any(nil)
	for i, o := range hits {
		if i == limit {
			next = hits[i-1].id
			break
		}
		data = append(data, o.fields)
	}
	return answerJSON(200, map[string]any{kind: data, "meta": map[string]any{
		"cursors": map[string]any{"before": nil, "after": next}, "limit": limit,
	}})
}

// gcFiltered applies created_at, status and the filters by another resource.
func gcFiltered(o *object, q url.Values) bool {
	made := o.made.Truncate(time.Millisecond)
	for name, holds := range map[string]func(time.Time) bool{
		"created_at[gte]": func(t time.Time) bool { return !made.Before(t) }, "created_at[gt]": made.After,
		"created_at[lte]": func(t time.Time) bool { return !made.After(t) }, "created_at[lt]": made.Before,
	} {
		if v := q.Get(name); v != "" {
			if t, err := time.Parse(time.RFC3339, v); err != nil || !holds(t) {
				return false
			}
		}
	}
	for _, name := range []string{"mandate", "payment"} {
		if v := q.Get(name); v != "" && textIn(o.fields, "links."+name) != v {
			return false
		}
	}
	return q.Get("status") == "" || q.Get("status") == o.str("status")
}

// gcScene is what a scenario simulator does: the statuses that its resource goes through, with the event of each.
type gcScene struct {
	kind  string
	from  []string
	steps [][2]string // status, event
}

// gcScenes are the scenario simulators that are played (https://developer.gocardless.com/developer-tools/scenario-simulators/).
// The status of a payment that failed late is failed.
func gcScenes() map[string]gcScene {
	start := []string{"pending_submission"}
	submitted := [][2]string{{"submitted", "submitted"}}
	confirmed := append(slices.Clone(submitted), [2]string{"confirmed", "confirmed"})
	paid := append(slices.Clone(confirmed), [2]string{"paid_out", "paid_out"})
	late := append(slices.Clone(start), "paid_out")
	under := []string{"created", "pending_submission", "submitted"}
	then := func(steps [][2]string, more ...[2]string) [][2]string { return append(slices.Clone(steps), more...) }
	return map[string]gcScene{
		"payment_submitted":            {"payments", start, submitted},
		"payment_confirmed":            {"payments", start, confirmed},
		"payment_paid_out":             {"payments", start, paid},
		"payment_failed":               {"payments", start, then(submitted, [2]string{"failed", "failed"})},
		"payment_charged_back":         {"payments", start, then(paid, [2]string{"charged_back", "charged_back"})},
		"payment_late_failure":         {"payments", late, then(paid, [2]string{"failed", "failed"})},
		"payment_late_failure_settled": {"payments", late, then(paid, [2]string{"failed", "failed"}, [2]string{"failed", "late_failure_settled"})},
		"refund_paid":                  {"refunds", []string{"created", "pending_submission", "submitted"}, [][2]string{{"paid", "paid"}}},
		"refund_bounced":               {"refunds", append(slices.Clone(under), "paid"), [][2]string{{"bounced", "failed"}}},
		"mandate_activated":            {"mandates", start, [][2]string{{"active", "active"}}},
	}
}

// gcSimulate runs a scenario simulator. No operation is booked: a bank moves, not the app.
func gcSimulate(x *call, body map[string]any, ids []string) (answer, bool) {
	scene, known := gcScenes()[ids[0]]
	if !known {
		return gcNotFound(), false
	}
	o := x.gcFind(scene.kind, textIn(body, "data.links.resource"))
	switch {
	case o == nil:
		return gcError(400, "invalid_api_usage", "link_not_found", "The resource was not found"), false
	case !slices.Contains(scene.from, o.str("status")):
		return gcError(422, "invalid_state", "simulator_failed", "The resource has a status of "+o.str("status")), false
	}
	if !slices.ContainsFunc(x.s.faults, func(f *Fault) bool { return f.Name == "no-outcome" }) {
		steps := scene.steps
		if i := slices.IndexFunc(steps, func(s [2]string) bool { return s[0] == o.str("status") }); i >= 0 {
			steps = steps[i+1:]
		}
		for _, step := range steps {
			o.fields["status"] = step[0]
			x.s.tell(o, step[1], 0)
		}
	}
	return answerJSON(200, map[string]any{"scenario_simulators": map[string]any{"id": ids[0]}}), true
}

// gcLinks name the resource of an event in its links.
var gcLinks = map[string]string{
	"payments": "payment", "refunds": "refund", "subscriptions": "subscription", "instalment_schedules": "instalment_schedule",
	"outbound_payments": "outbound_payment", "billing_requests": "billing_request", "mandates": "mandate",
}

// gcWords are the events of what Server.Move does; others keep their name.
var gcWords = map[string]map[string]string{
	"payments":             {"done": "confirmed", "failed": "failed", "reversed": "charged_back"},
	"refunds":              {"done": "paid", "failed": "failed", "reversed": "funds_returned"},
	"instalment_schedules": {"done": "created", "failed": "creation_failed"},
	"outbound_payments":    {"done": "executed", "failed": "failed", "reversed": "cancelled"},
}

// gcNotice is a webhook of one event, with the signature that the SDKs verify: the hexadecimal HMAC-SHA256 of the body.
func gcNotice(s *Server, o *object, event string, h Hook) (notice, bool) {
	if gcLinks[o.kind] == "" {
		return notice{}, false
	}
	if word := gcWords[o.kind][event]; word != "" {
		event = word
	}
	if o.kind == "billing_requests" && event == "created" && o.str("status") == "fulfilled" {
		event = "fulfilled"
	}
	s.serial++
	body, err := json.Marshal(map[string]any{
		"events": []any{map[string]any{
			"id": fmt.Sprintf("EV00SBX%08d", s.serial), "created_at": s.now().UTC().Format(gcTime),
			"resource_type": o.kind, "action": event, "links": map[string]any{gcLinks[o.kind]: o.id},
			"details":  map[string]any{"origin": "gocardless", "cause": gcLinks[o.kind] + "_" + event, "description": "Sandbox"},
			"metadata": map[string]any{}, "resource_metadata": o.fields["metadata"],
		}},
		"meta": map[string]any{"webhook_id": fmt.Sprintf("WB00SBX%08d", s.serial)},
	})
	if err != nil {
		return notice{}, false
	}
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write(body)
	return notice{body: body, header: []Line{
		{"Content-Type", "application/json"}, {"User-Agent", "gocardless-webhook-service/1.1"},
		{"Webhook-Signature", hex.EncodeToString(mac.Sum(nil))},
	}}, true
}
