package checklist

import (
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Report is the result of a run.
type Report struct {
	Gateway string    `json:"gateway"`
	Title   string    `json:"title"`
	BaseURL string    `json:"base_url"`
	Started time.Time `json:"started"` // of the first run on the state file
	Ended   time.Time `json:"ended"`
	// Complete: every step was gone through or left out on purpose. Without it Problem says what ended the run.
	Complete   bool      `json:"complete"`
	Problem    string    `json:"problem,omitempty"`
	Rows       []Row     `json:"rows"`
	Created    []Created `json:"created"`
	Suggestion string    `json:"suggestion"` // YAML for the gateway file
	Declared   Declared  `json:"declared"`
	Evidence   Evidence  `json:"evidence"`
}

// Created is something that was made at the sandbox, or perhaps was.
type Created struct {
	Object    string    `json:"object,omitempty"` // the gateway's id; "": the answer named none
	Step      string    `json:"step"`
	Request   string    `json:"request"`
	Amount    string    `json:"amount,omitempty"`
	Currency  string    `json:"currency,omitempty"`
	Reference string    `json:"reference,omitempty"`
	Key       string    `json:"key,omitempty"`
	At        time.Time `json:"at"`
	// Perhaps: no answer says whether it was made.
	Perhaps bool `json:"perhaps,omitempty"`
}

// Failed reports whether a row is FAIL, but for those that are allowed to be.
func (r *Report) Failed(allowed ...string) bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Verdict == Fail && !slices.Contains(allowed, row.Name) })
}

// Row finds a row; nil: there is none.
func (r *Report) Row(name string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

func (r *run) report(err error) *Report {
	rep := &Report{
		Gateway: r.g.Name, Title: r.g.Title, BaseURL: r.g.BaseURL, Started: r.state.Started, Ended: r.now().UTC(), Complete: err == nil,
		Declared: r.declared(), Evidence: r.state.Evidence,
	}
	if rep.Title == "" {
		rep.Title = rep.Gateway
	}
	if err != nil {
		rep.Problem = r.secrets.clean(err.Error())
	}
	rep.Rows = Judge(rep.Declared, rep.Evidence)
	rep.Created = r.state.created()
	rep.Suggestion = Suggest(rep.Declared, rep.Evidence, rep.Rows)
	return rep
}

// declared reads the declaration for the charge's route.
func (r *run) declared() Declared {
	d := Declared{
		Gateway: r.g.Name, Title: r.g.Title, Family: r.g.Family, Retention: r.g.KeyRetention, SettleAfter: r.g.SettleAfter,
		Levels: map[string]gateways.Guarantee{},
	}
	_, d.Builtin = gateways.Declared(r.g.Name)
	for _, n := range gateways.GuaranteeNames {
		d.Levels[n.Name] = r.g.Guarantee(n.Name)
	}
	if h := r.g.Replayed; h != nil {
		d.Replayed = &Line{h.Name, h.Value}
	}
	m, ok := r.g.Match(r.g.Checks.Charge.Method, r.target())
	if !ok {
		return d
	}
	d.Route = m.Route.Name
	rules := r.g.LookupRules(d.Route)
	d.Keyed, d.Proves, d.SettleAfter = rules.Keyed, rules.Proves, rules.SettleAfter
	if m.Route.KeyRetention > 0 {
		d.Retention = m.Route.KeyRetention
	}
	if l := m.Route.Lookup; l != nil {
		d.Lookup, d.Names = l.Kind, namesCall(l.Target)
	}
	return d
}

// target is the charge's, with something in place of what is not known yet.
func (r *run) target() string {
	for _, s := range r.state.Evidence.Steps {
		if x := s.role(RoleFirst); x != nil && s.Name == StepSuccess {
			return x.Target
		}
	}
	t, missing := gateways.Fill(r.g.Checks.Charge.Target, r.remembered(), func(v string) string { return v })
	if len(missing) > 0 {
		values := map[string]string{}
		for _, name := range missing {
			values[name] = "x"
		}
		t, _ = gateways.Fill(t, values, func(v string) string { return v })
	}
	return t
}

// created lists what the exchanges made, or perhaps made, each object once: first what was made by steps that were replaced.
func (s *State) created() []Created {
	out := append([]Created{}, s.Earlier...)
	known := map[string]bool{}
	for _, c := range out {
		known[c.Object], known["key "+c.Key] = true, true
	}
	for _, step := range s.Evidence.Steps {
		out = append(out, step.created(known)...)
	}
	return out
}

// created lists what a step made and is not known yet.
func (s *Step) created(known map[string]bool) (out []Created) {
	for _, x := range s.Exchanges {
		perhaps := x.Object == "" && (x.Status == 0 || x.Status >= 500 || x.Outcome == claims.Unknown.String() && !x.InUse) && x.Role != RoleAdvance
		if found := seen(s, func(y Sight) bool { return y.found() && y.Object != "" && !known[y.Object] }); perhaps && found != nil {
			x.Object = found.Object // a lookup told what the answer did not
		}
		made := x.Object != "" && !known[x.Object]
		if !made && !(perhaps && !known["key "+x.Key]) {
			continue
		}
		known[x.Object], known["key "+x.Key] = true, true
		out = append(out, Created{
			Object: x.Object, Step: s.Name, Request: x.Method + " " + x.Target, Amount: x.Amount, Currency: x.Currency,
			Reference: x.Reference, Key: x.Key, At: x.At, Perhaps: !made,
		})
	}
	return out
}

// same reports whether two entries are of one object or, where no answer named it, of one request.
func (c Created) same(d Created) bool {
	return c.Object == d.Object && (c.Object != "" || c.Key == d.Key && c.Request == d.Request && c.At.Equal(d.At))
}
