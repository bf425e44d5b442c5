package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Exit codes of checklist.
const (
	exitFailed = 1 // a row is FAIL
	exitNotRun = 2 // bad input, a refusal, or a run that did not reach its end
)

// exitError is an error with the process's exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// ExitCode is what the process ends with.
func (e *exitError) ExitCode() int { return e.code }

type checklistCmd struct {
	Gateway string `help:"Built-in gateway, by name." placeholder:"NAME"`
	File    string `help:"Gateway file with checks (docs/gateway-files.md), in place of a built-in one." placeholder:"F.yaml"`
	BaseURL string `name:"base-url" help:"The sandbox: scheme and host. Default: the gateway's own address." placeholder:"URL"`

	checklistSecrets
	Var       map[string]string `help:"A value that the gateway's checks ask for." placeholder:"NAME=VALUE" mapsep:"none"`
	ForceLive bool              `help:"Go on although real money would move."`

	Resume string `help:"Keep the evidence in this file. With an existing one only what is missing is tried, and the first charge's key is repeated: run again after hours." placeholder:"FILE"`
	Plan   bool   `help:"Say what would be sent, and what it may leave behind at most; send nothing."`

	Burst       int           `default:"20" help:"How many repeats are sent at once."`
	Timeout     time.Duration `default:"15m" help:"Bounds the whole run."`
	LookupWait  time.Duration `default:"1m" help:"How long a lookup may take to show a charge."`
	OutcomeWait time.Duration `default:"2m" help:"How long a late outcome may take."`
	Advance     string        `help:"Request that moves a pending payment on, such as 'POST /_sandbox/payments/{object}/done'." placeholder:"'METHOD TARGET'"`

	checklistHook

	Listen string `help:"Try the way out: listen here, and count how often a POST that is sent once arrives." placeholder:"ADDRESS"`
	Via    string `help:"URL that leads to that listener through the mesh, balancer or proxy under test. Default: its own address." placeholder:"URL"`

	Allow []string `help:"Rows that may be FAIL without the exit code saying so, such as G5." placeholder:"ROW"`

	JSON  string `name:"json" help:"Write the report as JSON; -: to standard output in place of the table." placeholder:"FILE"`
	JUnit string `name:"junit" help:"Write it as JUnit XML; -: to standard output." placeholder:"FILE"`
	HTML  string `name:"html" help:"Write it as one HTML page; -: to standard output." placeholder:"FILE"`
}

// Run asks the gateway's sandbox. It ends with 0 where no row is FAIL, 1 where one is, 2 where it could not run to its end.
func (c checklistCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout %s is over", c.Timeout))
	defer cancel()
	cfg, err := c.config(ctx)
	if err != nil {
		return &exitError{exitNotRun, err}
	}
	if c.Plan {
		if err := printPlan(os.Stdout, cfg); err != nil {
			return &exitError{exitNotRun, err}
		}
		return nil
	}
	rep, err := checklist.Run(ctx, cfg)
	if end, ok := ctx.Deadline(); err != nil && ok && time.Until(end) < 100*time.Millisecond {
		<-ctx.Done() // a socket's deadline, taken from the context's, can come an instant before it
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if rep == nil {
		return &exitError{exitNotRun, err}
	}
	if written := c.write(rep); written != nil {
		return &exitError{exitNotRun, errors.Join(err, written)}
	}
	switch {
	case err != nil:
		return &exitError{exitNotRun, fmt.Errorf("not run to its end: %w", err)}
	case rep.Failed(c.Allow...):
		return &exitError{exitFailed, errors.New("a guarantee is FAIL")}
	}
	return nil
}

// config reads the flags.
func (c checklistCmd) config(ctx context.Context) (checklist.Config, error) {
	g, err := c.gateway()
	if err != nil {
		return checklist.Config{}, err
	}
	began := time.Now()
	cfg := checklist.Config{
		Gateway: g, BaseURL: c.BaseURL, Vars: c.Var, ForceLive: c.ForceLive, Burst: c.Burst,
		LookupWait: c.LookupWait, OutcomeWait: c.OutcomeWait, State: c.Resume,
		Progress: func(step, text string) {
			fmt.Fprintf(os.Stderr, "%7.1fs  %-9s  %s\n", time.Since(began).Seconds(), step, text)
		},
	}
	if err := c.into(ctx, &cfg, c.Plan); err != nil {
		return cfg, err
	}
	played, onSandbox := checklist.Sandbox{}, false
	if !c.Plan {
		played, onSandbox = checklist.FindSandbox(ctx, g)
	}
	if onSandbox {
		played.Complete(g)
		if err := g.Validate(); err != nil {
			return cfg, err
		}
	}
	if c.Listen != "" {
		cfg.Egress = &checklist.EgressConfig{Listen: c.Listen, Via: c.Via}
	} else if c.Via != "" {
		return cfg, errors.New("--via needs --listen: the address of the listener that it leads to")
	}
	cfg.Hook, err = c.hook(g)
	if err == nil && cfg.Hook != nil && onSandbox {
		c.tellBy(ctx, cfg.Hook, played)
	}
	return cfg, err
}

// gateway is the declaration that is meant, with --advance.
func (c checklistCmd) gateway() (*gateways.Gateway, error) {
	g, err := c.declared()
	if err != nil {
		return nil, err
	}
	if c.BaseURL != "" {
		g.BaseURL = c.BaseURL
	}
	if c.Advance != "" && g.Checks != nil {
		method, target, ok := strings.Cut(c.Advance, " ")
		if !ok {
			return nil, errors.New("--advance: a method and a target, such as 'POST /payments/{object}/settle'")
		}
		g.Checks.Advance = &gateways.Sample{Method: method, Target: strings.TrimSpace(target)}
	}
	return g, g.Validate()
}

func (c checklistCmd) declared() (*gateways.Gateway, error) {
	if c.File != "" {
		b, err := os.ReadFile(c.File)
		if err != nil {
			return nil, err
		}
		g, err := gateways.Load(b, c.File)
		if err == nil && c.Gateway != "" && c.Gateway != g.Name {
			err = fmt.Errorf("--gateway %s: the file is of gateway %s", c.Gateway, g.Name)
		}
		return g, err
	}
	if g, ok := gateways.Declared(c.Gateway); ok {
		return g, nil
	}
	var names []string
	for _, g := range gateways.Builtin() {
		if g.Checks != nil {
			names = append(names, g.Name)
		}
	}
	return nil, fmt.Errorf("--gateway %q is not allowed: %s; or --file", c.Gateway, strings.Join(names, ", "))
}

// write writes the report to where it was asked for, and the table to standard output where nothing else goes there.
func (c checklistCmd) write(rep *checklist.Report) error {
	table := true
	var errs []error
	for _, out := range []struct {
		to    string
		write func(io.Writer) error
	}{{c.JSON, rep.WriteJSON}, {c.JUnit, rep.WriteJUnit}, {c.HTML, rep.WriteHTML}} {
		switch out.to {
		case "":
		case "-":
			table = false
			errs = append(errs, out.write(os.Stdout))
		default:
			errs = append(errs, writeWhole(out.to, out.write))
		}
	}
	if table {
		errs = append(errs, rep.WriteTable(os.Stdout))
	}
	return errors.Join(errs...)
}

// writeWhole replaces a file only by a whole one.
func writeWhole(file string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func printPlan(out io.Writer, cfg checklist.Config) error {
	steps, all, err := checklist.Plan(cfg)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tREQUESTS\tOBJECTS\tAT MOST\tDOES")
	for _, s := range steps {
		if s.Why != "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\tleft out: %s\n", s.Step, s.Why)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", s.Step, s.Cost.Requests, s.Cost.Likely, s.Cost.Most, s.Does)
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\tof %s %s each\n", all.Requests, all.Likely, all.Most, cfg.Gateway.Checks.Amount, cfg.Gateway.Checks.Currency)
	return w.Flush()
}
