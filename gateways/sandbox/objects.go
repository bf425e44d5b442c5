package sandbox

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// object is one thing that the gateway keeps.
type object struct {
	kind    string // payment_intent, charge …
	id      string
	account string
	made    time.Time
	fields  map[string]any
}

func (o *object) str(name string) string { s, _ := o.fields[name].(string); return s }
func (o *object) num(name string) int64  { n, _ := o.fields[name].(int64); return n }

// call is one execution; the server's lock is held.
type call struct {
	s      *Server
	r      *request
	fs     active
	params url.Values
	made   *object // that the call made, or changed
}

// handler executes one operation on the path's ids. false: refused before anything ran.
type handler func(x *call, ids []string) (answer, bool)

// operations are the unsafe requests, by method and path with * for an id.
var operations = map[string]handler{
	"POST /v1/payment_intents":           createIntent,
	"POST /v1/payment_intents/*":         updateObject("payment_intent"),
	"POST /v1/payment_intents/*/confirm": withoutMetadata(confirmIntent),
	"POST /v1/payment_intents/*/capture": captureIntent,
	"POST /v1/payment_intents/*/cancel":  withoutMetadata(cancelIntent),
	"POST /v1/charges":                   createCharge,
	"POST /v1/charges/*":                 updateObject("charge"),
	"POST /v1/charges/*/capture":         withoutMetadata(captureCharge),
	"POST /v1/refunds":                   createRefund,
	"POST /v1/transfers":                 createTransfer,
	"POST /v1/transfers/*/reversals":     createReversal,
	"POST /v1/payouts":                   createPayout,
	"POST /v1/payouts/*/cancel":          withoutMetadata(cancelPayout),
	"POST /v1/payouts/*/reverse":         reversePayout,
	"POST /v1/topups":                    createTopup,
	"POST /v1/topups/*/cancel":           withoutMetadata(cancelTopup),
	"POST /v1/customers":                 createCustomer,
	"DELETE /v1/customers/*":             deleteCustomer,
}

// withoutMetadata refuses metadata, as Stripe does where an operation takes none.
func withoutMetadata(h handler) handler {
	return func(x *call, ids []string) (answer, bool) {
		for name := range x.params {
			if name == "metadata" || strings.HasPrefix(name, "metadata[") {
				return answerError(400, "invalid_request_error", "parameter_unknown", "Received unknown parameter: metadata", "param", "metadata"), false
			}
		}
		return h(x, ids)
	}
}

func (x *call) runStripe() (answer, bool) {
	if x.r.method == "GET" {
		return x.get(), true
	}
	for pattern, h := range operations {
		if ids, ok := fits(pattern, x.r.method+" "+x.r.path()); ok {
			if a, ok := x.parse(); !ok {
				return a, false
			}
			return h(x, ids)
		}
	}
	return answerError(404, "invalid_request_error", "", fmt.Sprintf("Unrecognized request URL (%s: %s)", x.r.method, x.r.path())), false
}

// fits compares a path with a pattern and returns what stood at its stars.
func fits(pattern, path string) (ids []string, ok bool) {
	ps, ss := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(ps) != len(ss) {
		return nil, false
	}
	for i, p := range ps {
		switch {
		case p == "*" && ss[i] != "":
			ids = append(ids, ss[i])
		case p != ss[i]:
			return nil, false
		}
	}
	return ids, true
}

// parse reads the form; Stripe's v1 takes nothing else.
func (x *call) parse() (answer, bool) {
	media, _, _ := strings.Cut(x.r.header.Get("Content-Type"), ";")
	if media = strings.TrimSpace(media); len(x.r.body) > 0 && media != "application/x-www-form-urlencoded" {
		return answerError(400, "invalid_request_error", "", "Invalid request: the v1 API takes application/x-www-form-urlencoded"), false
	}
	body, err1 := url.ParseQuery(string(x.r.body))
	query, err2 := url.ParseQuery(x.r.query())
	if err1 != nil || err2 != nil {
		return answerError(400, "invalid_request_error", "", "Invalid request: the form cannot be read"), false
	}
	for k, v := range query {
		body[k] = append(body[k], v...)
	}
	x.params = body
	return answer{}, true
}

// last is what Rack takes of a repeated name.
func (x *call) last(name string) string {
	vs := x.params[name]
	if len(vs) == 0 {
		return ""
	}
	return vs[len(vs)-1]
}

// amount reads a positive whole number; needed: it must be there. A zero without an answer means that it is not.
func (x *call) amount(name string, needed bool) (int64, answer, bool) {
	v := x.last(name)
	if v == "" && !needed {
		return 0, answer{}, true
	}
	if v == "" {
		return 0, answerError(400, "invalid_request_error", "parameter_missing", "Missing required param: "+name+".", "param", name), false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil:
		return 0, answerError(400, "invalid_request_error", "parameter_invalid_integer", "Invalid integer: "+v, "param", name), false
	case n < 1:
		return 0, answerError(400, "invalid_request_error", "parameter_invalid_integer", "This value must be greater than or equal to 1.", "param", name), false
	}
	return n, answer{}, true
}

// money reads amount and currency.
func (x *call) money() (n int64, currency string, a answer, ok bool) {
	if n, a, ok = x.amount("amount", true); !ok {
		return 0, "", a, false
	}
	if currency = strings.ToLower(x.last("currency")); currency == "" {
		return 0, "", answerError(400, "invalid_request_error", "parameter_missing", "Missing required param: currency.", "param", "currency"), false
	}
	return n, currency, answer{}, true
}

// metadata reads metadata[name] into an object's metadata.
func (x *call) metadata(into map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, vs := range x.params {
		if name, ok := strings.CutPrefix(k, "metadata["); ok && strings.HasSuffix(name, "]") {
			if name = strings.TrimSuffix(name, "]"); vs[len(vs)-1] == "" {
				delete(into, name)
			} else {
				into[name] = vs[len(vs)-1]
			}
		}
	}
	return into
}

// make keeps a new object. Its id ends with a number that never repeats.
func (x *call) make(kind, prefix string, fields map[string]any) *object {
	s := x.s
	n := len(s.order) + 1
	o := &object{kind: kind, id: fmt.Sprintf("%s_sandbox%08d", prefix, n), account: x.r.account(), made: s.now(), fields: fields}
	fields["id"], fields["object"], fields["created"], fields["livemode"] = o.id, kind, o.made.Unix(), false
	if fields["metadata"] == nil {
		fields["metadata"] = map[string]any{}
	}
	x.keep(o)
	return o
}

// keep takes a new object into the gateway's books.
func (x *call) keep(o *object) {
	x.s.objects[o.id] = o
	x.s.order = append(x.s.order, o)
	x.made = o
}

// find returns an object of the account, or the 404 that Stripe gives.
func (x *call) find(kind, id string) (*object, answer) {
	o := x.s.objects[id]
	if x.fs.has("lookup-blind") || o == nil || o.kind != kind || o.account != x.r.account() {
		return nil, answerError(404, "invalid_request_error", "resource_missing", "No such "+kind+": '"+id+"'", "param", "id")
	}
	return o, answer{}
}

// book writes a ledger row, and has the webhooks told of a movement of money.
func (x *call) book(kind string, o *object, amount int64, money bool) {
	x.bookIn(kind, o, amount, o.str("currency"), money)
}

// bookIn is book where the object does not say its currency under that name.
func (x *call) bookIn(kind string, o *object, amount int64, currency string, money bool) {
	x.made = o
	ref := ""
	if x.r.p.reference != nil {
		ref = x.r.p.reference(x, kind, o)
	}
	x.s.ledger = append(x.s.ledger, Operation{
		ID: o.id, Kind: kind, At: x.s.now(), Key: x.r.key(), Reference: ref,
		Amount: amount, Currency: currency, Account: o.account, Money: money,
	})
	if money {
		x.s.tell(o, "created", 0)
	}
}

// stripeReference is metadata of a fence_* name: the request's, or of what it made.
func stripeReference(x *call, kind string, o *object) (ref string) {
	meta, _ := o.fields["metadata"].(map[string]any)
	for _, name := range []string{"fence_capture_ref", "fence_ref"} {
		v := x.last("metadata[" + name + "]")
		if v == "" && strings.HasSuffix(kind, ".create") {
			v, _ = meta[name].(string)
		}
		if v != "" {
			ref = v
		}
	}
	return ref
}

func shown(o *object) answer { return answerJSON(200, o.fields) }

func updateObject(kind string) handler {
	return func(x *call, ids []string) (answer, bool) {
		o, a := x.find(kind, ids[0])
		if o == nil {
			return a, false
		}
		meta, _ := o.fields["metadata"].(map[string]any)
		o.fields["metadata"] = x.metadata(meta)
		x.book(kind+".update", o, 0, false)
		return shown(o), true
	}
}

func createCustomer(x *call, _ []string) (answer, bool) {
	o := x.make("customer", "cus", map[string]any{"email": x.last("email"), "metadata": x.metadata(nil)})
	x.book("customers.create", o, 0, false)
	return shown(o), true
}

func deleteCustomer(x *call, ids []string) (answer, bool) {
	o, a := x.find("customer", ids[0])
	if o == nil {
		return a, false
	}
	delete(x.s.objects, o.id)
	x.book("customers.delete", o, 0, false)
	return answerJSON(200, map[string]any{"id": o.id, "object": "customer", "deleted": true}), true
}
