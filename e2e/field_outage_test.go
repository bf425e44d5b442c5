package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// sessions counts the sidecars' sessions at a server, and those that have stood still within a transaction for a second.
func sessions(t *testing.T, s *pgtest.Server, application string) (all, idle int) {
	t.Helper()
	n, err := pgtest.Value[[]int32](t.Context(), s, `SELECT array[count(*), count(*) FILTER (
			WHERE state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 s')]::int[]
		FROM pg_stat_activity WHERE application_name = $1`, application)
	if err != nil {
		t.Fatal(err)
	}
	return int(n[0]), int(n[1])
}

// many makes fresh charges at once and returns their replies by call key.
func many(prefix string, n int, addr string) map[string]reply {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string]reply{}
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprintf("%s:%d", prefix, i)
			p := send(addr, named(key))
			mu.Lock()
			defer mu.Unlock()
			out[key] = p
		})
	}
	wg.Wait()
	return out
}

// TestR49NoConnectionDuringTheCall: three connections, 100 calls that the gateway takes 1.5 s for. None of them holds a
// connection meanwhile. Where there is really none to be had, calls are refused within the store's time.
func TestR49NoConnectionDuringTheCall(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, pgtest.Options{})
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "1m" // an app's patience is longer than that: it is not what ends the waits below
	db := at(server.URL() + "&application_name=e2e_r49")
	db.connections = 3
	w := farWorld(t, settings{store: db, gateway: []use{u}})
	w.see(server)
	a := w.start("A")
	eventually(t, "the connection that looked at the server is gone", func() bool {
		n, _ := sessions(t, server, "e2e_r49")
		return n <= 3
	})

	inject(t, gateway, sandbox.Fault{Name: "delay", Arg: "1.5s", Times: -1})
	replies := make(chan map[string]reply, 1)
	go func() { replies <- many("slow", 100, a.at("stripe")) }()
	got, samples := map[string]reply(nil), 0
	for got == nil {
		select {
		case got = <-replies:
		default:
		}
		if n, idle := sessions(t, server, "e2e_r49"); n > 3 || idle > 0 {
			t.Errorf("the sidecar has %d sessions, %d of them stand still in a transaction", n, idle)
		}
		for _, probe := range []string{"/livez", "/readyz"} {
			began := time.Now()
			if code, text := a.get(probe); code != 200 || time.Since(began) > time.Second {
				t.Errorf("%s: %d %s after %s", probe, code, text, time.Since(began))
			}
		}
		samples++
	}
	if samples < 10 {
		t.Errorf("only %d looks at the sessions", samples)
	}
	for key, p := range got {
		p.want(t, 200, "")
		w.wantOnce(gateway, key, 1)
	}
	if n := gateway.Moved(); n != 100 {
		t.Errorf("the gateway executed %d charges, want 100", n)
	}
	gateway.ClearFaults()

	for name, exhaust := range map[string]func() (release func()){
		"frozen": func() func() {
			if err := server.Freeze(); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := server.Thaw(); err != nil {
					t.Fatal(err)
				}
			}
		},
		"leases locked": w.holdInstances,
		"calls locked":  w.holdCalls, // reads go through, so that a claim is tried
	} {
		release := exhaust()
		for key, p := range many(name, 10, a.at("stripe")) {
			if n := sendsOf(gateway)[key]; n != 0 || !p.closed() || p.took > 40*time.Second {
				t.Errorf("without a connection: %s after %s, %d sends: %s", key, p.took.Round(time.Millisecond), n, p)
			}
		}
		release()
		servedWithin(t, 5*time.Second, "after "+name, a)
	}
	for key, n := range sendsOf(gateway) { // nothing left later either
		if !strings.HasPrefix(key, "slow:") && !strings.HasPrefix(key, "after ") {
			t.Errorf("%d sends of %s, which was refused", n, key)
		}
	}
}

// holdInstances keeps every lease row from being used at all, by claims too.
func (w *world) holdInstances() (release func()) {
	w.t.Helper()
	return w.hold(`SELECT 1 FROM leases FOR UPDATE`)
}

// probes samples the probes of a sidecar until its store is back.
type probes struct {
	stop chan struct{}
	done chan struct{}
	live []int
	// ready and started are the different answers in the order in which they came.
	ready, started []int
}

func watchProbes(t *testing.T, s *sidecar) *probes {
	p := &probes{stop: make(chan struct{}), done: make(chan struct{})}
	base := "http://" + s.at("telemetry")
	ask := func(path string, seen *[]int) {
		code := 0
		if resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(base + path); err == nil {
			resp.Body.Close()
			code = resp.StatusCode
		}
		if n := len(*seen); n == 0 || (*seen)[n-1] != code {
			*seen = append(*seen, code)
		}
	}
	go func() {
		defer close(p.done)
		for {
			ask("/livez", &p.live)
			ask("/readyz", &p.ready)
			ask("/startupz", &p.started)
			select {
			case <-p.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(p.end)
	return p
}

func (p *probes) end() {
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	<-p.done
}

// TestR60StoreOutage: the server is away for longer than a lease. The process stays, says so by readiness alone and once,
// sends nothing that is fenced, and serves again by itself.
func TestR60StoreOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(t *testing.T, s *pgtest.Server, p *pgtest.Proxy) (end func() error){
		"stopped": func(t *testing.T, s *pgtest.Server, _ *pgtest.Proxy) func() error {
			if err := s.Stop(t.Context(), pgtest.Fast); err != nil {
				t.Fatal(err)
			}
			return func() error { return s.Start(t.Context()) }
		},
		"unreachable": func(_ *testing.T, _ *pgtest.Server, p *pgtest.Proxy) func() error {
			p.Blackhole()
			return p.Heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.New(t, pgtest.Options{})
			proxy := pgtest.NewProxy(t, server.Addr())
			gateway, u := newSandbox(t, sandbox.Config{})
			w := farWorld(t, settings{store: at(proxy.URL()), lease: "2s", gateway: []use{u}})
			a := w.start("A")
			insist(t, named("before"), "stripe", a)
			probes := watchProbes(t, a)

			end := outage(t, server, proxy)
			from := time.Now()
			load := newStream(t, "load", a.at("stripe"))
			late := w.spawn("late") // meets a database that does not answer
			for time.Since(from) < 8*time.Second {
				p := send(a.at("stripe"), request{method: "GET", target: "/v1/charges?limit=1"})
				p.want(t, 200, "")
				time.Sleep(200 * time.Millisecond)
			}
			select {
			case <-late.exited:
				t.Fatalf("a sidecar that was started without its database ended:\n%s", late.logs())
			default:
			}
			if late.ready() != "" {
				t.Error("a sidecar without its database says that it is ready")
			}
			for path, want := range map[string]int{"/livez": 200, "/startupz": 503, "/readyz": 503} {
				if status, text := late.get(path); status != want {
					t.Errorf("a sidecar without its database answers %s with %d: %s", path, status, text)
				}
			}
			to := time.Now()
			if err := end(); err != nil {
				t.Fatal(err)
			}
			writes(t, proxy.URL())
			servedWithin(t, 5*time.Second, "after", a)
			load.check(t, gateway, from, to, 20)
			eventually(t, "readyz says so", func() bool { code, _ := a.get("/readyz"); return code == 200 })
			time.Sleep(time.Second) // for a probe that flaps
			probes.end()
			eventually(t, "the late sidecar is ready", func() bool { return late.ready() != "" })
			servedWithin(t, 5*time.Second, "late", late)

			for what, seen := range map[string][]int{"livez": probes.live, "startupz": probes.started} {
				if len(seen) != 1 || seen[0] != 200 {
					t.Errorf("%s answered %v, want 200 throughout", what, seen)
				}
			}
			if r := probes.ready; len(r) != 3 || r[0] != 200 || r[1] != 503 || r[2] != 200 {
				t.Errorf("readyz answered %v, want 200, 503, 200", r)
			}
			w.see(server)
			w.wantState("before", claims.StateSucceeded)
			w.settled()
		})
	}
}
