// Package console is the control listener: the lease API, by which applications hold scopes and hand them over, and the calls
// API, by which people and applications see what became of calls, decide what nobody else can, and are told when a doubt ends.
package console

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Limits of one request.
const (
	maxBody      = 4 << 10
	storeTimeout = 5 * time.Second  // of one transaction
	ioTimeout    = 10 * time.Second // for a body to come, for an answer or an event to be taken
	restTimeout  = 2 * time.Second  // for what is left of a body after a refusal
	minTTL       = time.Second
	// DefaultMaxTTL is the longest lease that an application may ask for, if the configuration says nothing.
	DefaultMaxTTL = 10 * time.Minute
)

// Config is what a Console works with.
type Config struct {
	Leases claims.Leases
	Lister claims.Lister // for the lease log and the list of calls
	Calls  claims.Store
	// Journal holds the events that streams tell.
	Journal claims.Journal
	// Operators may change calls; none: nobody may.
	Operators []Operator
	Gateways  *gateways.Registry
	// Attempts is how many a revision may have, for the explanation.
	Attempts int
	// Confirm is claims.Store's: what was seen after a write that was perhaps applied is told only after it.
	Confirm func(context.Context) error
	Clock   claims.Clock // default claims.SystemClock
	// Times are the lease's default length, and how much earlier than the store a holder stops trusting.
	Times  claims.LeaseTimes
	MaxTTL time.Duration // the longest that may be asked for; default DefaultMaxTTL, at least Times.TTL
	// Tenants are served. Where there is only one, a request need not name it.
	Tenants []string
	// Draining says that no new lease is to be granted and no new watch to be opened; nil: never.
	Draining func() bool
	Log      *slog.Logger
	Metrics  *Metrics
}

// Console serves the control listener.
type Console struct {
	Config
	mux    *http.ServeMux
	cross  *http.CrossOriginProtection
	closed chan struct{}
	close  func()

	mu      sync.Mutex
	watches map[string]*watch
	streams newsroom
}

// New makes a Console.
func New(cfg Config) *Console {
	if cfg.Clock == nil {
		cfg.Clock = claims.SystemClock
	}
	cfg.Times = cfg.Times.Defaults()
	if cfg.MaxTTL == 0 {
		cfg.MaxTTL = DefaultMaxTTL
	}
	cfg.MaxTTL = max(cfg.MaxTTL, cfg.Times.TTL)
	if len(cfg.Tenants) == 0 {
		cfg.Tenants = []string{"default"}
	}
	if cfg.Draining == nil {
		cfg.Draining = func() bool { return false }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Gateways == nil {
		cfg.Gateways, _ = gateways.NewRegistry()
	}
	c := &Console{
		Config: cfg, cross: http.NewCrossOriginProtection(), closed: make(chan struct{}), watches: map[string]*watch{},
	}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	c.mux = c.newMux()
	return c
}

// Close ends every watch and every stream of events with a draining event; the leases go on. It does not wait. As a stream never becomes idle,
// http.Server.Shutdown waits for its whole time if Close was not called before.
func (c *Console) Close() { c.close() }

// isClosed reports whether Close was called.
func (c *Console) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// route is one operation.
type route struct {
	method, path string
	serve        func(*Console, *exchange) error
}

func routes() []route {
	return []route{
		{http.MethodPost, "/v1/leases/acquire", (*Console).acquire},
		{http.MethodPost, "/v1/leases/confirm", (*Console).confirm},
		{http.MethodPost, "/v1/leases/release", (*Console).release},
		{http.MethodPost, "/v1/leases/finish", (*Console).finish},
		{http.MethodPost, "/v1/leases/cancel", (*Console).cancel},
		{http.MethodPost, "/v1/leases/pong", (*Console).pong},
		{http.MethodGet, "/v1/leases/state", (*Console).state},
		{http.MethodGet, "/v1/leases/fenced", (*Console).fenced},
		{http.MethodGet, "/v1/leases/log", (*Console).log},
		{http.MethodGet, "/v1/leases/watch", (*Console).watch},
		{http.MethodGet, "/v1/calls", (*Console).list},
		{http.MethodGet, "/v1/calls/show", (*Console).show},
		{http.MethodGet, "/v1/calls/explain", (*Console).explain},
		{http.MethodPost, "/v1/calls/resolve", (*Console).resolve},
		{http.MethodPost, "/v1/calls/evidence", (*Console).evidence},
		{http.MethodGet, "/v1/events", (*Console).events},
		{http.MethodGet, "/openapi.yaml", (*Console).openapi},
	}
}

func (c *Console) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.Handle(r.path, c.handle(r.dispatch))
	}
	mux.Handle("/", c.handle(func(*Console, *exchange) error { return errNoPath }))
	return mux
}

func (r route) dispatch(c *Console, x *exchange) error {
	if x.r.Method != r.method { // a pattern with GET would take HEAD too, and a watch without a body tells nothing
		x.w.Header().Set("Allow", r.method)
		return &httpError{http.StatusMethodNotAllowed, "this path is served for " + r.method}
	}
	return r.serve(c, x)
}

// handle runs one operation and answers with the error that it returns.
func (c *Console) handle(serve func(*Console, *exchange) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{c: c, w: w, r: r, asked: c.Clock(), began: time.Now(), calls: !strings.HasPrefix(r.URL.Path, "/v1/leases/")}
		if err := serve(c, x); err != nil {
			x.refuse(err)
		}
	})
}

// Handler serves the control listener's requests.
func (c *Console) Handler() http.Handler { return c.guarded(c.mux) }

// CallByKeyPath is where a data listener serves CallByKey: a well-known URI (RFC 8615), which is no gateway's.
const CallByKeyPath = "/.well-known/fence-sidecar/calls"

// CallByKey serves one operation, how a call stands, to applications that know no more than a data listener.
func (c *Console) CallByKey() http.Handler {
	show := route{http.MethodGet, CallByKeyPath, (*Console).show}
	return c.guarded(c.handle(func(c *Console, x *exchange) error {
		if x.r.URL.Path != CallByKeyPath {
			return errNoPath
		}
		return show.dispatch(c, x)
	}))
}

// guarded keeps browsers out. A page must reach neither leases nor calls: the Host must be this machine's own, and unsafe
// methods must not come from another origin.
func (c *Console) guarded(h http.Handler) http.Handler {
	guard := c.handle(func(c *Console, x *exchange) error {
		switch {
		case !loopback(x.r.Host):
			return &httpError{http.StatusMisdirectedRequest, "the Host must be localhost or a loopback address"}
		case c.cross.Check(x.r) != nil:
			return &httpError{http.StatusForbidden, "the request comes from another origin"}
		case path.Clean(x.r.URL.Path) != x.r.URL.Path: // the mux would redirect
			return errNoPath
		}
		h.ServeHTTP(x.w, x.r)
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rc := http.NewResponseController(w)
		rc.SetWriteDeadline(time.Now().Add(ioTimeout + 3*storeTimeout))
		guard.ServeHTTP(w, r)
		rc.SetReadDeadline(time.Now().Add(restTimeout))
	})
}

// loopback reports whether a Host header names this machine by what no DNS server can forge.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}
