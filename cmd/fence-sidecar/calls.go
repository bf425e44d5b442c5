package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"text/tabwriter"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/proxy/console"
)

type callsCmd struct {
	List    callsListCmd    `cmd:"" help:"List calls, newest first."`
	Show    callsShowCmd    `cmd:"" help:"Show one call's record."`
	Explain callsExplainCmd `cmd:"" help:"Say in words where a call stands, why, and what happens next."`
	Resolve callsResolveCmd `cmd:"" help:"Settle a call in review by a person's word, or have it looked up again."`
}

type callsListCmd struct {
	configFlag
	Tenant string   `help:"Only this tenant's calls."`
	State  []string `help:"Only calls in these states: pending, unknown, succeeded, declined, open, review, cancelled."`
	Limit  int      `default:"50" help:"At most so many."`
	JSON   bool     `help:"Print JSON, one record a line."`
}

// Run lists.
func (l callsListCmd) Run(ctx context.Context) error {
	states := make([]claims.State, 0, len(l.State))
	for _, s := range l.State {
		st := claims.State(s)
		if st == claims.None || !st.Readable() {
			return fmt.Errorf("--state: %q is not allowed: pending, unknown, succeeded, declined, open, review, cancelled", s)
		}
		states = append(states, st)
	}
	_, b, _, err := l.openSealed(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	rs, err := b.List(ctx, l.Tenant, states, l.Limit)
	if err != nil && !errors.Is(err, claims.ErrUnreadable) {
		return err
	}
	unreadable := err // told after those that can be read
	if l.JSON {
		return errors.Join(eachJSON(os.Stdout, rs), unreadable)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tCALL\tSTATE\tREV\tATTEMPT\tGATEWAY\tROUTE\tSTARTED\tUPDATED")
	for i := range rs {
		r := &rs[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", console.Printable(r.Key.Tenant), console.Printable(r.Key.Call), r.State, r.Revision, r.Attempt,
			r.Facts.Gateway, r.Facts.Route, console.Stamp(r.FirstStarted.Wall), console.Stamp(r.Updated.Wall))
	}
	return errors.Join(w.Flush(), unreadable)
}

func eachJSON(w io.Writer, rs []claims.Record) error {
	e := json.NewEncoder(w)
	for i := range rs {
		if err := e.Encode(console.Show(&rs[i])); err != nil {
			return err
		}
	}
	return nil
}

// callFlag names one call.
type callFlag struct {
	configFlag
	Key    string `arg:"" help:"Call key."`
	Tenant string `default:"default" help:"Tenant."`
}

func (f callFlag) get(ctx context.Context) (*Config, claims.Backend, claims.View, error) {
	c, b, _, err := f.openSealed(ctx)
	if err != nil {
		return nil, nil, claims.View{}, err
	}
	v, err := b.Get(ctx, claims.Key{Tenant: f.Tenant, Call: f.Key}, claims.Guard{})
	if err == nil && !v.Record.Exists() {
		err = fmt.Errorf("no call %q of tenant %q", f.Key, f.Tenant)
	}
	if err != nil {
		b.Close()
		return nil, nil, v, err
	}
	return c, b, v, nil
}

type callsShowCmd struct{ callFlag }

// Run prints a record as JSON, without the stored answer's body.
func (s callsShowCmd) Run(ctx context.Context) error {
	_, b, v, err := s.get(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(console.Show(&v.Record))
}

type callsExplainCmd struct{ callFlag }

// Run explains.
func (x callsExplainCmd) Run(ctx context.Context) error {
	c, b, v, err := x.get(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := c.registry()
	if err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, console.Explain(v, r, c.Attempts))
	return err
}

type callsResolveCmd struct {
	callFlag
	Executed    bool   `xor:"word" required:"" help:"The gateway executed it: you saw the money move."`
	NotExecuted bool   `xor:"word" required:"" help:"The gateway did not execute it and cannot any more."`
	LookAgain   bool   `xor:"word" required:"" help:"Decide nothing: ask the gateway again."`
	Seen        string `required:"" help:"What you saw at the gateway; kept in the record."`
	By          string `help:"Who decides. Default: the operating system's user."`
}

// Run applies a person's word.
func (c callsResolveCmd) Run(ctx context.Context) error {
	cfg, b, v, err := c.get(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	reg, err := cfg.registry()
	if err != nil {
		return err
	}
	console.Strict(&v.Record, reg)
	word := claims.LookAgain
	switch {
	case c.Executed:
		word = claims.WasExecuted
	case c.NotExecuted:
		word = claims.WasNotExecuted
	}
	next, err := claims.Resolve(v.Record, word, c.who(), c.Seen, v.Now)
	if err != nil {
		return err
	}
	if err := cfg.checkRing(ctx, b); err != nil {
		return err
	}
	sw, err := b.Swap(ctx, claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next, Event: claims.EventOf(v.Record, next)})
	switch {
	case errors.Is(err, claims.ErrLost):
		return errors.New("the record changed meanwhile: look at it again")
	case err != nil:
		return fmt.Errorf("the store did not acknowledge it; look whether it was applied: %w", err)
	}
	fmt.Fprintf(os.Stdout, "%s is %s\n", console.Printable(c.Key), sw.Records[0].State)
	return nil
}

func (c callsResolveCmd) who() string {
	if c.By != "" {
		return c.By
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
