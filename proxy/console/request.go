package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// Limits of texts, in bytes.
const (
	maxName   = 255 // tenant, id
	maxHolder = 200
)

// scope is what a request is about.
type scope struct{ tenant, id, key string }

// newScope checks what names a scope. tenant may be nil where only one is served.
func (c *Console) newScope(tenant, id *string) (scope, error) {
	switch {
	case id == nil:
		return scope{}, bad("id is missing")
	case tenant == nil && len(c.Tenants) > 1:
		return scope{}, bad("this sidecar serves several tenants: tenant is missing")
	case tenant == nil:
		tenant = &c.Tenants[0]
	}
	if err := checkName("tenant", *tenant); err != nil {
		return scope{}, err
	}
	if err := checkName("id", *id); err != nil {
		return scope{}, err
	}
	s := scope{tenant: *tenant, id: *id, key: claims.ScopeKey(*tenant, *id)}
	if err := claims.CheckScope(s.key); err != nil {
		return scope{}, err
	}
	return s, c.serves(s.tenant)
}

func (c *Console) serves(tenant string) error {
	if !slices.Contains(c.Tenants, tenant) {
		return refusal(claims.WrongTenant, "this sidecar does not serve the tenant")
	}
	return nil
}

// checkName refuses what would not come through every store, log and header as it is. U+FFFD is what decoders put in place of
// what they cannot read, so that two broken names would become one.
func checkName(what, s string) error {
	switch {
	case s == "" || len(s) > maxName:
		return bad(fmt.Sprintf("%s: want 1 to %d bytes", what, maxName))
	case !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError) || strings.ContainsFunc(s, unicode.IsControl):
		return bad(what + ": want UTF-8 without control characters and U+FFFD")
	}
	return nil
}

// fenceHeaders refuses headers that mean nothing here: what guards money is not guessed.
func fenceHeaders(h http.Header, token bool) error {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if strings.HasPrefix(strings.ToLower(name), "fence-") && (!token || name != proxy.HeaderToken) {
			return bad("header " + clip(name) + " is not taken here")
		}
	}
	return nil
}

// guard reads the one header Fence-Token.
func (x *exchange) guard() (scope, claims.Guard, error) {
	if err := fenceHeaders(x.r.Header, true); err != nil {
		return scope{}, claims.Guard{}, err
	}
	values := x.r.Header.Values(proxy.HeaderToken)
	if len(values) != 1 {
		return scope{}, claims.Guard{}, bad("want header " + proxy.HeaderToken + " once")
	}
	return x.c.parseToken(values[0])
}

// parseToken reads an application's fence token of a tenant that is served.
func (c *Console) parseToken(v string) (scope, claims.Guard, error) {
	g, err := claims.ParseGuard(v)
	if err != nil {
		return scope{}, claims.Guard{}, bad(err.Error())
	}
	tenant, id, err := claims.SplitScope(g.Scope) // refuses the scopes of processes and those counted elsewhere, too
	if err != nil {
		return scope{}, claims.Guard{}, bad(err.Error())
	}
	return scope{tenant, id, g.Scope}, g, c.serves(tenant)
}

// query reads the listed parameters; another one, or one that stands twice, is refused.
func (x *exchange) query(names ...string) (map[string]*string, error) {
	q, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query cannot be read")
	}
	out := map[string]*string{}
	for name, values := range q {
		if !slices.Contains(names, name) || len(values) != 1 {
			return nil, bad("query parameter " + clip(name) + " is not known, or stands twice")
		}
		out[name] = &values[0]
	}
	return out, nil
}

// queryScope reads what a GET is about.
func (x *exchange) queryScope() (scope, error) {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return scope{}, err
	}
	q, err := x.query("tenant", "id")
	if err != nil {
		return scope{}, err
	}
	return x.c.newScope(q["tenant"], q["id"])
}

// ttl is the length that is asked for; nil: the default.
func (c *Console) ttl(ms *int64) (time.Duration, error) {
	if ms == nil {
		return c.Times.TTL, nil
	}
	if *ms < minTTL.Milliseconds() || *ms > c.MaxTTL.Milliseconds() || time.Duration(*ms)*time.Millisecond <= c.Times.Margin {
		return 0, bad(fmt.Sprintf("ttl_ms: want %d to %d, and more than the margin of %d", minTTL.Milliseconds(), c.MaxTTL.Milliseconds(), c.Times.Margin.Milliseconds()))
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// body is what a request's JSON object holds; nil: the member was not there.
type body struct {
	Tenant, ID, Holder, Watch             *string
	TTL, N                                *int64
	Word, Why, Evidence, Outcome, Payment *string
	Version, Attempt                      *int64
}

// body reads a request's JSON object, of which only the listed members may be there. No body is an empty object.
func (x *exchange) body(members ...string) (body, error) {
	if err := x.query0(); err != nil {
		return body{}, err
	}
	return x.object(members...)
}

// object is body where the query says something too.
func (x *exchange) object(members ...string) (body, error) {
	r := x.r
	if r.ContentLength == 0 {
		return body{}, nil
	}
	// The server takes the deadline back when the body was read, and goes on reading to see its client go.
	http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(ioTimeout))
	b, err := io.ReadAll(http.MaxBytesReader(x.w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return body{}, refusal(claims.TooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
	}
	if err != nil {
		x.w.Header().Set("Connection", "close") // else the server waits for the rest before it answers
		return body{}, bad("the body ends early")
	}
	if len(b) == 0 {
		return body{}, nil
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return body{}, &httpError{http.StatusUnsupportedMediaType, "want Content-Type application/json, not encoded"}
	}
	return decode(b, members...)
}

// query0 refuses a query where none is served.
func (x *exchange) query0() error {
	_, err := x.query()
	return err
}

// decode reads one JSON object strictly. encoding/json alone takes names in any case, names that stand twice, null for
// anything, and replaces bytes that are no UTF-8.
func decode(b []byte, members ...string) (body, error) {
	raw, err := object(b)
	if err != nil {
		return body{}, bad("the body is not one JSON object: " + err.Error())
	}
	var out body
	for name, value := range raw {
		if !slices.Contains(members, name) {
			return body{}, bad("member " + clip(name) + " is not known here")
		}
		into := map[string]any{
			"tenant": &out.Tenant, "id": &out.ID, "holder": &out.Holder, "watch": &out.Watch, "ttl_ms": &out.TTL, "n": &out.N,
			"word": &out.Word, "why": &out.Why, "evidence": &out.Evidence, "outcome": &out.Outcome, "payment": &out.Payment,
			"version": &out.Version, "attempt": &out.Attempt,
		}[name]
		if err := json.Unmarshal(value, into); err != nil || string(value) == "null" {
			return body{}, bad("member " + name + " is of the wrong type")
		}
	}
	return out, nil
}

// object splits one JSON object into its members.
func object(b []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it does not begin with {")
	}
	out := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("a member's name cannot be read")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errors.New("a member's value cannot be read")
		}
		if _, twice := out[name]; twice {
			return nil, errors.New("a member stands twice")
		}
		out[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("it does not end")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows it")
	}
	return out, nil
}

// clip quotes outside text, shortened, for a detail.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(strings.ToValidUTF8(s, ""))
}
