package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// What a gateway needs to be reached is read at the start: an error names the setting, a doubt is a warning.
func TestLinkTo(t *testing.T) {
	cert, key := tunneltest.NewClient(t, "shop", 24*time.Hour).Write(t, t.TempDir())
	_, other := tunneltest.NewClient(t, "other", 24*time.Hour).Write(t, t.TempDir())
	oldCert, oldKey := tunneltest.NewClient(t, "old", time.Minute).Write(t, t.TempDir())
	via := func(p gateways.EgressProxy) *gateways.EgressProxy { return &p }
	for _, tc := range []struct {
		name      string
		g         gateways.Gateway
		err, warn string // "" for none
	}{
		{"nothing", gateways.Gateway{}, "", ""},
		{"a certificate", gateways.Gateway{ClientCert: cert, ClientKey: key}, "", ""},
		{"an old certificate", gateways.Gateway{ClientCert: oldCert, ClientKey: oldKey}, "", "expired"},
		{"no certificate", gateways.Gateway{ClientCert: "/nonexistent.pem", ClientKey: key}, "gateway acme: clientCert: ", ""},
		{"another key", gateways.Gateway{ClientCert: cert, ClientKey: other}, "gateway acme: clientCert: ", ""},
		{"no authority", gateways.Gateway{CABundle: "/nonexistent.pem"}, "gateway acme: caBundle: ", ""},
		{"a key for an authority", gateways.Gateway{CABundle: key}, "no PEM certificate", ""},
		{"a proxy", gateways.Gateway{EgressProxy: via(gateways.EgressProxy{URL: "http://h:1"})}, "", ""},
		{"no authority of the proxy", gateways.Gateway{EgressProxy: via(gateways.EgressProxy{URL: "https://h:1", CABundle: "/nonexistent.pem"})},
			"gateway acme: egressProxy.caBundle: ", ""},
		{"no secret of the proxy", gateways.Gateway{EgressProxy: via(gateways.EgressProxy{URL: "http://h:1", Credential: gateways.Secret{File: "/nonexistent"}})},
			"", "egressProxy.credential"},
	} {
		var log bytes.Buffer
		tc.g.Name = "acme"
		l, err := linkTo(&tc.g, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
		}
		if (log.Len() == 0) != (tc.warn == "") || !strings.Contains(log.String(), tc.warn) {
			t.Errorf("%s: the log says %q, want %q", tc.name, log.String(), tc.warn)
		}
		if err == nil && ((l.Certificate != nil) != (tc.g.ClientCert != "") || (l.Via != nil) != (tc.g.EgressProxy != nil)) {
			t.Errorf("%s: the link is %+v", tc.name, l)
		}
	}
}

func TestModeIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"mode: audit\n": "mode: ", "tenants: ['shadow:a']\n": "tenants: ", "mode: shadow\ntenants: [" + strings.Repeat("a", 249) + "]\n": "tenants: ",
		"mode: shadow\n": "", "mode: enforce\n": "", "tenants: [" + strings.Repeat("a", 249) + "]\n": "",
	} {
		if _, err := loadConfig(write(t, text+okStore+okGateway)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
