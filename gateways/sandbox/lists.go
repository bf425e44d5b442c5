package sandbox

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// collections are the lists, by path.
var collections = map[string]string{
	"/v1/payment_intents": "payment_intent", "/v1/charges": "charge", "/v1/refunds": "refund", "/v1/transfers": "transfer",
	"/v1/payouts": "payout", "/v1/topups": "topup", "/v1/customers": "customer",
}

func (x *call) get() answer {
	q, err := url.ParseQuery(x.r.query())
	if err != nil {
		return answerError(400, "invalid_request_error", "", "Invalid query")
	}
	p := x.r.path()
	if kind, ok := collections[p]; ok {
		return x.list(kind, q, nil)
	}
	if ids, ok := fits("/v1/transfers/*/reversals", p); ok {
		return x.list("transfer_reversal", q, func(o *object) bool { return o.str("transfer") == ids[0] })
	}
	for base, kind := range collections {
		if p == base+"/search" {
			return x.search(kind, q)
		}
		if ids, ok := fits(base+"/*", p); ok {
			o, a := x.find(kind, ids[0])
			if o == nil {
				return a
			}
			return shown(o)
		}
	}
	return answerError(404, "invalid_request_error", "", "Unrecognized request URL (GET: "+p+")")
}

// visible are the account's objects of a kind that are at least lag old, newest first.
func (x *call) visible(kind string, lag time.Duration) (out []*object) {
	if x.fs.has("lookup-blind") {
		return nil
	}
	for _, o := range slices.Backward(x.s.order) {
		if o.kind == kind && o.account == x.r.account() && x.s.objects[o.id] != nil && x.s.now().Sub(o.made) >= lag {
			out = append(out, o)
		}
	}
	return out
}

func (x *call) list(kind string, q url.Values, also func(*object) bool) answer {
	lag := time.Duration(0)
	if f, ok := x.fs["list-lag"]; ok {
		lag = f.time()
	}
	limit, a, ok := limitOf(q)
	if !ok {
		return a
	}
	var hits []*object
	for _, o := range x.visible(kind, lag) {
		if (also == nil || also(o)) && filtered(o, q) {
			hits = append(hits, o)
		}
	}
	if after := q.Get("starting_after"); after != "" {
		i := slices.IndexFunc(hits, func(o *object) bool { return o.id == after })
		if i < 0 {
			return answerError(400, "invalid_request_error", "resource_missing", "No such "+kind+": '"+after+"'", "param", "starting_after")
		}
		hits = hits[i+1:]
	}
	return page("list", x.r.path(), hits, limit)
}

func page(kind, url string, hits []*object, limit int) answer {
	more := len(hits) > limit
	data := []any{}
	for _, o := range hits[:min(limit, len(hits))] {
		data = append(data, o.fields)
	}
	return answerJSON(200, map[string]any{"object": kind, "url": url, "has_more": more, "data": data})
}

func limitOf(q url.Values) (int, answer, bool) {
	if !q.Has("limit") {
		return 10, answer{}, true
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 || n > 100 {
		return 0, answerError(400, "invalid_request_error", "parameter_invalid_integer", "This value must be from 1 to 100.", "param", "limit"), false
	}
	return n, answer{}, true
}

// filtered applies created and the filters by another object.
func filtered(o *object, q url.Values) bool {
	at := o.made.Unix()
	bounds := map[string]func(int64) bool{
		"created": func(n int64) bool { return at == n }, "created[gte]": func(n int64) bool { return at >= n },
		"created[gt]": func(n int64) bool { return at > n }, "created[lte]": func(n int64) bool { return at <= n },
		"created[lt]": func(n int64) bool { return at < n },
	}
	for name, holds := range bounds {
		if v := q.Get(name); v != "" {
			if n, err := strconv.ParseInt(v, 10, 64); err != nil || !holds(n) {
				return false
			}
		}
	}
	for _, name := range []string{"payment_intent", "charge", "customer", "destination", "status"} {
		if v := q.Get(name); v != "" && o.str(name) != v {
			return false
		}
	}
	return true
}

// clause is one part of a search query: metadata['name']:'value', or field:'value'.
var clause = regexp.MustCompile(`^(?:metadata\[['"]([^'"]+)['"]\]|([a-z_]+)):['"]?([^'"]*)['"]?$`)

// search reads an index that lags.
func (x *call) search(kind string, q url.Values) answer {
	lag := max(x.s.cfg.SearchLag, 0)
	if f, ok := x.fs["search-lag"]; ok {
		lag = f.time()
	}
	limit, a, ok := limitOf(q)
	if !ok {
		return a
	}
	hits := x.visible(kind, lag)
	for part := range strings.SplitSeq(q.Get("query"), " AND ") {
		m := clause.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return answerError(400, "invalid_request_error", "", "The search query cannot be read")
		}
		hits = slices.DeleteFunc(hits, func(o *object) bool {
			if m[1] == "" {
				return o.str(m[2]) != m[3]
			}
			meta, _ := o.fields["metadata"].(map[string]any)
			return meta[m[1]] != m[3]
		})
	}
	return page("search_result", x.r.path(), hits, limit)
}
