package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

type gatewayCmd struct {
	List gatewayListCmd `cmd:"" help:"List the built-in gateways with what each documents of G1 to G6."`
	Show gatewayShowCmd `cmd:"" help:"Show how a gateway is declared: its routes, answers, sources, and what becomes of a doubt."`
	Lint gatewayLintCmd `cmd:"" help:"Check a gateway file: every error and every risk, with line, field and remedy."`
	Docs gatewayDocsCmd `cmd:"" hidden:"" help:"Write docs/gateways.md."`
}

type gatewayListCmd struct {
	JSON bool `name:"json" help:"For programs."`
}

// Run lists the built-in gateways.
func (l gatewayListCmd) Run() error {
	var all []gateways.Description
	for _, g := range gateways.Builtin() {
		if err := g.Validate(); err != nil {
			return err
		}
		all = append(all, g.Describe())
	}
	if l.JSON {
		return printJSON(all)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprint(w, "NAME\tGATEWAY")
	for _, n := range gateways.GuaranteeNames {
		fmt.Fprint(w, "\t", n.Name)
	}
	fmt.Fprintln(w, "\tNEVER RESENT")
	for _, d := range all {
		fmt.Fprintf(w, "%s\t%s", d.Name, d.Title)
		for _, v := range d.Guarantees {
			fmt.Fprint(w, "\t", v.Level)
		}
		fmt.Fprintf(w, "\t%s\n", neverResent(d))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	for _, n := range gateways.GuaranteeNames {
		fmt.Printf("%s  %s\n", n.Name, n.Asks)
	}
	fmt.Println("NEVER RESENT: routes whose call is not sent again after a doubt; a notice or a person decides. See gateway show NAME.")
	return nil
}

func neverResent(d gateways.Description) string {
	n := 0
	for _, r := range d.Routes {
		if strings.Contains(r.AfterDoubt, "never resent") {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(d.Routes))
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

type gatewayShowCmd struct {
	Name string `arg:"" optional:"" help:"A built-in gateway."`
	File string `placeholder:"FILE" help:"A gateway file instead."`
	JSON bool   `name:"json" help:"For programs."`
}

// Run shows one gateway.
func (s gatewayShowCmd) Run() error {
	g, err := gatewayNamed(s.Name, s.File)
	if err != nil {
		return err
	}
	d := g.Describe()
	if s.JSON {
		return printJSON(d)
	}
	return showGateway(os.Stdout, d)
}

// gatewayNamed is a validated gateway: a built-in one, or a file's.
func gatewayNamed(name, file string) (*gateways.Gateway, error) {
	switch {
	case (name == "") == (file == ""):
		return nil, fmt.Errorf("name either a built-in gateway or a file (--file); built in: %s", strings.Join(builtinNames(), ", "))
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return gateways.Load(b, file)
	}
	g, ok := gateways.Declared(name)
	if !ok {
		return nil, fmt.Errorf("%q is no built-in gateway; built in: %s", name, strings.Join(builtinNames(), ", "))
	}
	return g, g.Validate()
}

func builtinNames() (names []string) {
	for _, g := range gateways.Builtin() {
		names = append(names, g.Name)
	}
	return names
}

func showGateway(out io.Writer, d gateways.Description) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range [][2]string{
		{"gateway", d.Title + " (" + d.Name + ")"}, {"address", d.BaseURL}, {"key", orNone(d.Key) + kept(d.Retention)},
		{"our reference", orNone(d.Reference)}, {"a repeat gets", d.Family}, {"settle after", d.Settle}, {"attempt timeout", d.Attempt},
		{"status of a doubt", fmt.Sprint(d.Unknown)}, {"credential", d.Credential}, {"webhook", orNone(d.Webhook)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	fmt.Fprintln(w, "\nGUARANTEE\tDOCUMENTED\tHOW SURE\tWHAT")
	for _, v := range d.Guarantees {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, v.Level, v.Mark, v.Says)
	}
	fmt.Fprintln(w, "\nROUTE\tREQUEST\tEFFECT\tKEY KEPT\tAFTER A DOUBT")
	for _, r := range d.Routes {
		fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\t%s\n", r.Name, r.Method, r.Path, r.Effect, keyKept(r), r.AfterDoubt)
	}
	fmt.Fprintln(w, "\nANSWER\tOF\tMEANS")
	for _, a := range d.Answers {
		fmt.Fprintf(w, "%s\t%s\t%s\n", strings.ReplaceAll(a.When, "`", ""), orAll(a.Route), a.Means)
	}
	fmt.Fprintln(w, "anything else\tall\tunknown")
	if err := w.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"NOTES", d.Notes}, {"SOURCES", d.Sources}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(out, "\n%s\n  %s\n", part.title, strings.Join(part.lines, "\n  "))
		}
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func orAll(s string) string {
	if s == "" {
		return "all"
	}
	return s
}

func kept(retention string) string {
	if retention == "" {
		return ""
	}
	return ", relied on for " + retention
}

func keyKept(r gateways.DescribedRoute) string {
	if r.Key == "" {
		return "no key"
	}
	return orNone(r.Retention)
}

type gatewayLintCmd struct {
	File   string `arg:"" help:"The gateway file."`
	JSON   bool   `name:"json" help:"For programs."`
	Strict bool   `help:"Fail on warnings too."`
}

// Run checks a gateway file.
func (l gatewayLintCmd) Run() error {
	b, err := os.ReadFile(l.File)
	if err != nil {
		return err
	}
	g, found := gateways.Lint(b, l.File)
	if l.JSON {
		if found == nil {
			found = []gateways.Problem{}
		}
		if err := printJSON(found); err != nil {
			return err
		}
	} else {
		for _, p := range found {
			fmt.Printf("%s:%d: %s\n", l.File, max(p.Line, 1), p)
		}
	}
	errs := slices.DeleteFunc(slices.Clone(found), func(p gateways.Problem) bool { return p.Warning })
	switch {
	case g == nil:
		return fmt.Errorf("%s: %w: %d", l.File, gateways.ErrLint, len(errs))
	case l.Strict && len(found) > 0:
		return fmt.Errorf("%s: %d warnings", l.File, len(found))
	case !l.JSON:
		fmt.Printf("%s: gateway %s can be used; %d warnings\n", l.File, g.Name, len(found))
	}
	return nil
}

type gatewayDocsCmd struct {
	Out string `default:"docs/gateways.md" help:"Where to write it."`
}

// Run writes the document of the built-in gateways.
func (d gatewayDocsCmd) Run() error {
	f, err := os.Create(d.Out)
	if err != nil {
		return err
	}
	return errors.Join(gateways.WritePage(f, gateways.Builtin()), f.Close())
}
