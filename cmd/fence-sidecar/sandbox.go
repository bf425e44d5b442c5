package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

type sandboxCmd struct {
	Listen           string        `default:"127.0.0.1:8400" help:"Address to listen on."`
	Cert             string        `help:"PEM certificate chain: serve HTTPS." and:"tls" placeholder:"FILE"`
	Key              string        `help:"PEM private key of the certificate." and:"tls" placeholder:"FILE"`
	SearchLag        time.Duration `default:"30s" help:"How old an object must be for search to show it."`
	Retention        time.Duration `help:"How long idempotency keys are kept; default: the profile's, 24h for most."`
	Profile          string        `default:"stripe" help:"The gateway to play; see --profiles." placeholder:"NAME"`
	Profiles         bool          `help:"Print the gateways that can be played and exit."`
	Webhook          []string      `help:"Address to tell of movements of money, signed with the webhook secret. May be repeated." placeholder:"URL" sep:"none"`
	WebhookSecretEnv string        `help:"Environment variable with the webhook secret." placeholder:"NAME"`
	Leases           string        `help:"Also pass a sidecar's control listener on, on this address: POST /_sandbox/leases/stall?token=… holds what belongs to a lease, as if its holder were frozen." and:"leases" placeholder:"ADDRESS"`
	Sidecar          string        `help:"Base URL of that sidecar's control listener, such as http://127.0.0.1:8182." and:"leases" placeholder:"URL"`
	Faults           bool          `help:"Print the table of misbehaviours and exit."`
}

// Run serves the sandbox until it is interrupted.
func (s sandboxCmd) Run(ctx context.Context) error {
	if s.Faults {
		w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "FAULT\tARGUMENT\tMEANING")
		for _, f := range sandbox.Faults {
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, f.Arg, f.Meaning)
		}
		return w.Flush()
	}
	if s.Profiles {
		for _, name := range sandbox.Profiles() {
			fmt.Println(name)
		}
		return nil
	}
	cfg := sandbox.Config{Addr: s.Listen, SearchLag: s.SearchLag, KeyRetention: s.Retention, Profile: s.Profile}
	for _, u := range s.Webhook {
		cfg.Hooks = append(cfg.Hooks, sandbox.Hook{URL: u, Secret: os.Getenv(s.WebhookSecretEnv)})
	}
	if s.Cert != "" {
		c, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return fmt.Errorf("--cert: %w", err)
		}
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
	}
	srv, err := sandbox.Open(cfg)
	if err != nil {
		return err
	}
	addr, err := srv.Start(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "sandbox gateway on %s; it plays %s; ledger at %s/_sandbox/ledger; faults by header %s, see --faults\n", srv.URL(addr), s.Profile, srv.URL(addr), sandbox.FaultHeader)
	if s.Leases != "" {
		leases, err := srv.StartLeases(ctx, s.Leases, s.Sidecar)
		if err != nil {
			srv.Close()
			return err
		}
		fmt.Fprintf(os.Stderr, "leases of %s on http://%s; stalls at %s/_sandbox/leases\n", s.Sidecar, leases, srv.URL(addr))
	}
	<-ctx.Done()
	return srv.Close()
}
