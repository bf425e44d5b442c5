package proxy

import (
	"context"
	"errors"
	"slices"
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
	t.Setenv("ID", "client")
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

// What the gateway turns down of what the sidecar supplied is told, so that a revoked token is not kept to its end.
func TestSupply_turnedDown(t *testing.T) {
	t.Setenv("KEY", "sk_gone")
	var told []string
	s := newStand(t, func(g *gateways.Gateway) {
		g.Credentials = gateways.CredentialsSidecar
		g.Accounts = []gateways.Account{{Name: "shop", Credential: gateways.Secret{Env: "KEY"}}}
	}, Config{TurnedDown: func(gateway, account, value string) { told = append(told, gateway+" "+account+" "+value) }})
	if status, h, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k", "Sandbox-Fault", "unauthorized"); status != 401 || h.Get(HeaderOutcome) != "not-executed" {
		t.Errorf("%d %v", status, h)
	}
	if status, _, _ := s.do("POST", "/v1/payment_intents", chargeForm, HeaderKey, "k"); status != 200 || len(told) != 1 || told[0] != "stripe shop Bearer sk_gone" {
		t.Errorf("%d, told %q", status, told)
	}
	if status, _, _ := s.do("TRACE", "/v1/payment_intents", ""); status != 400 || len(s.gw.Sends("TRACE")) != 0 {
		t.Errorf("TRACE: %d, %d sends", status, len(s.gw.Sends("TRACE")))
	}
}

// Untagged requests pass under a path's own rules only, however a server might read its spelling.
func TestUntagged_respelled(t *testing.T) {
	for _, catchAll := range []bool{false, true} {
		s := newStand(t, func(g *gateways.Gateway) {
			g.Untagged = gateways.UntaggedPass
			g.Routes = slices.DeleteFunc(g.Routes, func(r *gateways.Route) bool { return !catchAll && strings.HasSuffix(r.Path, "**") })
			for _, r := range g.Routes {
				if r.Untagged = gateways.UntaggedRefuse; strings.HasSuffix(r.Path, "**") {
					r.Untagged = gateways.UntaggedPass
				}
			}
		}, Config{})
		for _, path := range []string{"/v1/payment_intents", "/v1/payment%5Fintents", "/v1//payment_intents", "/v1/payment_intents/", "/V1/payment_intents", "/v1/./payment_intents"} {
			if status, _, body := s.do("POST", path, chargeForm); status != 403 && status != 400 || s.posts() != 0 {
				t.Errorf("catch-all %v: %s: %d %s, %d sends", catchAll, path, status, body, s.posts())
			}
		}
		if status, _, _ := s.do("POST", "/v1/customers", "email=a"); status != 200 || s.posts() != 1 {
			t.Errorf("catch-all %v: another path: %d", catchAll, status)
		}
	}
}
