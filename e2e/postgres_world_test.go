package e2e

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// at is a database of the test's own servers, under the URL that the sidecars use.
func at(url string) database { return database{url: url, schema: "fence"} }

// behind is a schema of its own on the test binary's server, and the proxy through which the sidecars reach it.
func behind(t *testing.T) (database, *pgtest.Proxy) {
	t.Helper()
	s := pgtest.Shared(t)
	_, schema := s.Schema(t)
	p := pgtest.NewProxy(t, s.Addr())
	return database{url: p.URL(), schema: schema}, p
}

// farWorld is a world without a view of the store: whoever opens one takes part in what happens to the server. What leads
// to the store belongs to the sidecars alone.
func farWorld(t *testing.T, s settings) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), db: s.store}
	w.config = w.write("fence.yaml", s.yaml(w.dir))
	if out, err := w.command("store", "migrate", "--config", w.config).CombinedOutput(); err != nil {
		t.Fatalf("store migrate: %v\n%s\n%s", err, out, s.yaml(w.dir))
	}
	return w
}

// see opens a view of the store straight at a server, in place of the one before.
func (w *world) see(s *pgtest.Server) {
	w.t.Helper()
	b, err := postgres.Open(w.t.Context(), postgres.Config{
		URL: s.URL(), Schema: w.db.schema, MayLose: w.db.failover != "synchronous", Margin: 200 * time.Millisecond,
		MaxLease: time.Second, // what the sidecars say is longer, and counts
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { b.Close() })
	if w.store != nil {
		w.store.Close()
	}
	if w.store, err = opened(b); err != nil {
		w.t.Fatal(err)
	}
}

// era is how often the store took something for lost, past every view of it.
func (w *world) era(s *pgtest.Server) int {
	w.t.Helper()
	era, err := pgtest.Value[int](w.t.Context(), s, "SELECT era FROM "+pgx.Identifier{w.db.schema}.Sanitize()+".store")
	if err != nil {
		w.t.Fatal(err)
	}
	return era
}

// named is a charge that the gateway can be asked about by its call key.
func named(key string, lines ...string) request {
	r := charge(key, lines...)
	r.body += "&description=" + url.QueryEscape(key)
	return r
}

// sendsOf counts the POST requests at the gateway's socket by the call keys of named requests.
func sendsOf(g *sandbox.Server) map[string]int {
	n := map[string]int{}
	for _, s := range g.Sends("POST") {
		form, err := url.ParseQuery(string(s.Body))
		if err != nil {
			n["?"]++
		}
		n[form.Get("description")]++
	}
	return n
}

// wantOnce fails the test unless a call's record names a gateway key under which the gateway executed exactly once, and,
// where sends is not 0, got that many sends.
func (w *world) wantOnce(g *sandbox.Server, key string, sends int) {
	w.t.Helper()
	r := w.record(key)
	if n := g.Executed(r.Facts.GatewayKey); n != 1 {
		w.t.Errorf("the gateway executed call %s %d times: %+v", key, n, r)
	}
	if n := sendsOf(g)[key]; sends > 0 && n != sends {
		w.t.Errorf("the gateway got %d sends of call %s, want %d: %+v", n, key, sends, r.Attempts)
	}
}

// closed reports whether a reply says that nothing was sent and when to come back.
func (p reply) closed() bool {
	switch p.slug() {
	case "store-unavailable", "instance-lease-lost", "quarantine":
		return p.err == nil && p.status == 503 && p.retryAfter() >= 1 && p.header("Fence-Result") == "refused"
	}
	return false
}

// asked is one request of a stream with its reply.
type asked struct {
	key          string
	began, ended time.Time
	reply        reply
}

// stream makes a fresh charge at every tick and repeats none.
type stream struct {
	prefix, addr string
	stop         chan struct{}
	wg           sync.WaitGroup
	mu           sync.Mutex
	all          []asked
}

func newStream(t *testing.T, prefix, addr string) *stream {
	s := &stream{prefix: prefix, addr: addr, stop: make(chan struct{})}
	s.wg.Go(s.run)
	t.Cleanup(func() { s.end() })
	return s
}

func (s *stream) run() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.wg.Go(func() {
			a := asked{key: fmt.Sprintf("%s:%d", s.prefix, i), began: time.Now()}
			a.reply = send(s.addr, named(a.key))
			a.ended = time.Now()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.all = append(s.all, a)
		})
	}
}

// end stops the stream, waits for its last reply and returns all.
func (s *stream) end() []asked {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.wg.Wait()
	return s.all
}

// check fails the test unless every reply is a payment that was sent once, or a refusal of a call that never was sent;
// those that fell into the outage are refusals. It wants at least some of the latter.
func (s *stream) check(t *testing.T, g *sandbox.Server, from, to time.Time, atLeast int) {
	t.Helper()
	all, sends, within := s.end(), sendsOf(g), 0
	for _, a := range all {
		inside := a.began.After(from) && a.ended.Before(to)
		if inside {
			within++
		}
		switch n := sends[a.key]; {
		case a.reply.closed() && n == 0:
		case !inside && a.reply.definite() && n == 1:
		case a.began.Before(from) && a.reply.slug() == "in-doubt" && n <= 1:
		default:
			t.Errorf("call %s, %s after the outage began, took %s, %d sends: %s",
				a.key, a.began.Sub(from).Round(time.Millisecond), a.reply.took.Round(time.Millisecond), n, a.reply)
		}
	}
	if within < atLeast {
		t.Errorf("only %d of %d requests fell into the outage, want %d", within, len(all), atLeast)
	}
}

// servedWithin polls with fresh charges until one succeeds, and fails the test if that takes too long.
func servedWithin(t *testing.T, limit time.Duration, prefix string, s *sidecar) {
	t.Helper()
	began := time.Now()
	var p reply
	for i := 0; ; i++ {
		p = send(s.at("stripe"), named(fmt.Sprintf("%s:%d", prefix, i)))
		took := time.Since(began)
		if p.definite() {
			t.Logf("sidecar %s serves again after %s", s.name, took.Round(time.Millisecond))
			if took > limit {
				t.Errorf("sidecar %s served again after %s, want %s at most", s.name, took, limit)
			}
			return
		}
		if took > patience || !p.mayRepeat() {
			t.Fatalf("sidecar %s does not serve again: %s", s.name, p)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// writes polls until a plain client can write under a URL.
func writes(t *testing.T, url string) {
	t.Helper()
	eventually(t, "a plain client can write", func() bool {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return false
		}
		defer c.Close(t.Context())
		_, err = c.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS public.written (at timestamptz);
			INSERT INTO public.written VALUES (now())`)
		return err == nil
	})
}

// into matches the statement by which a store writes to one of its tables.
func into(verb, table string) func(string) bool {
	return func(sql string) bool { return strings.HasPrefix(sql, verb) && strings.Contains(sql, "."+table+" ") }
}
