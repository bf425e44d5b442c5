package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// checklistSecrets are the places where the checklist's secrets are. No secret stands on a command line.
type checklistSecrets struct {
	CredentialEnv       string `help:"Environment variable with the sandbox's credential." placeholder:"NAME" xor:"credential"`
	CredentialFile      string `help:"File with it." placeholder:"FILE" xor:"credential"`
	ClientIDEnv         string `name:"client-id-env" help:"Environment variable with an OAuth2 client's id; the credential is its secret then." placeholder:"NAME" and:"token"`
	TokenPath           string `help:"Where that client fetches its token: a path at the base URL, or a URL." placeholder:"PATH" and:"token"`
	OtherCredentialEnv  string `help:"Environment variable with the credential of a second account." placeholder:"NAME" xor:"other"`
	OtherCredentialFile string `help:"File with it." placeholder:"FILE" xor:"other"`
	OtherAccount        string `help:"Value of the gateway's account header that selects a second account." placeholder:"ID"`
}

// into sets what the run asks for its credentials. A plan fetches no token.
func (c checklistSecrets) into(ctx context.Context, cfg *checklist.Config, plan bool) error {
	secret := gateways.Secret{Env: c.CredentialEnv, File: c.CredentialFile}
	if secret.IsZero() {
		return errors.New("--credential-env or --credential-file is missing")
	}
	cfg.Credential, cfg.OtherAccount = secret.Value, c.OtherAccount
	if other := (gateways.Secret{Env: c.OtherCredentialEnv, File: c.OtherCredentialFile}); !other.IsZero() {
		cfg.OtherCredential = other.Value
	}
	if c.ClientIDEnv == "" || plan {
		return nil
	}
	mint, err := c.minting(cfg.Gateway, secret, cfg.ForceLive)
	if err != nil {
		return err
	}
	cfg.Credential = func() (string, error) { return mint(ctx) }
	return nil
}

// minting fetches tokens as run does for an account with oauth2.
func (c checklistSecrets) minting(g *gateways.Gateway, secret gateways.Secret, live bool) (func(context.Context) (string, error), error) {
	account := &gateways.Account{Name: "checklist", OAuth2: &gateways.OAuth2{ClientID: gateways.Secret{Env: c.ClientIDEnv}, ClientSecret: secret}}
	if strings.Contains(c.TokenPath, "://") {
		account.OAuth2.TokenURL = c.TokenPath
	} else {
		account.OAuth2.TokenPath = c.TokenPath
	}
	if u, err := url.Parse(account.OAuth2.URL(g)); err != nil || g.Checks != nil && g.Checks.LiveHost(u.Host) && !live {
		return nil, fmt.Errorf("--token-path: the tokens of this address move real money")
	}
	link, err := linkTo(g, slog.Default())
	if err != nil {
		return nil, err
	}
	own := *g
	own.Accounts = []gateways.Account{*account}
	reg, err := gateways.NewRegistry(&own)
	if err != nil {
		return nil, err
	}
	mint := reconcile.NewTokens(reg, map[string]reconcile.Link{g.Name: link}, nil).Mint(&own)
	return func(ctx context.Context) (string, error) { return mint(ctx, account) }, nil
}

// checklistHook are the flags of the listener for notices.
type checklistHook struct {
	WebhookListen     string `help:"Listen here for the gateway's notices." placeholder:"ADDRESS"`
	WebhookURL        string `name:"webhook-url" help:"Scheme and host of that listener as the gateway knows it, where it signs them." placeholder:"URL"`
	WebhookSecretEnv  string `help:"Environment variable with the secret that notices are signed with." placeholder:"NAME" xor:"hook"`
	WebhookSecretFile string `help:"File with it." placeholder:"FILE" xor:"hook"`
}

// tellBy has the built-in sandbox tell the listener.
func (c checklistHook) tellBy(ctx context.Context, h *checklist.HookConfig, s checklist.Sandbox) {
	ready, secret := h.Ready, ""
	if len(h.Secrets) > 0 {
		secret, _ = h.Secrets[0].Value() // read before
	}
	h.Ready = func(a net.Addr) {
		ready(a)
		s.Tell(ctx, "http://"+a.String()+"/", secret)
	}
}

func (c checklistHook) hook(g *gateways.Gateway) (*checklist.HookConfig, error) {
	secret := gateways.Secret{Env: c.WebhookSecretEnv, File: c.WebhookSecretFile}
	switch {
	case c.WebhookListen == "" && (!secret.IsZero() || c.WebhookURL != ""):
		return nil, errors.New("--webhook-listen is missing: the address to listen on")
	case c.WebhookListen == "":
		return nil, nil
	}
	h := &checklist.HookConfig{Listen: c.WebhookListen, URL: strings.TrimSuffix(c.WebhookURL, "/")}
	if !secret.IsZero() {
		if _, err := secret.Value(); err != nil {
			return nil, fmt.Errorf("webhook secret: %w", err)
		}
		h.Secrets = []gateways.Secret{secret}
	}
	if g.Webhook != nil && g.Webhook.Signature != nil && g.Webhook.Signature.CertHeader != "" {
		link, err := linkTo(g, slog.Default())
		if err != nil {
			return nil, err
		}
		h.Certificate = reconcile.CertificateFetcher(link)
	}
	h.Ready = func(a net.Addr) { fmt.Fprintf(os.Stderr, "listening for notices on http://%s/\n", a) }
	return h, nil
}
