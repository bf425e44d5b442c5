package checklist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// EgressConfig says how a listener of ours is reached through the way out that calls take. It shows who on the way repeats a POST that
// got no good answer, as meshes do by default (https://github.com/istio/istio/issues/13851).
type EgressConfig struct {
	// Listen is the address of the listener; it speaks plain HTTP.
	Listen string
	// Via is the URL that leads to it through the mesh or a balancer; "": http:// and the listener's address. The gateway's
	// egressProxy is used as for calls.
	Via string
	// Patience is how long the sender waits for an answer that never comes, default 5s; Linger how long the listener stays for what
	// is repeated later, default 2s.
	Patience, Linger time.Duration
	// Ready is told the address once it is listened on, before anything is sent; nil: nobody is.
	Ready func(addr net.Addr)
}

// behaviours are what the listener does with a POST that it has read whole.
var behaviours = []string{"close", "reset", "status-502", "status-503", "status-504", "status-429", "hang"}

const egressPath = "/fence-checklist/"

// origin is the listener. It counts what arrives, and answers no POST with success.
type origin struct {
	srv  *http.Server
	addr net.Addr
	done chan struct{} // closed when it no longer serves
	end  chan struct{} // closed to let go what hangs

	mu      sync.Mutex
	arrived map[string]int // by key; others than ours are not counted
}

func listenOrigin(ctx context.Context, addr string) (*origin, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	o := &origin{addr: l.Addr(), done: make(chan struct{}), end: make(chan struct{}), arrived: map[string]int{}}
	o.srv = &http.Server{Handler: o, ReadTimeout: 30 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() {
		defer close(o.done)
		o.srv.Serve(l)
	}()
	return o, nil
}

func (o *origin) close() {
	close(o.end)
	o.srv.Close()
	<-o.done
}

// ServeHTTP counts, and behaves as the path says.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what, ok := strings.CutPrefix(r.URL.Path, egressPath)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 64<<10))
	if r.Method == http.MethodGet {
		io.WriteString(w, "fence-checklist\n")
		return
	}
	name, key, _ := strings.Cut(what, "/")
	o.mu.Lock()
	if n, ours := o.arrived[key]; ours {
		o.arrived[key] = n + 1
	}
	o.mu.Unlock()
	var status int
	switch {
	case name == "hang":
		select {
		case <-o.end:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case name == "reset":
		o.cut(w)
	case scan(name, &status):
		w.WriteHeader(status)
	default:
		panic(http.ErrAbortHandler)
	}
}

func scan(name string, status *int) bool {
	_, err := fmt.Sscanf(name, "status-%d", status)
	return err == nil && slices.Contains(behaviours, name)
}

// cut resets the connection.
func (o *origin) cut(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// expect has the listener count a key.
func (o *origin) expect(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived[key] = 0
}

func (o *origin) count(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.arrived[key]
}

// egress sends one POST for each behaviour and counts how often it arrives.
func egress(ctx context.Context, r *run, s *Step) error {
	cfg := *r.cfg.Egress
	if cfg.Patience <= 0 {
		cfg.Patience = 5 * time.Second
	}
	if cfg.Linger <= 0 {
		cfg.Linger = 2 * time.Second
	}
	o, err := listenOrigin(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	defer o.close()
	if cfg.Ready != nil {
		cfg.Ready(o.addr)
	}
	via := cfg.Via
	if via == "" {
		via = "http://" + o.addr.String()
	}
	u, err := url.Parse(via)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("--via must be a URL that leads to the listener, such as http://origin.shop:8500")
	}
	out, err := newWire(r.g, &url.URL{Scheme: u.Scheme, Host: u.Host})
	if err != nil {
		return err
	}
	prefix := strings.TrimSuffix(u.EscapedPath(), "/")
	bounded, cancel := context.WithTimeout(ctx, cfg.Patience)
	a, err := out.send(bounded, message{method: "GET", target: prefix + egressPath})
	cancel()
	if err != nil || a.Status != http.StatusOK || string(a.Body) != "fence-checklist\n" {
		s.Why = "the listener was not reached through " + u.Host
		return nil
	}
	r.tryEgress(ctx, s, o, out, prefix, cfg)
	return nil
}

func (r *run) tryEgress(ctx context.Context, s *Step, o *origin, out *wire, prefix string, cfg EgressConfig) {
	name := "Idempotency-Key"
	if k := r.g.Key; k != nil && k.Header != "" {
		name = k.Header
	}
	failures := make([]string, len(behaviours))
	keys := make([]string, len(behaviours))
	var all sync.WaitGroup
	for i, what := range behaviours {
		keys[i] = newSeed()
		o.expect(keys[i])
		all.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, cfg.Patience)
			defer cancel()
			a, err := out.send(bounded, message{
				method: "POST", target: prefix + egressPath + what + "/" + keys[i], body: []byte("{}"),
				header: []claims.Field{{Name: "Content-Type", Value: "application/json"}, {Name: name, Value: keys[i]}},
			})
			if err != nil {
				failures[i] = r.secrets.clean(err.Error())
			} else {
				failures[i] = fmt.Sprintf("answered %d", a.Status)
			}
		})
	}
	all.Wait()
	wait(ctx, cfg.Linger)
	for i, what := range behaviours {
		s.Arrivals = append(s.Arrivals, Arrival{Behaviour: what, Sent: 1, Arrived: o.count(keys[i]), Failure: failures[i]})
	}
	for _, a := range s.Arrivals {
		r.say(s.Name, "%s: sent once, arrived %s", a.Behaviour, times(a.Arrived))
	}
}
