package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Config is what a Proxy works with.
type Config struct {
	Fence    *claims.Fence
	Realm    string
	Gateways *gateways.Registry
	Egress   map[string]*Egress // by gateway name
	// Tenants are served. Where there is only one, a request need not name it.
	Tenants     []string
	MaxAttempts int // attempts of a revision that may be in doubt; default 5
	// Wait is how long doubt is looked into while the app waits, if it does not say (Prefer: wait).
	Wait    time.Duration
	Breaker BreakerConfig
	// ExternalTokens lets applications present tokens that they count themselves (Fence-External-Token).
	ExternalTokens bool
	// Shadow passes every request on, judges it beside that, and refuses nothing: it protects nothing.
	Shadow bool
	// TurnedDown, if set, is told of a credential that the sidecar supplied and the gateway answered with 401.
	TurnedDown func(gateway, account, value string)
	Metrics    *Metrics
	Log        *slog.Logger
}

// Proxy serves the data listeners.
type Proxy struct {
	Config
	breakers map[string]*breaker
}

// New makes a Proxy.
func New(cfg Config) (*Proxy, error) {
	if len(cfg.Tenants) == 0 {
		cfg.Tenants = []string{"default"}
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 5
	}
	p := &Proxy{Config: cfg, breakers: map[string]*breaker{}}
	for _, g := range cfg.Gateways.All() {
		if cfg.Egress[g.Name] == nil {
			return nil, fmt.Errorf("gateway %s has no egress", g.Name)
		}
		p.breakers[g.Name] = newBreaker(g.Name, cfg.Breaker, cfg.Metrics)
	}
	return p, nil
}

// For serves one gateway: every request is for it, whatever its Host says. Apps need to change host and port only.
func (p *Proxy) For(g *gateways.Gateway) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, g, func(head *Head) (*gateways.Gateway, string, error) {
			target, host, err := originForm(head.Target)
			if own, ok := p.Gateways.ByHost(host); err == nil && host != "" && (!ok || own != g) {
				err = &claims.Refusal{Reason: claims.UnknownGateway, Detail: "the request target names another host than this port's gateway"}
			}
			return g, target, err
		})
	})
}

// Any serves every gateway: by the request's Host, if that is one of a gateway's own, else by the first path segment.
func (p *Proxy) Any() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, nil, p.route(r)) })
}

// resolve finds a request's gateway and the raw target that it is for.
type resolve func(head *Head) (*gateways.Gateway, string, error)

func (p *Proxy) route(r *http.Request) resolve {
	return func(head *Head) (*gateways.Gateway, string, error) {
		target, host, err := originForm(head.Target)
		if err != nil {
			return nil, "", err
		}
		if host == "" {
			host = r.Host
		}
		if g, ok := p.Gateways.ByHost(host); ok {
			return g, target, nil
		}
		name, rest, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
		if g, ok := p.Gateways.ByName(name); ok {
			return g, "/" + rest, nil
		}
		return nil, "", &claims.Refusal{
			Reason: claims.UnknownGateway, Detail: "neither the Host header nor the first path segment names a configured gateway",
		}
	}
}

// originForm takes the origin form out of a request target without touching its bytes; host is set for an absolute form.
func originForm(target string) (origin, host string, err error) {
	if strings.HasPrefix(target, "/") {
		return target, "", nil
	}
	for _, scheme := range []string{"http://", "https://"} {
		if len(target) > len(scheme) && strings.EqualFold(target[:len(scheme)], scheme) {
			rest := target[len(scheme):]
			i := strings.IndexAny(rest, "/?")
			if i < 0 {
				return "/", rest, nil
			}
			if rest[i] == '?' {
				return "/" + rest[i:], rest[:i], nil
			}
			return rest[i:], rest[:i], nil
		}
	}
	return "", "", bad("the request target must be a path")
}

func bad(format string, args ...any) *claims.Refusal {
	return &claims.Refusal{Reason: claims.BadRequest, Detail: fmt.Sprintf(format, args...)}
}

// serve answers one request and logs it in one line. g is the gateway, where that is known before the head is: a refusal of
// the head has its error shape too.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, g *gateways.Gateway, find resolve) {
	x := &exchange{p: p, r: r, gateway: g, began: time.Now()}
	defer x.log()
	head, err := HeadOf(r)
	if err != nil {
		x.refuse(w, bad("the request's head cannot be told apart on its connection"))
		return
	}
	if head.Flaw != "" {
		x.refuse(w, bad("the request has %s", head.Flaw))
		return
	}
	if x.gateway, x.target, err = find(head); err != nil {
		x.refuse(w, asRefusal(err))
		return
	}
	x.head = head
	if p.Shadow {
		x.shadow(w)
		return
	}
	if why := disguised(r.Method, head.Fields); why != "" {
		x.refuse(w, bad("%s", why))
		return
	}
	if gateways.Safe(r.Method) {
		if ref := x.readBody(w, x.gateway.BodyLimit); ref != nil {
			x.refuse(w, ref)
			return
		}
		x.pass(w, x.in.Body)
		return
	}
	x.unsafe(w)
}

// disguised says why a request could be another than its method tells: a gateway that honours an override would carry out a
// safe request as an unsafe one, past the fence. TRACE would bring back the credential that the sidecar supplied.
func disguised(method string, fields []claims.Field) string {
	if method == http.MethodConnect || method == http.MethodTrace || method != strings.ToUpper(method) {
		return "the method is not served; methods are written in upper case"
	}
	for _, f := range fields {
		switch strings.ToLower(f.Name) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			return "a header that overrides the method is not served"
		}
	}
	return ""
}

func asRefusal(err error) *claims.Refusal {
	if ref, ok := errors.AsType[*claims.Refusal](err); ok {
		return ref
	}
	if b, ok := errors.AsType[*gateways.BadRequest](err); ok {
		return bad("%s", b.Detail)
	}
	if u, ok := errors.AsType[*gateways.Unavailable](err); ok {
		return &claims.Refusal{Reason: claims.Unreadable, Detail: u.Detail, RetryAfter: 5 * time.Second}
	}
	return bad("%s", err.Error())
}

// exchange is one request on its way.
type exchange struct {
	p       *Proxy
	r       *http.Request
	head    *Head
	gateway *gateways.Gateway
	target  string
	tags    Tags
	match   gateways.Match
	in      gateways.Inbound
	// supplied are the header lines that go out: the app's, with the sidecar's credential where that is the one to use.
	supplied []claims.Field
	began    time.Time

	tenant, callKey string
	kind            string // fenced, passed, refused
	status          int
	result          claims.Result
	would           string // in shadow mode: what enforcing would have done
	repeat          string // in shadow mode: what the gateway made of a request that enforcing would have replayed
}

// unsafe serves a method that may move money.
func (x *exchange) unsafe(w http.ResponseWriter) {
	routed, limit, ref := x.open()
	if ref != nil {
		x.refuse(w, ref)
		return
	}
	if ref := x.readBody(w, limit); ref != nil {
		x.refuse(w, ref)
		return
	}
	call, ref := x.call(routed)
	switch {
	case ref != nil && ref.Reason == claims.Untagged && x.untagged(routed) == gateways.UntaggedPass:
		if why := x.respelled(routed); why != "" { // it passes under the rules of no route, or of a catch-all
			x.refuse(w, bad("%s", why))
			return
		}
		x.pass(w, x.in.Body)
	case ref != nil:
		x.refuse(w, ref)
	default:
		x.fenced(w, call)
	}
}

// respelled says that the path is another spelling of a declared route; "": it is none.
func (x *exchange) respelled(routed bool) string {
	if routed {
		return x.match.Flaw()
	}
	return x.gateway.Respelled(x.in.Target)
}

// untagged says what becomes of the request if it has no call key.
func (x *exchange) untagged(routed bool) string {
	if routed && x.match.Route.Untagged != "" {
		return x.match.Route.Untagged
	}
	return x.gateway.Untagged
}

// open reads what the head says: tags and route, and the limit of the body that may follow.
func (x *exchange) open() (routed bool, limit int64, ref *claims.Refusal) {
	tags, err := ParseTags(x.head.Fields)
	if err != nil {
		return false, 0, asRefusal(err)
	}
	x.tags = tags
	x.in = gateways.Inbound{Method: x.r.Method, Target: x.target, Header: ForwardFields(x.head)}
	x.match, routed = x.gateway.Match(x.in.Method, x.in.Target)
	limit = x.gateway.BodyLimit
	if routed {
		limit = x.match.Policy().BodyLimit
	}
	return routed, limit, x.early(routed)
}

// early refuses what can be refused before the body is asked for (Expect: 100-continue).
func (x *exchange) early(routed bool) *claims.Refusal {
	x.tenant = x.tags.Tenant
	if x.tenant == "" {
		x.tenant = x.p.Tenants[0]
	}
	switch {
	case x.tags.Any && x.tags.Tenant == "" && len(x.p.Tenants) > 1:
		return bad("this sidecar serves several tenants: header %s is missing", HeaderTenant)
	case !slices.Contains(x.p.Tenants, x.tenant):
		return &claims.Refusal{Reason: claims.WrongTenant, Detail: "this sidecar does not serve the tenant"}
	case x.tags.Token.External() && !x.p.ExternalTokens:
		return bad("header %s: external tokens are off (externalTokens)", HeaderExternal)
	case x.tags.Any && !routed:
		return bad("gateway %s declares no route for %s of this path", x.gateway.Name, x.r.Method)
	case x.tags.Any && routed && x.match.Flaw() != "":
		return bad("%s", x.match.Flaw())
	case x.tags.Any && x.gateway.Tokens == gateways.TokensRequired && x.tags.Token.IsZero():
		return bad("gateway %s serves no calls without a %s header", x.gateway.Name, HeaderToken)
	}
	return x.undo(routed)
}

// undo demands that a refund, void or cancel says whether it undoes a call.
func (x *exchange) undo(routed bool) *claims.Refusal {
	undoes := routed && x.match.Policy().Undo
	switch {
	case undoes && x.tags.Any && !x.tags.Undo:
		return bad("this route undoes money: say %s: <call key> of what it undoes, or %s: none if it compensates nothing", HeaderUndo, HeaderUndo)
	case x.tags.Undoes == "":
		return nil
	case routed && !undoes:
		return bad("header %s names a call, and this route undoes nothing", HeaderUndo)
	}
	if err := (claims.Key{Tenant: x.tenant, Call: x.tags.Undoes}).Check(); err != nil {
		return bad("header %s: %s", HeaderUndo, err.Error())
	}
	return nil
}

// bodyTimeout bounds the reading of a request's body, which comes over loopback.
const bodyTimeout = 30 * time.Second

// readBody reads the whole body before anything is claimed. The server answers Expect: 100-continue at the first read, so
// a body that is declared too large is never asked for.
func (x *exchange) readBody(w http.ResponseWriter, limit int64) *claims.Refusal {
	tooLarge := &claims.Refusal{Reason: claims.TooLarge, Detail: fmt.Sprintf("the body is over this route's limit of %d bytes", limit)}
	if x.r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return tooLarge
	}
	c := http.NewResponseController(w)
	c.SetReadDeadline(time.Now().Add(bodyTimeout))
	b, err := io.ReadAll(http.MaxBytesReader(w, x.r.Body, limit))
	c.SetReadDeadline(time.Time{})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if err != nil {
		return bad("the body could not be read to its end")
	}
	x.in.Body = b
	return nil
}

// call makes the claims' view of the request.
func (x *exchange) call(routed bool) (claims.Call, *claims.Refusal) {
	key, ref := x.key(routed)
	if ref != nil {
		return claims.Call{}, ref
	}
	x.callKey = key.Call
	prepared, err := x.match.Prepare(x.in, gateways.Identity{
		Realm: x.p.Realm, Tenant: key.Tenant, CallKey: key.Call, Revision: x.tags.Revision,
	})
	if err != nil {
		return claims.Call{}, asRefusal(err)
	}
	policy := x.match.Policy()
	b := x.p.breakers[x.gateway.Name]
	return claims.Call{
		Key: key, Revision: x.tags.Revision, Guard: x.tags.Token,
		Canonical: prepared.Canonical, CanonicalVersion: prepared.CanonicalVersion, Also: prepared.Also, Facts: prepared.Facts,
		Policy: claims.Policy{
			AttemptTimeout: policy.AttemptTimeout, MaxAttempts: x.p.MaxAttempts, Probe: policy.Probe,
			NoTokens: x.gateway.Tokens == gateways.TokensNone,
		},
		Undoes: x.tags.Undoes, Part: x.tags.Part, Keep: x.match.Keep,
		Wait:  x.wait(),
		Send:  x.send,
		Admit: b.admit,
	}, nil
}

// key finds the call key: Fence-Key, else where the route takes it from.
func (x *exchange) key(routed bool) (claims.Key, *claims.Refusal) {
	k := claims.Key{Tenant: x.tenant, Call: x.tags.Key}
	if k.Call == "" && routed {
		from, err := x.match.CallKey(x.in)
		if err != nil {
			return k, &claims.Refusal{Reason: claims.NoKey, Detail: asRefusal(err).Detail}
		}
		k.Call = from
	}
	switch {
	case k.Call == "" && x.tags.Any:
		return k, &claims.Refusal{Reason: claims.NoKey, Detail: "a fenced call needs a call key: header " + HeaderKey + " is missing"}
	case k.Call == "":
		return k, &claims.Refusal{Reason: claims.Untagged, Detail: "nothing was sent: an unsafe request needs a call key in the header " + HeaderKey}
	}
	if err := k.Check(); err != nil {
		return k, bad("%s", err.Error())
	}
	if k.Call == x.tags.Undoes {
		return k, bad("header %s: a call cannot undo itself; it has a call key of its own", HeaderUndo)
	}
	if !routed {
		return k, bad("gateway %s declares no route for %s of this path", x.gateway.Name, x.r.Method)
	}
	if t := x.tags.Token; !t.IsZero() {
		if tenant, _, err := claims.SplitScope(strings.TrimPrefix(t.Scope, claims.ExternalPrefix)); err != nil || tenant != k.Tenant {
			return k, &claims.Refusal{Reason: claims.Fenced, Detail: "the fence token is of another tenant"}
		}
	}
	return k, x.keyed()
}

// keyed repeats for a call key out of the route's own source what early asked of a tagged request.
func (x *exchange) keyed() *claims.Refusal {
	x.tags.Any = true
	return x.early(true)
}

func (x *exchange) wait() time.Duration {
	if x.tags.Wait >= 0 {
		return x.tags.Wait
	}
	return x.p.Wait
}

// fenced runs the call and answers.
func (x *exchange) fenced(w http.ResponseWriter, c claims.Call) {
	x.kind = "fenced"
	patience := x.tags.Timeout
	if patience == 0 {
		patience = c.Policy.AttemptTimeout + c.Wait + 5*time.Second
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), patience)
	defer cancel()
	x.result = x.p.Fence.Do(ctx, c)
	x.writeFence(w)
	if ref := x.result.Refusal; ref != nil {
		x.status = StatusOf(ref.Reason, x.gateway)
		WriteProblem(w, ref, x.gateway)
		return
	}
	x.status = x.result.Answer.Status
	writeAnswer(w, x.result.Answer)
}

// refuse answers a request that never reached the fence.
func (x *exchange) refuse(w http.ResponseWriter, ref *claims.Refusal) {
	x.kind = "refused"
	x.result = claims.Result{Refusal: ref, Outcome: ref.Outcome, Source: claims.SourceRefused}
	if x.p.Shadow && x.would == "" {
		x.would = claims.Would{What: claims.WouldRefuse, Reason: ref.Reason}.String()
	}
	x.writeFence(w)
	x.status = StatusOf(ref.Reason, x.gateway)
	WriteProblem(w, ref, x.gateway)
}
