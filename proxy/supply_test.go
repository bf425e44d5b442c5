package proxy

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// lines are the values of a header as the gateway got it in its nth send, from 1.
func (s *stand) lines(n int, name string) (vs []string) {
	for _, l := range s.gw.Sends()[n-1].Header {
		if strings.EqualFold(l.Name, name) {
			vs = append(vs, l.Value)
		}
	}
	return vs
}

// Where the sidecar supplies the credential, what the app sent in its place never leaves; a replay needs none.
func TestSupply(t *testing.T) {
	var minted atomic.Int64
	var fail atomic.Bool
	s := newStand(t, func(g *gateways.Gateway) {
		g.Credentials = gateways.CredentialsSidecar
		g.Accounts = []gateways.Account{{Name: "shop", OAuth2: &gateways.OAuth2{
			TokenPath: "/token", ClientID: gateways.Secret{Env: "ID"}, ClientSecret: gateways.Secret{Env: "SECRET"},
		}}}
		g.Mint = func(context.Context, *gateways.Account) (string, error) {
			minted.Add(1)
			if fail.Load() {
				return "", errors.New("no token today")
			}
			return "tok_7", nil
		}
	}, Config{})
	if status, h, body := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k"); status != 200 {
		t.Fatalf("%d %v %s", status, h, body)
	}
	if got := s.lines(1, "Authorization"); len(got) != 1 || got[0] != "Bearer tok_7" {
		t.Errorf("the gateway got %q", got)
	}
	if status, _, _ := s.do("GET", "/v1/payment_intents", ""); status != 200 || s.lines(2, "Authorization")[0] != "Bearer tok_7" {
		t.Errorf("a read went with %q", s.lines(2, "Authorization"))
	}
	fail.Store(true)
	before := minted.Load()
	if status, h, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k"); status != 200 || h.Get(HeaderResult) != "replayed" || minted.Load() != before {
		t.Errorf("a replay: %d %v, %d tokens", status, h, minted.Load()-before)
	}
	status, h, body := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k2")
	if status != 502 || h.Get(HeaderOutcome) != "not-executed" || s.posts() != 1 {
		t.Errorf("without a token: %d %v %s, %d sends", status, h, body, s.posts())
	}
	fail.Store(false)
	if status, _, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k2"); status != 200 || s.gw.Moved() != 2 || s.posts() != 2 {
		t.Errorf("after it: %d, %d charges, %d sends", status, s.gw.Moved(), s.posts())
	}
}
