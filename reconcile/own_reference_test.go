package reconcile_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// adyenShop is Adyen with one account, a store whose clock moves, and an intake.
func ownRefShop(t *testing.T) (*gateways.Gateway, *memory.Store, *reconcile.Intake, *time.Duration) {
	t.Setenv("HOOK", strings.Repeat("ab", 32))
	g := gateways.Adyen()
	g.Accounts = []gateways.Account{{Name: "shop", CredentialHash: gateways.AccountHash(realm, "key"), WebhookSecrets: []gateways.Secret{{Env: "HOOK"}}}}
	reg, err := gateways.NewRegistry(g)
	if err != nil {
		t.Fatal(err)
	}
	moved := new(time.Duration)
	store := memory.New(memory.Config{Now: func() claims.Now { n := time.Now().Add(*moved).UTC(); return claims.Now{Store: n, Wall: n} }})
	rec := reconcile.New(reconcile.Config{Store: store, Realm: realm, Gateways: reg, Tenants: []string{"t"}, Log: slog.New(slog.DiscardHandler)})
	in := reconcile.NewIntake(reconcile.IntakeConfig{Store: store, Finder: store, Inbox: store, Reconciler: rec, Log: slog.New(slog.DiscardHandler)})
	return g, store, in, moved
}

// ownRefTry is the second try of an order, in doubt: the first was refused. The app writes its order number on both.
func ownRefTry(t *testing.T, g *gateways.Gateway, store *memory.Store, app string) {
	m, _ := g.Match("POST", "/v72/payments")
	in := gateways.Inbound{Method: "POST", Target: "/v72/payments", Header: []claims.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "X-API-Key", Value: "key"}},
		Body: []byte(`{"merchantAccount":"M",` + app + `"amount":{"value":4990,"currency":"EUR"}}`)}
	facts := func(rev int) claims.Facts {
		c, err := m.Prepare(in, gateways.Identity{Realm: realm, Tenant: "t", CallKey: key, Revision: rev})
		if err != nil {
			t.Fatal(err)
		}
		return c.Facts
	}
	l, err := store.Acquire(t.Context(), claims.InstancePrefix+"x", "x", 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, old := claims.NewClaimID(), claims.NewClaimID()
	next := claims.Record{
		Key: claims.Key{Tenant: "t", Call: key}, State: claims.StatePending, Revision: 2, Attempt: 1, Claim: id, Sender: l.Guard,
		Fingerprint: claims.Fingerprint{KeyID: "k1", Canonical: 1, MAC: []byte{1}}, Facts: facts(2),
		Past:     []claims.Past{{Revision: 1, State: claims.StateDeclined, Facts: facts(1), Attempts: []claims.Attempt{{Number: 1, Claim: old, Wrote: true, Outcome: claims.Declined, Proof: "answer"}}}},
		Attempts: []claims.Attempt{{Number: 1, Claim: id, Sender: l.Guard, Guard: l.Guard, Wrote: true}},
	}
	sw, err := store.Swap(t.Context(), claims.Condition{Guard: l.Guard, Sender: l.Guard}, claims.Write{Next: next, Claim: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	next, _ = claims.Settle(sw.Records[0], 2, 1, id, claims.Sent{Cause: "timeout"})
	if _, err = store.Swap(t.Context(), claims.Condition{Guard: l.Guard}, claims.Write{Version: sw.Records[0].Version, Next: next}); err != nil {
		t.Fatal(err)
	}
}

func ownRefTell(t *testing.T, in *reconcile.Intake, psp, ref, success string) {
	signed := fmt.Sprintf("%s::M:%s:4990:EUR:AUTHORISATION:%s", psp, ref, success)
	k, _ := hex.DecodeString(strings.Repeat("ab", 32))
	h := hmac.New(sha256.New, k)
	h.Write([]byte(signed))
	body := fmt.Sprintf(`{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":%q,"originalReference":"","merchantAccountCode":"M","merchantReference":%q,`+
		`"amount":{"value":4990,"currency":"EUR"},"eventCode":"AUTHORISATION","success":%q,"additionalData":{"hmacSignature":%q}}}]}`, psp, ref, success, base64.StdEncoding.EncodeToString(h.Sum(nil)))
	rw := httptest.NewRecorder()
	in.ServeHTTP(rw, httptest.NewRequest(http.MethodPost, "/webhooks/t/adyen/shop", strings.NewReader(body)))
	if rw.Code != 200 {
		t.Fatalf("answered %d", rw.Code)
	}
}

// The notice of the first, refused try comes late. The second try was executed at Adyen, its answer was lost.
func TestOwnReference_decidesNothing(t *testing.T) {
	g, store, in, moved := ownRefShop(t)
	ownRefTry(t, g, store, `"reference":"order-42",`)
	ownRefTell(t, in, "FIRSTTRY00000001", "order-42", "false")
	*moved += time.Hour
	if err := in.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, _ := store.Get(context.Background(), claims.Key{Tenant: "t", Call: key}, claims.Guard{})
	if v.Record.State != claims.StateUnknown {
		t.Errorf("the second try is %q by the notice of the first (reference-of %q)", v.Record.State, v.Record.Facts.Lookup["reference-of"])
	}
}

// A payment that somebody else made under the order number.
func TestOwnReference_succeedsNothing(t *testing.T) {
	g, store, in, _ := ownRefShop(t)
	ownRefTry(t, g, store, `"reference":"order-42",`)
	ownRefTell(t, in, "PAYBYLINK0000001", "order-42", "true")
	v, _ := store.Get(context.Background(), claims.Key{Tenant: "t", Call: key}, claims.Guard{})
	if v.Record.State != claims.StateUnknown {
		t.Errorf("the call is %q by a payment that is another's", v.Record.State)
	}
}

// The second try succeeded; the first one's refusal is told again.
func TestOwnReference_alarmsNothing(t *testing.T) {
	g, store, in, moved := ownRefShop(t)
	ownRefTry(t, g, store, `"reference":"order-42",`)
	v, _ := store.Get(context.Background(), claims.Key{Tenant: "t", Call: key}, claims.Guard{})
	next, _ := claims.Late(v.Record, claims.Evidence{Revision: 2, Attempt: 1, Claim: v.Record.Claim, Outcome: claims.Succeeded, Source: "answer", Payment: "done"})
	if _, err := store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	*moved += time.Hour
	ownRefTell(t, in, "FIRSTTRY00000001", "order-42", "false")
	v, _ = store.Get(context.Background(), claims.Key{Tenant: "t", Call: key}, claims.Guard{})
	if v.Record.State != claims.StateSucceeded {
		t.Errorf("a paid call is in %q: %+v", v.Record.State, v.Record.Review)
	}
}
