package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// maxHeld bounds the requests and streams that wait at stalls. A further one is answered 503.
const maxHeld = 100

// maxLeaseBody bounds a request's body, which is kept while the request is held.
const maxLeaseBody = 64 << 10

// tokenHeader carries a lease's token, in a holder's requests and in the answer to an acquire.
const tokenHeader = "Fence-Token"

var (
	errHeld = errors.New("too many requests wait at stalls")
	errEnds = errors.New("the sandbox ends")
)

// leases is the state of the lease proxy, under the server's lock.
type leases struct {
	sidecar *url.URL // nil: there is none
	seen    map[claims.Guard]bool
	stalled map[claims.Guard]chan struct{} // closed by resume
	waiting []*Waiting                     // oldest first
}

// Waiting is one request, or the answer or stream to one, that waits at a stall.
type Waiting struct {
	Token string    `json:"token"`
	What  string    `json:"what"` // method and path
	Side  string    `json:"side"` // request: the sidecar has not got it; answer: the holder has not
	Since time.Time `json:"since"`
	guard claims.Guard
}

// StartLeases listens on addr and passes requests on to a sidecar's control listener (its base URL), until Close or the
// context's end. What belongs to a token that Stall was told of waits there, in both directions, as if its holder or the way
// to it were frozen.
//
// A request is sent on at most once, on a connection of its own; answers and streams are passed on as they come.
func (s *Server) StartLeases(ctx context.Context, addr, sidecar string) (net.Addr, error) {
	u, err := url.Parse(sidecar)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("sidecar %q: want the control listener's http://host:port", sidecar)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.leases.sidecar != nil {
		l.Close()
		return nil, fmt.Errorf("listen for leases on %s: %w", addr, net.ErrClosed)
	}
	s.leases.sidecar = u
	p := &leaseProxy{s: s, sidecar: u, out: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	srv := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { srv.Serve(l) })
	s.wg.Go(func() {
		<-s.done
		srv.Close()
	})
	context.AfterFunc(ctx, func() { s.Close() })
	return l.Addr(), nil
}

// Stall holds what belongs to the tokens from now on, until Resume or Reset.
func (s *Server) Stall(tokens ...claims.Guard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range tokens {
		if s.leases.stalled[g] == nil {
			s.leases.stalled[g] = make(chan struct{})
		}
	}
	s.wake()
}

// Tokens are a scope's tokens that passed the lease proxy so far, in order.
func (s *Server) Tokens(scope string) []claims.Guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []claims.Guard
	for g := range s.leases.seen {
		if g.Scope == scope {
			out = append(out, g)
		}
	}
	sortGuards(out)
	return out
}

// Stalled are the tokens whose path is held, and what waits for them, oldest first.
func (s *Server) Stalled() ([]claims.Guard, []Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Waiting{}
	for _, w := range s.leases.waiting {
		out = append(out, *w)
	}
	tokens := slices.Collect(maps.Keys(s.leases.stalled))
	sortGuards(tokens)
	return tokens, out
}

// Resume lets go what waits for the tokens (none given: for any) and returns how much that was. Requests reach the sidecar
// now, late.
func (s *Server) Resume(tokens ...claims.Guard) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resume(tokens)
}

func (s *Server) resume(tokens []claims.Guard) (n int) {
	for g, gate := range s.leases.stalled {
		if len(tokens) > 0 && !slices.Contains(tokens, g) {
			continue
		}
		close(gate)
		delete(s.leases.stalled, g)
		s.leases.waiting = slices.DeleteFunc(s.leases.waiting, func(w *Waiting) bool {
			if w.guard == g {
				n++
			}
			return w.guard == g
		})
	}
	s.wake()
	return n
}

// WaitStalled waits until n requests, answers or streams stand at stalls.
func (s *Server) WaitStalled(ctx context.Context, n int) error {
	return s.wait(ctx, func() bool { return len(s.leases.waiting) >= n })
}

// pass waits while a token is stalled. An error means that the request is over: its client has gone, too many wait, or the
// sandbox ends.
func (s *Server) pass(ctx context.Context, g claims.Guard, what, side string) error {
	if g.IsZero() {
		return nil
	}
	s.mu.Lock()
	s.leases.seen[g] = true
	gate := s.leases.stalled[g]
	if gate == nil {
		s.mu.Unlock()
		return nil
	}
	if len(s.leases.waiting) >= maxHeld {
		s.mu.Unlock()
		return errHeld
	}
	w := &Waiting{Token: g.String(), What: what, Side: side, Since: s.now(), guard: g}
	s.leases.waiting = append(s.leases.waiting, w)
	s.wake()
	s.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
	case <-s.done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases.waiting = slices.DeleteFunc(s.leases.waiting, func(o *Waiting) bool { return o == w })
	s.wake()
	return cmp.Or(ctx.Err(), errEnds)
}

// enter counts a request of the lease proxy among what Close waits for; false: the sandbox has ended.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

func sortGuards(gs []claims.Guard) {
	slices.SortFunc(gs, func(a, b claims.Guard) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), cmp.Compare(a.Token, b.Token))
	})
}

// leaseProxy passes requests on to one sidecar.
type leaseProxy struct {
	s       *Server
	sidecar *url.URL
	out     http.RoundTripper
}

// ServeHTTP passes one request on and its answer back.
func (p *leaseProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.s.wg.Done()
	// Read first: net/http notices that the client has gone only once the body was read.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLeaseBody))
	if err != nil {
		leaseError(w, http.StatusRequestEntityTooLarge, err)
		return
	}
	what := r.Method + " " + r.URL.Path
	token, _ := claims.ParseGuard(r.Header.Get(tokenHeader)) // what is no token is the sidecar's to refuse
	if err := p.s.pass(r.Context(), token, what, "request"); err != nil {
		leaseError(w, http.StatusServiceUnavailable, err)
		return
	}
	res, err := p.out.RoundTrip(p.onward(r, body))
	if err != nil {
		leaseError(w, http.StatusBadGateway, err)
		return
	}
	defer res.Body.Close()
	if token.IsZero() {
		token, _ = claims.ParseGuard(res.Header.Get(tokenHeader))
	}
	hold := func() error { return p.s.pass(r.Context(), token, what, "answer") }
	if err := hold(); err != nil {
		leaseError(w, http.StatusServiceUnavailable, err)
		return
	}
	maps.Copy(w.Header(), endToEnd(res.Header))
	w.WriteHeader(res.StatusCode)
	if err := relay(w, res.Body, hold); err != nil {
		panic(http.ErrAbortHandler) // so that a cut answer is not taken for a whole one
	}
}

// onward is the request as it is sent on. The client's Host stays: the sidecar decides which it takes.
func (p *leaseProxy) onward(r *http.Request, body []byte) *http.Request {
	u := *r.URL
	u.Scheme, u.Host = p.sidecar.Scheme, p.sidecar.Host
	out := &http.Request{Method: r.Method, URL: &u, Host: r.Host, Header: endToEnd(r.Header), ContentLength: int64(len(body))}
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	if out.Header.Get("User-Agent") == "" {
		out.Header["User-Agent"] = nil // none rather than net/http's
	}
	return out.WithContext(r.Context())
}

// endToEnd leaves out the headers that are of one connection.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		out.Del(name)
	}
	return out
}

// relay passes a body on, each piece at once, the end too only when hold lets it.
func relay(w http.ResponseWriter, body io.Reader, hold func() error) error {
	buf := make([]byte, 8<<10)
	out := http.NewResponseController(w)
	out.Flush() // the head of a stream that says nothing yet; a writer that cannot flush passes all on at the end
	for {
		n, err := body.Read(buf)
		if held := hold(); held != nil {
			return held
		}
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			out.Flush()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func leaseError(w http.ResponseWriter, status int, err error) {
	a := answerJSON(status, map[string]any{"error": "sandbox: " + err.Error()})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	w.Write(a.body)
}
