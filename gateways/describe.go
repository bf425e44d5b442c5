package gateways

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	tmpl "text/template"
	"time"
)

// Description is a gateway as people and programs are shown it.
type Description struct {
	Name       string               `json:"name"`
	Title      string               `json:"title"`
	Hosts      []string             `json:"hosts"`
	BaseURL    string               `json:"base_url"`
	Guarantees []DescribedGuarantee `json:"guarantees"`
	Key        string               `json:"key"`       // where it goes; "": none
	Reference  string               `json:"reference"` // where ours goes; "": nowhere
	Family     string               `json:"family"`    // in words
	Retention  string               `json:"key_retention"`
	Settle     string               `json:"settle_after"`
	Attempt    string               `json:"attempt_timeout"`
	Unknown    int                  `json:"unknown_status"`
	Credential string               `json:"credential"`
	Webhook    string               `json:"webhook"` // in words; "": none
	Answers    []DescribedAnswer    `json:"answers"`
	Routes     []DescribedRoute     `json:"routes"`
	Notes      []string             `json:"notes"`
	Sources    []string             `json:"sources"`
}

// DescribedGuarantee is one of G1 to G6.
type DescribedGuarantee struct {
	Name string `json:"name"`
	Asks string `json:"asks"`
	Guarantee
}

// DescribedAnswer is one rule of the answer table.
type DescribedAnswer struct {
	Route string `json:"route"` // "": of all
	When  string `json:"when"`
	Means string `json:"means"`
}

// DescribedRoute is one operation.
type DescribedRoute struct {
	Name       string `json:"name"`
	Method     string `json:"method"`
	Path       string `json:"path"`
	Effect     string `json:"effect"`
	Key        string `json:"key"`
	Reference  string `json:"reference"`
	Retention  string `json:"key_retention"`
	AfterDoubt string `json:"after_doubt"`
}

var familyWords = map[string]string{
	"":      "not known",
	FamilyA: "the stored first answer",
	FamilyB: "the current state of the first object",
	FamilyC: "a refusal that points at the first object",
}

// Describe shows a gateway that was validated.
func (g *Gateway) Describe() Description {
	d := Description{
		Name: g.Name, Title: g.Title, Hosts: g.Hosts, BaseURL: g.BaseURL, Key: g.Key.place(), Reference: g.Reference.place(),
		Family: familyWords[g.Family], Retention: brief(g.KeyRetention), Settle: brief(g.SettleAfter), Attempt: brief(g.AttemptTimeout),
		Unknown: g.UnknownStatus, Credential: g.credentialWords(), Webhook: g.Webhook.words(), Notes: g.Notes,
	}
	byRoute := slices.ContainsFunc(g.Routes, func(r *Route) bool { return g.reference(r) != nil })
	if d.Reference == "" && byRoute {
		d.Reference = "see the routes"
	}
	if d.Key == "" && slices.ContainsFunc(g.Routes, func(r *Route) bool { return g.key(r) != nil }) {
		d.Key = "see the routes"
	}
	for _, n := range GuaranteeNames {
		v := g.Guarantee(n.Name)
		d.Guarantees = append(d.Guarantees, DescribedGuarantee{Name: n.Name, Asks: n.Asks, Guarantee: v})
		for _, s := range v.Source {
			if !slices.Contains(d.Sources, s) {
				d.Sources = append(d.Sources, s)
			}
		}
	}
	for _, r := range g.Answers {
		d.Answers = append(d.Answers, DescribedAnswer{When: r.words(), Means: r.means()})
	}
	for _, r := range g.Routes {
		for _, a := range r.Answers {
			d.Answers = append(d.Answers, DescribedAnswer{Route: r.Name, When: a.words(), Means: a.means()})
		}
		row := DescribedRoute{
			Name: r.Name, Method: r.Method, Path: strings.Join(append([]string{r.Path}, r.Also...), " or "), Effect: r.Effect,
			Key: g.key(r).place(), Reference: g.reference(r).place(), AfterDoubt: g.AfterDoubt(r),
		}
		if row.Key != "" {
			row.Retention = brief(first(r.KeyRetention, g.KeyRetention))
		}
		if r.Untagged == UntaggedPass {
			row.AfterDoubt = "passes without a fence: it moves no money"
		}
		d.Routes = append(d.Routes, row)
	}
	return d
}

// brief writes 24h for 24h0m0s; "" for none.
func brief(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" || strings.HasSuffix(s, ".") || !strings.ContainsAny(s[len(s)-1:], "hms") {
		return d.String()
	}
	return s
}

func (k *KeyPlace) place() string {
	switch {
	case k == nil:
		return ""
	case k.Header != "":
		return "header " + k.Header
	}
	return "field " + k.Field
}

func (r *RefPlace) place() string {
	if r == nil {
		return ""
	}
	if r.Owned {
		return r.Field
	}
	return r.Field + ", where the app wrote none"
}

func (g *Gateway) credentialWords() string {
	s := "header " + g.CredentialHeader
	if len(g.AccountHeaders) > 0 {
		s += "; account by " + strings.Join(g.AccountHeaders, ", ")
	}
	if g.Rotating {
		s += "; a token that changes: one account an entry"
	}
	return s
}

func (w *Webhook) words() string {
	switch {
	case w == nil:
		return ""
	case w.Signature == nil:
		return "unsigned: it only has the gateway asked"
	case w.Signature.Scheme == SchemeCertificate:
		return "signed by certificate, header " + w.Signature.Header
	case w.Signature.Header == "":
		return "signed by " + strings.ToUpper("hmac-"+w.Signature.Hash) + " in each event"
	}
	return "signed by " + strings.ToUpper("hmac-"+w.Signature.Hash) + ", header " + w.Signature.Header
}

func (r *AnswerRule) words() string {
	parts := []string{strings.Join(r.Status, ", ")}
	if r.Header != nil {
		parts = append(parts, "`"+r.Header.Name+": "+r.Header.Value+"`")
	}
	for _, c := range r.When {
		switch {
		case c.Absent:
			parts = append(parts, "no `"+c.At+"`")
		case len(c.In) == 0:
			parts = append(parts, "`"+c.At+"`")
		case len(c.In) > 6:
			parts = append(parts, fmt.Sprintf("`%s` one of %d, such as %s", c.At, len(c.In), strings.Join(c.In[:3], ", ")))
		default:
			parts = append(parts, "`"+c.At+"` "+strings.Join(c.In, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func (r *AnswerRule) means() string {
	s := strings.ReplaceAll(r.Outcome, "-", " ")
	switch {
	case r.InUse:
		s += ": the key is in use"
	case r.Transient:
		s += ": the key may be asked again"
	case r.Points != "":
		s += ": points at the first object, which is then read"
	}
	if r.Payment != "" {
		s += ", payment " + r.Payment
	}
	return s
}

//go:embed gateways.md.tmpl
var pageTemplate string

var page = tmpl.Must(tmpl.New("gateways.md").Funcs(tmpl.FuncMap{
	"cell": func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ") },
	"dash": func(s string) string {
		if s == "" {
			return "–"
		}
		return s
	},
}).Parse(pageTemplate))

// WritePage writes the document of all gateways, in Markdown.
func WritePage(w io.Writer, gs []*Gateway) error {
	ds := []Description{}
	for _, g := range gs {
		if err := g.Validate(); err != nil {
			return err
		}
		ds = append(ds, g.Describe())
	}
	return page.Execute(w, ds)
}
