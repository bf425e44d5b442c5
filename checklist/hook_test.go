package checklist_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// stripeSigned signs a notice as Stripe does (https://docs.stripe.com/webhooks/signature).
func stripeSigned(secret, body string) string {
	at := time.Now().Unix()
	m := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(m, "%d.%s", at, body)
	return fmt.Sprintf("t=%d,v1=%x", at, m.Sum(nil))
}

// notify posts a notice and returns the status of the answer.
func notify(t *testing.T, to, signature, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Stripe-Signature", signature)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// A notice is answered as a sidecar answers it: only a wrong signature as the gateway wants that one answered.
func TestHookAnswers(t *testing.T) {
	const body = `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1"}}}`
	for _, c := range []struct {
		name, secret, signed, body string
		refuse, want               int
	}{
		{"taken", hookSecret, hookSecret, body, 0, 200},
		{"forged", hookSecret, "another", body, 0, 401},
		{"forged, as declared", hookSecret, "another", body, 400, 400},
		{"forged, as declared otherwise", hookSecret, "another", body, 498, 498},
		{"malformed", hookSecret, hookSecret, "{", 498, 400},
		{"empty", hookSecret, hookSecret, "", 498, 400},
		{"the secret is away", "", hookSecret, body, 498, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, "stripe", sandbox.Config{}, func(g *gateways.Gateway) { g.Webhook.Refuse = c.refuse })
			w.listen()
			t.Setenv("CHECKLIST_HOOK", c.secret)
			status := 0
			ctx, cancel := context.WithCancel(t.Context())
			w.cfg.Hook.Ready = func(a net.Addr) {
				status = notify(t, "http://"+a.String()+"/", stripeSigned(c.signed, c.body), c.body)
				cancel()
			}
			if _, err := checklist.Run(ctx, w.cfg); !errors.Is(err, context.Canceled) || status != c.want {
				t.Errorf("answered %d (%v), want %d", status, err, c.want)
			}
		})
	}
}

// A notice that comes before the answer to its charge is read like any other.
func TestHookBeforeTheAnswer(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, func(g *gateways.Gateway) {
		g.Checks.Empty.Target, g.Checks.Pending, g.Checks.Advance = "/v1/payment_intents/{object}/cancel", nil, nil
	})
	w.listen()
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		moved, told := w.s.Moved(), w.s.Told()
		p := httputil.NewSingleHostReverseProxy(to)
		p.ModifyResponse = func(*http.Response) error { // the answer is late
			for end := time.Now().Add(5 * time.Second); w.s.Moved() > moved && w.s.Told() == told && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			return nil
		}
		p.ServeHTTP(rw, r)
	}))
	defer front.Close()
	w.cfg.BaseURL = front.URL
	rep := w.run()
	for _, name := range []string{checklist.StepSuccess, checklist.StepPending} {
		object, read := stepOf(rep, name).Exchanges[0].Object, false
		for _, n := range stepOf(rep, checklist.StepPending).Notices {
			if n.Object == object && object != "" {
				read = n.Verified && n.After == 0 && n.Outcome == "succeeded" && n.Payment == "done"
				t.Logf("%s: %+v", name, n)
			}
		}
		if !read {
			t.Errorf("the notice of %q was not read", object)
		}
	}
	if r := rep.Row("G6"); r.Verdict == checklist.Fail {
		t.Errorf("G6 %s: %s", r.Verdict, r.Reason)
	}
}
