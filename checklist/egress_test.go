package checklist_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// hop passes requests on, as a mesh's proxy does. again says which outcomes of a POST it repeats by itself, up to twice; a status of
// 0 is a connection that ended without an answer.
func hop(t *testing.T, to func() string, again func(status int) bool) *httptest.Server {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for try := 0; ; try++ {
			req, _ := http.NewRequestWithContext(r.Context(), r.Method, "http://"+to()+strings.TrimPrefix(r.URL.Path, "/mesh"), bytes.NewReader(body))
			req.Header = r.Header.Clone()
			res, err := tr.RoundTrip(req)
			status := 0
			if err == nil {
				status = res.StatusCode
			}
			if r.Method == http.MethodPost && try < 2 && r.Context().Err() == nil && again(status) {
				if err == nil {
					res.Body.Close()
				}
				continue
			}
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(status)
			io.Copy(w, res.Body)
			res.Body.Close()
			return
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// listenAt has the run listen for itself, and tells where.
func (w *world) listenAt(via func(to func() string) string) {
	var addr atomic.Value
	w.cfg.Egress = &checklist.EgressConfig{
		Listen: "127.0.0.1:0", Patience: 3 * time.Second, Linger: time.Second, Ready: func(a net.Addr) { addr.Store(a.String()) },
	}
	if via != nil {
		w.cfg.Egress.Via = via(func() string { return addr.Load().(string) })
	}
}

// A hop that repeats a POST by itself is shown, by the outcome that it repeats; one that repeats nothing passes.
func TestEgressShowsRepeats(t *testing.T) {
	for _, c := range []struct {
		name  string
		again func(status int) bool // nil: no hop
		want  string
		says  []string
	}{
		{"no hop", nil, checklist.Pass, nil},
		{"a hop that repeats nothing", func(int) bool { return false }, checklist.Pass, nil},
		{"a hop that repeats a 503", func(s int) bool { return s == 503 }, checklist.Fail, []string{"status-503 arrived 3 times"}},
		{"a hop that repeats what got no answer", func(s int) bool { return s == 0 }, checklist.Fail, []string{"close arrived 3 times", "reset arrived 3 times"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "stripe", sandbox.Config{}, nil)
			var via func(func() string) string
			if c.again != nil {
				via = func(to func() string) string { return hop(t, to, c.again).URL + "/mesh" }
			}
			w.listenAt(via)
			r := w.run().Row("egress")
			if r == nil || r.Verdict != c.want {
				t.Fatalf("egress: %+v, want %s", r, c.want)
			}
			for _, says := range c.says {
				if !strings.Contains(r.Reason, says) {
					t.Errorf("reason %q, want %q in it", r.Reason, says)
				}
			}
			if n := strings.Count(r.Reason, "arrived"); c.want == checklist.Fail && n != len(c.says) {
				t.Errorf("reason %q names %d ways, want %d", r.Reason, n, len(c.says))
			}
		})
	}
}

// A way whose address has escapes is gone as it is spelled.
func TestEgressEscapedVia(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.listenAt(func(to func() string) string {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/a%2Fb%20c")
			if !ok {
				http.NotFound(rw, r)
				return
			}
			u := &url.URL{Scheme: "http", Host: to()}
			r.URL.Path, r.URL.RawPath = rest, ""
			p := httputil.NewSingleHostReverseProxy(u)
			p.ErrorLog = log.New(io.Discard, "", 0) // the listener answers badly on purpose
			p.ServeHTTP(rw, r)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/a%2Fb%20c/"
	})
	if r := w.run().Row("egress"); r == nil || r.Verdict == checklist.NotChecked {
		t.Errorf("egress: %+v", r)
	}
}

// A hop that leads elsewhere shows nothing.
func TestEgressNotReached(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.Egress = &checklist.EgressConfig{Listen: "127.0.0.1:0", Via: w.url, Patience: 500 * time.Millisecond}
	if r := w.run().Row("egress"); r == nil || r.Verdict != checklist.NotChecked || !strings.Contains(r.Reason, "not reached") {
		t.Errorf("egress: %+v", r)
	}
}

// A hop in front of the sandbox that repeats by itself does not go unseen in the money either: a gateway that ignores keys shows
// several objects, one that honours them one.
func TestRepeatingHopBeforeTheGateway(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	to := strings.TrimPrefix(w.url, "http://")
	w.cfg.BaseURL = hop(t, func() string { return to }, func(s int) bool { return s >= 500 }).URL
	if got := fails(w.run()); got != nil {
		t.Errorf("FAIL: %v", got)
	}
	for _, o := range w.s.Ledger() {
		if o.Money && w.s.Executed(o.Key) > 1 {
			t.Errorf("%d executions under one key", w.s.Executed(o.Key))
		}
	}
}

// The run ends with its context, also while the listener hangs.
func TestEgressEnds(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.Egress = &checklist.EgressConfig{Listen: "127.0.0.1:0", Patience: time.Minute, Linger: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	w.cfg.Progress = func(step, _ string) {
		if step == checklist.StepRetention {
			time.AfterFunc(200*time.Millisecond, cancel)
		}
	}
	began := time.Now()
	rep, err := checklist.Run(ctx, w.cfg)
	if err == nil || rep.Complete || time.Since(began) > 30*time.Second {
		t.Errorf("error %v after %s", err, time.Since(began))
	}
}
