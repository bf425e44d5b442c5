package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestOAuth: the sidecar supplies the credential of calls and of lookups by tokens that it fetches. What the app sends in its place goes
// nowhere; without a token nothing is sent.
func TestOAuth(t *testing.T) {
	t.Parallel()
	var fetched atomic.Int64
	var down atomic.Bool
	mint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if down.Load() || id != "the-client" || secret != "the-secret" {
			http.Error(rw, `{"error":"invalid_client"}`, http.StatusUnauthorized)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"access_token":"token-%d","token_type":"Bearer","expires_in":2}`, fetched.Add(1))
	}))
	t.Cleanup(mint.Close)
	h := newHookWorld(t, database{}, bookAndCut, nil)
	account := fmt.Sprintf("accounts: [{name: shop, oauth2: {tokenURL: %q, clientID: {file: %q}, clientSecret: {file: %q}}}]",
		mint.URL+"/token", h.write("id", "the-client\n"), h.write("secret", "the-secret\n"))
	text := mustRead(t, h.config)
	at := strings.Index(text, "accounts: ")
	end := at + strings.Index(text[at:], "\n")
	a := h.spawnAs("A", "run", h.write("oauth.yaml", text[:at]+account+"\n    credentials: sidecar"+text[end:]))
	eventually(t, "A is ready", func() bool { return a.ready() != "" })
	for i := range 2 {
		p := send(a.at("raw"), mine(fmt.Sprint("r-", i), "Authorization: Bearer the-apps-own", "Prefer: wait=20"))
		p.want(t, 200, "")
		p.wantResult(t, "succeeded", "reconciled")
	}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		calls := h.g.sends(method)
		if len(calls) == 0 {
			t.Errorf("no %s", method)
		}
		for _, c := range calls {
			if got := c.header("Authorization"); !strings.HasPrefix(got, "Bearer token-") {
				t.Errorf("%s with %q", c.line, got)
			}
		}
	}
	h.g.wantSends(2)
	down.Store(true)
	n := 0
	eventually(t, "the token has ended", func() bool {
		n++
		return send(a.at("raw"), mine(fmt.Sprint("r-down-", n), "Authorization: Bearer the-apps-own", "Prefer: wait=0")).slug() == "not-sent"
	})
	was := len(h.g.sends(http.MethodPost))
	p := send(a.at("raw"), mine("r-last", "Authorization: Bearer the-apps-own"))
	p.want(t, 502, "not-sent")
	p.wantResult(t, "not-executed", "refused")
	h.g.wantSends(was)
	for _, secret := range []string{"the-secret", "token-1", "the-apps-own"} {
		if strings.Contains(a.logs(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
