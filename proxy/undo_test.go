package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// idOf is the id in a gateway's answer.
func idOf(t *testing.T, body string) string {
	t.Helper()
	var o struct{ ID string }
	if err := json.Unmarshal([]byte(body), &o); err != nil || o.ID == "" {
		t.Fatalf("no id in %s", body)
	}
	return o.ID
}

func (s *stand) want(what string, status int, h http.Header, wantStatus int, result, slug string) {
	s.t.Helper()
	if status != wantStatus || h.Get(HeaderResult) != result || !strings.Contains(h.Get("Proxy-Status"), slug) {
		s.t.Errorf("%s: %d %v, want %d %s %s", what, status, h, wantStatus, result, slug)
	}
}

// TestHandler_undo: a refund names the charge that it undoes; it runs once, by parts once each, and only of what was executed.
func TestHandler_undo(t *testing.T) {
	s := newStand(t, nil, Config{})
	_, _, charge := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "charge")
	refund := "payment_intent=" + idOf(t, charge) + "&amount=1000"
	undo := func(key, of string) (int, http.Header) {
		status, h, _ := s.do("POST", "/v1/refunds", refund, HeaderKey, key, HeaderUndo, of)
		return status, h
	}
	for _, c := range []struct {
		what, key, of string
		status        int
		result, slug  string
		sends         int
	}{
		{"nothing said", "r0", "", 400, "refused", "bad-request", 1},
		{"of itself", "charge", "charge", 400, "refused", "bad-request", 1},
		{"of none, without a token", "r0", "never", 409, "refused", "fenced", 1},
		{"first part", "r1", "charge; part=1", 200, "sent", "", 2},
		{"again", "r1", "charge; part=1", 200, "replayed", "", 2},
		{"another key for the part", "r2", "charge; part=1", 409, "refused", "already-undone", 2},
		{"all, after a part", "r3", "charge", 409, "refused", "already-undone", 2},
		{"the key for something else", "r1", "charge; part=2", 422, "refused", "key-conflict", 2},
		{"the key without a word", "r1", "none", 422, "refused", "key-conflict", 2},
		{"second part", "r4", "charge; part=2", 200, "sent", "", 3},
	} {
		status, h := undo(c.key, c.of)
		if c.of == "" {
			status, h, _ = s.do("POST", "/v1/refunds", refund, HeaderKey, c.key)
		}
		s.want(c.what, status, h, c.status, c.result, c.slug)
		if s.posts() != c.sends {
			t.Errorf("%s: %d sends, want %d", c.what, s.posts(), c.sends)
		}
	}
	if status, h, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "x", HeaderUndo, "charge"); status != 400 {
		t.Errorf("a charge that says it undoes one: %d %v", status, h)
	}
}

// TestHandler_undoOfADecline cancels it for good.
func TestHandler_undoOfADecline(t *testing.T) {
	s := newStand(t, nil, Config{})
	declined := "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa_chargeDeclined"
	status, h, _ := s.do("POST", "/v1/payment_intents", declined, HeaderKey, "charge")
	s.want("decline", status, h, 402, "sent", "")
	status, h, _ = s.do("POST", "/v1/refunds", "payment_intent=pi_1", HeaderKey, "r", HeaderUndo, "charge")
	s.want("undo", status, h, 409, "refused", "nothing-to-undo")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "charge", HeaderRevision, "2")
	s.want("a late revision", status, h, 410, "refused", "call-cancelled")
	if s.posts() != 1 {
		t.Errorf("%d sends", s.posts())
	}
}

// TestHandler_undoWhereNoTokensAreServed: such a gateway's calls have no scope, so that what was never claimed is cancelled
// without one.
func TestHandler_undoWhereNoTokensAreServed(t *testing.T) {
	s := newStand(t, func(g *gateways.Gateway) { g.Tokens = gateways.TokensNone }, Config{})
	status, h, _ := s.do("POST", "/v1/refunds", "payment_intent=pi_1", HeaderKey, "r", HeaderUndo, "charge")
	s.want("undo", status, h, 409, "refused", "nothing-to-undo")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "charge")
	s.want("the late charge", status, h, 410, "refused", "call-cancelled")
	if s.posts() != 0 {
		t.Errorf("%d sends", s.posts())
	}
}

// TestHandler_revision: a declined charge is tried with another card under the same call key.
func TestHandler_revision(t *testing.T) {
	s := newStand(t, nil, Config{})
	declined := "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa_chargeDeclined"
	status, h, _ := s.do("POST", "/v1/payment_intents", declined, HeaderKey, "k")
	s.want("decline", status, h, 402, "sent", "")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k")
	s.want("another card, same revision", status, h, 422, "refused", "key-conflict")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k", HeaderRevision, "3")
	s.want("a revision left out", status, h, 409, "refused", "revision-blocked")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k", HeaderRevision, "2")
	s.want("revision 2", status, h, 200, "sent", "")
	status, h, _ = s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k", HeaderRevision, "2")
	s.want("again", status, h, 200, "replayed", "")
	status, h, _ = s.do("POST", "/v1/payment_intents", declined, HeaderKey, "k")
	s.want("the old one", status, h, 409, "refused", "superseded-revision")
	if h.Get(HeaderOutcome) != claims.Succeeded.String() {
		t.Errorf("the call is said to be %s", h.Get(HeaderOutcome))
	}
	if s.posts() != 2 || s.gw.Moved() != 1 {
		t.Errorf("%d sends, %d charges", s.posts(), s.gw.Moved())
	}
}
