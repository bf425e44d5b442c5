// Command fence-sidecar makes calls to payment gateways safe: a customer is charged once, whatever crashes, freezes, times
// out or is taken over.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Run     runCmd     `cmd:"" help:"Serve: take an app's calls on loopback, claim each in the store, send it at most once."`
	Demo    demoCmd    `cmd:"" help:"Show a charge surviving a crash: a sandbox gateway and two sidecars on one SQLite file."`
	Sandbox sandboxCmd `cmd:"" help:"Run the misbehaving Stripe-like gateway for tests."`
	Store   storeCmd   `cmd:"" help:"Prepare and inspect the store."`
	Calls   callsCmd   `cmd:"" help:"Look at calls and settle those that a person must settle."`
	Keys    keysCmd    `cmd:"" help:"Make and rotate the keys of fingerprints and stored answers."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func main() {
	var c commands
	k := kong.Parse(&c,
		kong.Name("fence-sidecar"),
		kong.Description("A sidecar that makes calls to payment gateways safe: a customer is charged once, whatever crashes, freezes, times out or is taken over."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	k.BindTo(ctx, (*context.Context)(nil))
	err := k.Run()
	stop()
	if err != nil {
		os.Stderr.WriteString("fence-sidecar: " + err.Error() + "\n")
		os.Exit(1)
	}
}
