package main

import (
	"strings"
	"testing"
)

func TestBadWebhooksConfigurations(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // field, value, what is allowed
	}{
		{"sweeper", "reconcile: {sweeper: maybe}", []string{"reconcile.sweeper", `"maybe"`, "on, off"}},
		{"no port", "listen: {webhooks: hooks.example}", []string{"listen.webhooks", `"hooks.example"`, "[host]:port"}},
		{"the telemetry port", "listen: {webhooks: \":9090\"}", []string{"listen.webhooks", `":9090"`, "of its own"}},
		{"no listener", "webhooks: {publicURL: \"https://hooks.example\"}", []string{"listen.webhooks", `""`, "if webhooks are configured"}},
		{"a certificate without its key", "listen: {webhooks: \":1\"}\nwebhooks: {cert: /c}", []string{"webhooks.key", `""`, "together"}},
		{"no URL", "listen: {webhooks: \":1\"}\nwebhooks: {publicURL: \"://\"}", []string{"webhooks.publicURL", "cannot be parsed"}},
		{"another scheme", "listen: {webhooks: \":1\"}\nwebhooks: {publicURL: \"ftp://x\"}", []string{"webhooks.publicURL", `"ftp://x"`, "https://host"}},
		{"a query", "listen: {webhooks: \":1\"}\nwebhooks: {publicURL: \"https://x/?a=b\"}", []string{"webhooks.publicURL", "https://host"}},
		{"a user", "listen: {webhooks: \":1\"}\nwebhooks: {publicURL: \"https://me:hunter2@x\"}", []string{"webhooks.publicURL", "https://host"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadConfig(write(t, okStore+okGateway+c.text+"\n"))
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("more than one line, or a secret: %q", err)
			}
		})
	}
	c, err := loadConfig(write(t, okStore+okGateway+"reconcile: {sweeper: off}\nlisten: {webhooks: \":8443\"}\nwebhooks: {publicURL: \"https://hooks.example/fence\"}\n"))
	if err != nil || c.Reconcile.Sweeper != sweeperOff || c.Listen.Webhooks != ":8443" {
		t.Errorf("%+v %v", c, err)
	}
}

// Whose credential a call goes with is a setting; what cannot be is refused.
func TestCredentialsConfiguration(t *testing.T) {
	gateway := func(fields string) string { return okStore + "gateways: [{use: stripe, " + fields + "}]\n" }
	c, err := loadConfig(write(t, gateway("credentials: sidecar, rotating: true, accounts: [{name: a, oauth2: {tokenPath: /t, clientID: {env: A}, clientSecret: {env: B}}}]")))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.registry()
	if err != nil {
		t.Fatal(err)
	}
	if g := r.All()[0]; g.Credentials != "sidecar" || !g.Rotating || g.Accounts[0].OAuth2 == nil {
		t.Errorf("%+v", g)
	}
	for text, want := range map[string]string{
		gateway("credentials: theirs"):                                         "app, sidecar",
		gateway("rotating: true, accounts: [{name: a}, {name: b}]"):            "one account",
		gateway("credentials: sidecar, accounts: [{name: a}]"):                 "oauth2",
		gateway("accounts: [{name: a, oauth2: {tokenPath: /t}}]"):              "env or file",
		gateway("accounts: [{name: a, webhookSecrets: [{env: A, file: /b}]}]"): "env or file",
	} {
		if _, err := loadConfig(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
