package reconcile_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// card is what no record and no log may hold.
const card = "4242424242424242"

// babble is a server that answers every request with the same bytes and closes.
func babble(t *testing.T, answer string) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				req.Body.Close()
			}
			c.Write([]byte(answer))
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// Whatever a gateway answers, none of its bytes come into the record's reasons, which the API shows, or into the log.
func TestReconcile_answersAreNotTold(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nDate: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n"
	for name, tt := range map[string]struct{ answer, want string }{
		"no HTTP":          {card + " junk\r\n\r\n", "the answer is malformed"},
		"a strange status": {"HTTP/1.1 " + card + " OK\r\n\r\n", "the answer is malformed"},
		"a strange field":  {head + card + "\r\n\r\n", "the answer is malformed"},
		"a strange length": {head + "Content-Length: " + card + "x\r\n\r\n", "the answer is malformed"},
		"a strange coding": {head + "Transfer-Encoding: " + card + "\r\n\r\n", "the answer is malformed"},
		"a strange chunk":  {head + "Transfer-Encoding: chunked\r\n\r\n" + card + card + "\r\n", "in the body: the answer is malformed"},
		"a strange place":  {"HTTP/1.1 302 Found\r\nLocation: http://" + card + "%zz/\r\nContent-Length: 0\r\n\r\n", ""},
		"cut":              {head + "Content-Length: 100\r\n\r\n" + card, "in the body: the connection was cut"},
		"nothing":          {"", "the connection was cut"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(g *gateways.Gateway) { g.BaseURL = babble(t, tt.answer) })
			var log bytes.Buffer
			w.rec.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			w.doubt(key, "payment_intents_create")
			w.advance(100 * time.Hour)
			r := w.look(key)
			w.want(r, claims.StateReview)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for what, text := range map[string]string{"record": string(b), "log": log.String()} {
				if strings.Contains(text, card) {
					t.Errorf("the %s tells what the gateway answered: %s", what, text)
				}
				if !strings.Contains(text, tt.want) {
					t.Errorf("the %s does not say %q: %s", what, tt.want, text)
				}
			}
		})
	}
}

// Nor do the bytes of an event's receiver come into the log.
func TestDeliver_answersAreNotTold(t *testing.T) {
	p := newPost(t, nil)
	p.settle("a")
	var log bytes.Buffer
	d := p.deliverer(p.store, func(c *reconcile.DelivererConfig) {
		c.URL, c.Log = babble(t, card+" junk\r\n\r\n"), slog.New(slog.NewTextHandler(&log, nil))
	})
	if n, told := p.round(d); n != 1 || told != 0 {
		t.Fatalf("%d events, %d told", n, told)
	}
	if strings.Contains(log.String(), card) || !strings.Contains(log.String(), "malformed") {
		t.Error(log.String())
	}
}

// Why no gateway could be reached is told, without its address.
func TestReconcile_unreachable(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	plainly := httptest.NewServer(nil)
	defer plainly.Close()
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	for url, want := range map[string]string{
		closed.URL:                "the connection was refused",
		secure.URL:                "the certificate could not be verified",
		"https" + plainly.URL[4:]: "TLS failed",
	} {
		w := newWorld(t, func(g *gateways.Gateway) { g.BaseURL = url })
		w.doubt(key, "payment_intents_create")
		w.advance(100 * time.Hour)
		r := w.look(key)
		if r.Review == nil || !strings.Contains(r.Review.Reason, want) {
			t.Errorf("%s: %+v, want %q", url, r.Review, want)
		}
	}
}

// An open breaker asks nobody: that is no lookup, and takes no proof back.
func TestReconcile_breakerAsksNobody(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.doubt("other", "payment_intents_create")
	w.advance(11 * time.Minute)
	if r := w.look(key); r.Misses != 1 {
		t.Fatalf("%d misses", r.Misses)
	}
	w.fail("other")
	seen := len(w.gw.Sends(http.MethodGet))
	w.advance(31 * time.Second)
	if r := w.look(key); r.Misses != 1 || len(w.gw.Sends(http.MethodGet)) != seen {
		t.Errorf("%d misses after %d lookups through an open breaker, want the 1 that was proved", r.Misses, len(w.gw.Sends(http.MethodGet))-seen)
	}
}

// fail looks a call up until the gateway's breaker opens, and then heals the gateway.
func (w *world) fail(call string) {
	w.t.Helper()
	w.gw.Inject(sandbox.Fault{Name: "error-before", Route: "GET /v1/payment_intents", Times: -1})
	seen := len(w.gw.Sends(http.MethodGet))
	for range 12 {
		w.look(call)
	}
	if n := len(w.gw.Sends(http.MethodGet)) - seen; n != 10 {
		w.t.Fatalf("%d lookups of 12 left, want the 10 that open the breaker", n)
	}
	w.gw.ClearFaults()
}

// Polls of payments that fail refuse no doubt its lookup, nor the other way round.
func TestReconcile_pollsHaveTheirOwnBreaker(t *testing.T) {
	w := newWorld(t, nil)
	w.succeeded("paid", intent.route)
	w.doubt(key, intent.route)
	w.charge(key, "4990")
	w.fail("paid")
	w.want(w.look(key), claims.StateSucceeded)

	w = newWorld(t, nil)
	_, id := w.underWay(intent, key)
	w.doubt("lost", intent.route)
	w.fail("lost")
	w.move(id, "done")
	if r := w.look(key); r.Payment != claims.PaymentDone {
		t.Errorf("payment %q: its poll was refused", r.Payment)
	}
}
