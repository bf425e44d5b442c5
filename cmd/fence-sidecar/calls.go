package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
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
	_, b, err := l.open(ctx)
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", printable(r.Key.Tenant), printable(r.Key.Call), r.State, r.Revision, r.Attempt,
			r.Facts.Gateway, r.Facts.Route, stamp(r.FirstStarted.Wall), stamp(r.Updated.Wall))
	}
	return errors.Join(w.Flush(), unreadable)
}

func eachJSON(w io.Writer, rs []claims.Record) error {
	e := json.NewEncoder(w)
	for i := range rs {
		if err := e.Encode(shown(&rs[i])); err != nil {
			return err
		}
	}
	return nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// printable keeps a terminal safe from what an app chose as a key.
func printable(s string) string {
	q := fmt.Sprintf("%+q", s)
	if q[1:len(q)-1] == s {
		return s
	}
	return q
}

// callFlag names one call.
type callFlag struct {
	configFlag
	Key    string `arg:"" help:"Call key."`
	Tenant string `default:"default" help:"Tenant."`
}

func (f callFlag) get(ctx context.Context) (*Config, claims.Backend, claims.View, error) {
	c, b, err := f.open(ctx)
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
	return e.Encode(shown(&v.Record))
}

// shownCall is what people see of a record: no answer's headers or body, which may hold what belongs on no screen.
type shownCall struct {
	Tenant       string            `json:"tenant"`
	Call         string            `json:"call"`
	State        claims.State      `json:"state"`
	Outcome      string            `json:"outcome"`
	Version      int64             `json:"version"`
	Revision     int               `json:"revision"`
	Attempt      int               `json:"attempt"`
	Scope        string            `json:"scope,omitempty"`
	Gateway      string            `json:"gateway"`
	Account      string            `json:"account"`
	Endpoint     string            `json:"endpoint"`
	Route        string            `json:"route"`
	GatewayKey   string            `json:"gatewayKey"`
	Reference    string            `json:"reference"`
	Lookup       map[string]string `json:"lookup,omitempty"`
	Retention    string            `json:"keyRetention"`
	SettleAfter  string            `json:"settleAfter"`
	FirstStarted time.Time         `json:"firstStarted"`
	Deadline     time.Time         `json:"deadline"`
	Payment      string            `json:"payment,omitempty"`
	AnswerStatus int               `json:"answerStatus,omitempty"`
	Reconciled   bool              `json:"reconciled,omitempty"`
	Misses       int               `json:"misses,omitempty"`
	Review       string            `json:"review,omitempty"`
	Attempts     []shownAttempt    `json:"attempts"`
	Evidence     []shownEvidence   `json:"evidence,omitempty"`
	Updated      time.Time         `json:"updated"`
}

type shownAttempt struct {
	Number  int       `json:"number"`
	Claim   string    `json:"claim"`
	Sender  string    `json:"sender"`
	Started time.Time `json:"started"`
	Outcome string    `json:"outcome"`
	Proof   string    `json:"proof,omitempty"`
	Wrote   bool      `json:"wrote"`
	Status  int       `json:"status,omitempty"`
	Cause   string    `json:"cause,omitempty"`
}

type shownEvidence struct {
	Revision int       `json:"revision"`
	Attempt  int       `json:"attempt"`
	Outcome  string    `json:"outcome"`
	Source   string    `json:"source"`
	At       time.Time `json:"at"`
	By       string    `json:"by,omitempty"`
	Note     string    `json:"note,omitempty"`
}

func shown(r *claims.Record) shownCall {
	c := shownCall{
		Tenant: r.Key.Tenant, Call: r.Key.Call, State: r.State, Outcome: r.Outcome().String(), Version: r.Version,
		Revision: r.Revision, Attempt: r.Attempt, Scope: r.Scope, Gateway: r.Facts.Gateway, Account: r.Facts.Account, Endpoint: r.Facts.Endpoint,
		Route: r.Facts.Route, GatewayKey: r.Facts.GatewayKey, Reference: r.Facts.Reference, Lookup: r.Facts.Lookup,
		Retention: r.Facts.Retention.String(), SettleAfter: r.Facts.SettleAfter.String(), FirstStarted: r.FirstStarted.Wall,
		Deadline: r.Deadline, Payment: r.Payment, Reconciled: r.Reconciled, Misses: r.Misses, Updated: r.Updated.Wall,
	}
	if r.Answer != nil {
		c.AnswerStatus = r.Answer.Status
	}
	if r.Review != nil {
		c.Review = r.Review.Reason
	}
	for _, a := range r.Attempts {
		c.Attempts = append(c.Attempts, shownAttempt{a.Number, a.Claim.String(), a.Sender.String(), a.Started.Wall, a.Outcome.String(), a.Proof, a.Wrote, a.Status, a.Cause})
	}
	for _, e := range r.Evidence {
		c.Evidence = append(c.Evidence, shownEvidence{e.Revision, e.Attempt, e.Outcome.String(), e.Source, e.At.Wall, e.By, e.Note})
	}
	return c
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
	_, err = io.WriteString(os.Stdout, explain(v, r, c.Attempts))
	return err
}

// explain says where a call stands, how it came there, and what happens next.
func explain(v claims.View, reg *gateways.Registry, attempts int) string {
	r := &v.Record
	var b strings.Builder
	fmt.Fprintf(&b, "%s of tenant %s is %s (revision %d).\n", printable(r.Key.Call), printable(r.Key.Tenant), r.State, r.Revision)
	fmt.Fprintf(&b, "%s %s, account %s, gateway key %s, reference %s.\n", r.Facts.Gateway, r.Facts.Route, r.Facts.Account, r.Facts.GatewayKey, r.Facts.Reference)
	for _, a := range r.Attempts {
		fmt.Fprintf(&b, "  %s  attempt %d by %s: %s\n", stamp(a.Started.Wall), a.Number, a.Sender.Scope, attemptWords(a))
	}
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "  %s  evidence (%s) of attempt %d: %s %s\n", stamp(e.At.Wall), strings.TrimSpace(e.Source+" "+e.By), e.Attempt, e.Outcome, e.Note)
	}
	fmt.Fprintf(&b, "Next: %s\n", next(v, reg, attempts))
	return b.String()
}

func attemptWords(a claims.Attempt) string {
	switch {
	case a.Outcome.Definite() && !a.Wrote:
		return "nothing was sent (" + a.Cause + ")"
	case a.Outcome.Definite():
		return a.Outcome.String() + ", proved by " + a.Proof
	case a.Status > 0:
		return fmt.Sprintf("in doubt: the gateway answered %d, which proves nothing", a.Status)
	case a.Cause != "":
		return "in doubt: " + a.Cause
	}
	return "claimed; no word of its sender yet"
}

// next is what will happen to a call, and what a person can do.
func next(v claims.View, reg *gateways.Registry, attempts int) string {
	r := &v.Record
	switch r.State {
	case claims.StateSucceeded, claims.StateDeclined:
		return "nothing; a repeat gets the stored answer."
	case claims.StateOpen:
		if used(r) >= attempts {
			return "nothing more is sent: all attempts of this revision are used. It is proved that nothing was executed."
		}
		return "a repeat of the call is sent again, under the same gateway key."
	case claims.StateCancelled:
		return "nothing; the call is never sent."
	case claims.StateReview:
		return fmt.Sprintf("a person decides: %s. Look at the gateway for reference %s or key %s, then run\n  fence-sidecar calls resolve %q --tenant %q --executed|--not-executed|--look-again --seen \"what you saw\"",
			r.Review.Reason, r.Facts.Reference, r.Facts.GatewayKey, r.Key.Call, r.Key.Tenant)
	}
	if left := r.Deadline.Sub(v.Now.Store); r.State == claims.StatePending && left > 0 {
		return fmt.Sprintf("the attempt ends in %s at the latest; then it is reconciled.", left.Round(time.Second))
	}
	words := "gateway " + r.Facts.Gateway + " is not in the configuration: nobody asks about the call until it is."
	if g, ok := reg.ByName(r.Facts.Gateway); ok {
		words = "the gateway is asked about it every half minute or so."
		if _, has, err := g.LookupHeader(r.Facts.Account); !has || err != nil {
			words = "account " + r.Facts.Account + " has no lookup credential, so only a repeat of the call can tell."
		} else if rules := g.LookupRules(r.Facts.Route); rules.Proves {
			words += fmt.Sprintf(" %d misses in a row from %s on would prove that nothing was executed.", rules.Misses, stamp(r.Deadline.Add(r.Facts.SettleAfter)))
		}
	}
	return words + " Without a result a person is asked " + stamp(r.FirstStarted.Wall.Add(reviewAfter(r))) + "."
}

// used counts the attempts as the limit does.
func used(r *claims.Record) (n int) {
	for _, a := range r.Attempts {
		if a.Counts() && !a.InUse {
			n++
		}
	}
	return n
}

func reviewAfter(r *claims.Record) time.Duration {
	if r.Facts.Retention > 0 {
		return min(claims.Patience, r.Facts.Retention)
	}
	return claims.Patience
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
	if g, ok := reg.ByName(v.Record.Facts.Gateway); ok { // of the stored and the configured time the longer counts
		v.Record.Facts.SettleAfter = max(v.Record.Facts.SettleAfter, g.LookupRules(v.Record.Facts.Route).SettleAfter)
	}
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
	sw, err := b.Swap(ctx, claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next})
	switch {
	case errors.Is(err, claims.ErrLost):
		return errors.New("the record changed meanwhile: look at it again")
	case err != nil:
		return fmt.Errorf("the store did not acknowledge it; look whether it was applied: %w", err)
	}
	fmt.Fprintf(os.Stdout, "%s is %s\n", printable(c.Key), sw.Records[0].State)
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
