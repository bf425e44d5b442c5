package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Head is a request's head as it came over the wire: net/http sorts header lines into a map and drops a Content-Length
// beside a Transfer-Encoding.
type Head struct {
	Line                  string // the request line
	Method, Target, Proto string
	Fields                []claims.Field // header lines, order and case kept, blanks around values cut
	HasCL, HasTE          bool
	// Flaw says why the request must be refused with 400 although net/http serves it; "" if nothing is wrong: both
	// framings (RFC 9112 section 6.1), two Content-Length lines, a folded line, blanks before a colon.
	Flaw string
}

// ErrNoHead says that the raw head of a request is not known, or is not the head of that request: it must not be sent on.
var ErrNoHead = errors.New("the request's raw head is not known")

// Default limits of a data listener.
const (
	DefaultMaxHead     = 64 << 10 // bytes
	defaultHeadTimeout = 10 * time.Second
	defaultIdleTimeout = 2 * time.Minute
	drainTimeout       = 2 * time.Second // for what is left of a body after the answer
)

// Listen wraps l so that its connections keep the heads of requests of at most maxHead bytes (default 64 KiB). The server
// that serves it must be made by NewServer.
func Listen(l net.Listener, maxHead int) net.Listener {
	if maxHead <= 0 {
		maxHead = DefaultMaxHead
	}
	return &listener{Listener: l, maxHead: maxHead}
}

type listener struct {
	net.Listener
	maxHead int
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &inboundConn{Conn: c, tracker: tracker{maxHead: l.maxHead}}, nil
}

// inboundConn shows every byte that net/http reads to a tracker.
type inboundConn struct {
	net.Conn
	mu      sync.Mutex
	tracker tracker
}

func (c *inboundConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.tracker.feed(b[:n])
		c.mu.Unlock()
	}
	return n, err
}

// CloseWrite is what net/http uses to let an app read an answer before the connection is reset.
func (c *inboundConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *inboundConn) next() (*Head, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracker.next()
}

type (
	connKey struct{}
	headKey struct{}
)

// ConnContext is the http.Server hook that makes HeadOf work.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if ic, ok := c.(*inboundConn); ok {
		return context.WithValue(ctx, connKey{}, ic)
	}
	return ctx
}

type takenHead struct {
	head *Head
	err  error
}

// TrackHeads takes the raw head of each request before h sees it. It must be the outermost handler: one request, one head.
// A request with Transfer-Encoding is the last one of its connection.
func TrackHeads(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t takenHead
		if c, ok := r.Context().Value(connKey{}).(*inboundConn); ok {
			t.head, t.err = c.next()
		} else {
			t.err = fmt.Errorf("%w: the listener does not keep it", ErrNoHead)
		}
		if t.err == nil {
			t.err = t.head.matches(r)
		}
		if t.err != nil || t.head.HasTE || t.head.Flaw != "" {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), headKey{}, t)))
		// The server now reads what is left of the body, for example one that the app holds back for a 100 Continue.
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout))
	})
}

// HeadOf returns the raw head of exactly this request. An error (ErrNoHead) is to be answered with 400.
func HeadOf(r *http.Request) (*Head, error) {
	t, ok := r.Context().Value(headKey{}).(takenHead)
	if !ok {
		return nil, fmt.Errorf("%w: no TrackHeads around the handler", ErrNoHead)
	}
	if t.err != nil {
		return nil, t.err
	}
	return t.head, nil
}

// rewritten are the headers that net/http takes out of its map or adds to it.
var rewritten = []string{"Host", "Transfer-Encoding", "Content-Length", "Trailer", "Cache-Control"}

// matches compares the head with what net/http read out of the same bytes.
func (h *Head) matches(r *http.Request) error {
	if h.Method != r.Method || h.Target != r.RequestURI || h.Proto != r.Proto {
		return fmt.Errorf("%w: request lines differ", ErrNoHead)
	}
	want := make(http.Header)
	for _, f := range h.Fields {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		want[name] = append(want[name], f.Value)
	}
	have := maps.Clone(r.Header)
	for _, name := range rewritten {
		delete(want, name)
		delete(have, name)
	}
	if !maps.EqualFunc(want, have, slices.Equal) {
		return fmt.Errorf("%w: header lines differ", ErrNoHead)
	}
	return nil
}

// ForwardFields are the lines of h that go to a gateway, in their order and bytes. Dropped are: what ends at this
// connection (RFC 9110 section 7.6.1, with every header that Connection names), what the sender writes anew (Host,
// Content-Length, Expect), every Fence-* line, and Prefer lines that hold nothing but our wait=<s>. A Prefer line with
// other preferences is the gateway's and stays whole.
func ForwardFields(h *Head) []claims.Field {
	drop := hopByHop(h.Fields)
	kept := make([]claims.Field, 0, len(h.Fields))
	for _, f := range h.Fields {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if drop[name] || framing[name] || strings.HasPrefix(name, "Fence-") || name == "Prefer" && onlyWait(f.Value) {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// onlyWait reports whether a Prefer value is one preference, wait (RFC 7240 section 4.3).
func onlyWait(v string) bool {
	name, _, _ := strings.Cut(v, "=")
	return strings.EqualFold(strings.TrimSpace(name), "wait") && !strings.ContainsAny(v, ",;")
}

// ServerConfig sets the limits of a data listener's server. Zero values are the defaults.
type ServerConfig struct {
	MaxHead     int           // bytes; as given to Listen; default 64 KiB
	HeadTimeout time.Duration // for a request's head; default 10 s
	IdleTimeout time.Duration // between requests; default 2 min
	Log         *slog.Logger  // default slog.Default()
}

// NewServer makes a server for the listeners of Listen. There is no ServeMux, which would clean paths and redirect, no
// HTTP/2, and no limit on reading a body or writing an answer: those belong to the attempt, which must be shorter.
func NewServer(h http.Handler, cfg ServerConfig) *http.Server {
	orDefault := func(d, or time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return or
	}
	if cfg.MaxHead <= 0 {
		cfg.MaxHead = DefaultMaxHead
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      TrackHeads(h),
		DisableGeneralOptionsHandler: true, // OPTIONS * is the gateway's to answer
		ReadHeaderTimeout:            orDefault(cfg.HeadTimeout, defaultHeadTimeout),
		IdleTimeout:                  orDefault(cfg.IdleTimeout, defaultIdleTimeout),
		MaxHeaderBytes:               cfg.MaxHead,
		ConnContext:                  ConnContext,
		ErrorLog:                     newErrorLog(cfg.Log),
		Protocols:                    &protocols,
	}
}
