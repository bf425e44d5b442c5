package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/proxy"
)

// api is the description, as a test that holds exchanges against it reads it.
type api struct {
	doc    *openapi3.T
	router routers.Router
}

var loadAPI = sync.OnceValues(func() (*api, error) {
	openapi3filter.RegisterBodyDecoder("text/event-stream", func(b io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		text, err := io.ReadAll(b)
		return string(text), err
	})
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(description)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(loader.Context); err != nil {
		return nil, err
	}
	router, err := legacy.NewRouter(doc)
	return &api{doc, router}, err
})

func described(t testing.TB) *api {
	t.Helper()
	a, err := loadAPI()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// check says what of an exchange is not as described. What was served must be described as a request, too.
func (a *api) check(r *http.Request, sent []byte, got reply) error {
	route, params, err := a.router.FindRoute(r)
	if err == nil && route.Path != r.URL.Path { // this router takes a path with a slash behind it for the one without
		err = routers.ErrPathNotFound
	}
	if err != nil {
		return a.checkUnrouted(err, got)
	}
	clone := r.Clone(r.Context())
	clone.Body = io.NopCloser(bytes.NewReader(sent))
	if len(sent) == 0 {
		clone.Body = nil
	}
	in := &openapi3filter.RequestValidationInput{
		Request: clone, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
	if got.status < 300 {
		if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
			return fmt.Errorf("a request that was served: %w", err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: got.status, Header: got.header, Options: in.Options,
		Body: io.NopCloser(bytes.NewReader(got.raw)),
	}
	if err := openapi3filter.ValidateResponse(r.Context(), out); err != nil {
		return err
	}
	response := route.Operation.Responses.Status(got.status).Value
	for name := range got.header {
		if strings.HasPrefix(name, "Fence-") && response.Headers[name] == nil {
			return fmt.Errorf("header %s is not described", name)
		}
	}
	if got.status >= 400 {
		return checkProblem(got, stringsIn(response.Extensions["x-problems"]))
	}
	return nil
}

// checkUnrouted: what is not described is not served.
func (a *api) checkUnrouted(err error, got reply) error {
	if got.status != 404 && got.status != 405 && got.status != 403 && got.status != 421 {
		return fmt.Errorf("status %d: %w", got.status, err)
	}
	if errors.Is(err, routers.ErrMethodNotAllowed) != (got.status == 405) && got.status != 403 && got.status != 421 {
		return fmt.Errorf("status %d: %w", got.status, err)
	}
	if err := a.schema("Problem", got.raw); err != nil {
		return err
	}
	return checkProblem(got, []string{"http"})
}

func checkProblem(got reply, allowed []string) error {
	slug := got.slug()
	if slug == "about:blank" {
		slug = "http"
	}
	if !slices.Contains(allowed, slug) {
		return fmt.Errorf("problem %s is not described for %d: %q", slug, got.status, allowed)
	}
	if got.num("status") != float64(got.status) {
		return fmt.Errorf("member status is %v", got.body["status"])
	}
	return nil
}

func (a *api) schema(name string, text []byte) error {
	ref := a.doc.Components.Schemas[name]
	if ref == nil {
		return fmt.Errorf("no schema %s", name)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return ref.Value.VisitJSON(v)
}

// event holds one event of a path's stream against the description.
func (a *api) event(path, name string, data []byte) error {
	stream := a.doc.Paths.Value(path).Get
	events, _ := stream.Responses.Status(200).Value.Extensions["x-events"].(map[string]any)
	schema, ok := events[name].(string)
	if !ok {
		return fmt.Errorf("event %s is not described", name)
	}
	return a.schema(schema, data)
}

func stringsIn(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		s, _ := e.(string)
		out = append(out, s)
	}
	return out
}

// Every route of the mux is described, and what is described is served.
func TestDescription_routes(t *testing.T) {
	a := described(t)
	var served, listed []string
	for _, r := range routes() {
		served = append(served, r.method+" "+r.path)
	}
	for p, item := range a.doc.Paths.Map() {
		for method := range item.Operations() {
			listed = append(listed, method+" "+p)
		}
	}
	slices.Sort(served)
	slices.Sort(listed)
	if !slices.Equal(served, listed) {
		t.Errorf("served %q\ndescribed %q", served, listed)
	}
}

// The types of problems are those of the slugs that operations list, each a refusal of claims with that status.
func TestDescription_problems(t *testing.T) {
	a := described(t)
	listed := map[string]bool{}
	for p, item := range a.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, ref := range op.Responses.Map() {
				slugs := stringsIn(ref.Value.Extensions["x-problems"])
				if (status >= "400") != (len(slugs) > 0) {
					t.Errorf("%s %s, %s: problems %q", method, p, status, slugs)
				}
				for _, s := range slugs {
					listed[s] = true
					if want := strconv.Itoa(proxy.StatusOf(claims.Reason(s), nil)); s != "http" && want != status {
						t.Errorf("%s %s lists %s under %s, its status is %s", method, p, s, status, want)
					}
				}
			}
		}
	}
	var types []string
	for _, v := range a.doc.Components.Schemas["ProblemType"].Value.Enum {
		s := strings.TrimPrefix(v.(string), proxy.ProblemBase)
		if s == "about:blank" {
			s = "http"
		} else if !slices.Contains(slices.Concat(claims.Reasons, claims.LeaseReasons, claims.CallsReasons), claims.Reason(s)) {
			t.Errorf("%s is no refusal", s)
		}
		types = append(types, s)
	}
	for _, s := range types {
		if !listed[s] {
			t.Errorf("type %s is of no operation", s)
		}
		delete(listed, s)
	}
	for s := range listed {
		t.Errorf("%s is no type", s)
	}
	for _, r := range slices.Concat(claims.LeaseReasons, claims.CallsReasons) {
		if !slices.Contains(types, string(r)) {
			t.Errorf("%s is not described", r)
		}
	}
}

func TestDescription_isServed(t *testing.T) {
	k := newKit(t)
	r := k.do(request("GET", "/openapi.yaml", "", ""))
	if r.status != 200 || !bytes.Equal(r.raw, description) || r.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d, %s, %d bytes", r.status, r.header.Get("Content-Type"), len(r.raw))
	}
}

// The checker finds what it is there for.
func TestDescription_bites(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "me")
	good := k.post("confirm", token, "")
	confirm := func() (*http.Request, []byte) { return request("POST", "/v1/leases/confirm", token, ""), nil }
	edit := func(text string) func(*reply) { return func(r *reply) { r.raw = []byte(text) } }
	swap := func(old, new string) func(*reply) {
		return edit(strings.Replace(string(good.raw), old, new, 1))
	}
	for _, tt := range []struct {
		name string
		edit func(*reply)
		want string // "": as described
	}{
		{"as it is", func(*reply) {}, ""},
		{"a further member", swap(`{`, `{"more":1,`), "more"},
		{"a missing member", swap(`"token":1,`, ``), "token"},
		{"another type", swap(`"token":1`, `"token":"1"`), "token"},
		{"another status", func(r *reply) { r.status = 201 }, "status is not supported"},
		{"a status of another lease", swap(`"live"`, `"dead"`), "enum"},
		{"another media type", func(r *reply) { r.header.Set("Content-Type", "text/html") }, "Content-Type"},
		{"a missing header", func(r *reply) { r.header.Del("Fence-Cancelled") }, "Fence-Cancelled"},
		{"a header that is not described", func(r *reply) { r.header.Set("Fence-More", "1") }, "Fence-More is not described"},
		{"a problem of another operation", func(r *reply) {
			r.status, r.raw = 409, []byte(`{"type":"`+proxy.ProblemBase+`stale-ping","title":"t","status":409,"detail":"d","lease_status":"expired"}`)
			r.header.Set("Content-Type", "application/problem+json")
			for _, h := range []string{"Fence-Token", "Fence-Trusted-For-Ms", "Fence-Cancelled"} {
				r.header.Del(h)
			}
			json.Unmarshal(r.raw, &r.body)
		}, "problem stale-ping is not described"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := good
			got.header = good.header.Clone()
			got.body = map[string]any{}
			tt.edit(&got)
			json.Unmarshal(got.raw, &got.body)
			req, sent := confirm()
			err := described(t).check(req, sent, got)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if err := described(t).event("/v1/leases/watch", "ping", []byte(`{"n":1}`)); err == nil {
		t.Error("a ping without its watch was taken")
	}
	if err := described(t).event("/v1/leases/watch", "pong", []byte(`{}`)); err == nil {
		t.Error("an event that is not described was taken")
	}
	req := request("POST", "/v1/leases/confirm", token, `{"ttl":1}`)
	if err := described(t).check(req, []byte(`{"ttl":1}`), good); err == nil || !strings.Contains(err.Error(), "a request that was served") {
		t.Errorf("a request that is not described: %v", err)
	}
}
