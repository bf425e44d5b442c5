// Command fence-sidecar makes calls to payment gateways safe: a customer is charged once, whatever crashes, freezes, times
// out or is taken over.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Run       runCmd       `cmd:"" help:"Serve: take an app's calls on loopback, claim each in the store, send it at most once."`
	Reconcile reconcileCmd `cmd:"" help:"Serve as a fleet worker: sweep, take in gateways' notices, deliver events. Sends no call."`
	Demo      demoCmd      `cmd:"" help:"Show a charge surviving a crash: a sandbox gateway and two sidecars on one SQLite file."`
	Sandbox   sandboxCmd   `cmd:"" help:"Run a misbehaving payment gateway for tests."`
	Store     storeCmd     `cmd:"" help:"Prepare and inspect the store."`
	Calls     callsCmd     `cmd:"" help:"Look at calls and settle those that a person must settle."`
	Gateway   gatewayCmd   `cmd:"" help:"Look at the built-in gateways, and check a gateway file of your own."`
	Checklist checklistCmd `cmd:"" help:"Ask a gateway's sandbox what it keeps of G1 to G6."`
	Keys      keysCmd      `cmd:"" help:"Make and rotate the keys of fingerprints and stored answers."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
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
		code := 1
		if e, ok := errors.AsType[*exitError](err); ok {
			code = e.ExitCode()
		}
		os.Exit(code)
	}
}
