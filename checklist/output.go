package checklist

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printable takes control characters out, so that nothing from a gateway moves a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	w := &errWriter{w: out}
	fmt.Fprintf(w, "%s at %s, %s\n\n", r.Title, r.BaseURL, r.Ended.Format(time.RFC3339))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\tVERDICT\tDOCUMENTED\tASKS")
	for _, row := range r.Rows {
		level := row.Documented.Level
		if row.Agrees != "" && row.Agrees != "as documented" && row.Agrees != "not checked" {
			level += " (" + row.Agrees + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row.Name, row.Verdict, level, row.Asks)
	}
	t.Flush()
	for _, row := range r.Rows {
		fmt.Fprintf(w, "\n%s %s: %s\n", row.Name, row.Verdict, printable(row.Reason))
		for _, x := range row.Tried {
			fmt.Fprintf(w, "    %s\n        → %s\n", printable(x.Sent), printable(x.Got))
		}
		if row.Documented.Says != "" {
			fmt.Fprintf(w, "    Documented (%s): %s\n", row.Documented.Mark, printable(row.Documented.Says))
		}
		fmt.Fprintf(w, "    Means: %s\n", row.Consequence)
	}
	fmt.Fprintf(w, "\nMade at the sandbox (%d):\n", len(r.Created))
	for _, c := range r.Created {
		fmt.Fprintf(w, "    %s\n", printable(c.String()))
	}
	fmt.Fprintf(w, "\nFor the gateway file:\n")
	for line := range strings.Lines(r.Suggestion) {
		fmt.Fprintf(w, "    %s\n", printable(strings.TrimSuffix(line, "\n")))
	}
	if !r.Complete {
		fmt.Fprintf(w, "\nNOT COMPLETE: %s\n", printable(r.Problem))
	}
	return w.err
}

// String says what was made in one line.
func (c Created) String() string {
	what := c.Object
	if c.Perhaps {
		what = "perhaps something (no answer tells)"
	}
	s := fmt.Sprintf("%s: %s, %s", c.Step, what, c.Request)
	if c.Amount != "" {
		s += ", " + c.Amount + " " + c.Currency
	}
	if c.Reference != "" {
		s += ", reference " + c.Reference
	}
	return s
}

// errWriter keeps the first error of many writes.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(b []byte) (int, error) {
	if e.err != nil {
		return len(b), nil
	}
	_, e.err = e.w.Write(b)
	return len(b), nil
}

// WriteJSON writes the whole report. Names of fields are kept from version to version.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// JUnit's form, as CI servers read it.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string      `xml:"name,attr"`
		Tests      int         `xml:"tests,attr"`
		Failures   int         `xml:"failures,attr"`
		Errors     int         `xml:"errors,attr"`
		Skipped    int         `xml:"skipped,attr"`
		Time       float64     `xml:"time,attr"`
		Timestamp  string      `xml:"timestamp,attr"`
		Cases      []junitCase `xml:"testcase"`
		SystemOut  string      `xml:"system-out,omitempty"`
		Properties *junitProps `xml:"properties,omitempty"`
	}
	junitProps struct {
		Property []junitProp `xml:"property"`
	}
	junitProp struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Failure *junitWord `xml:"failure,omitempty"`
		Error   *junitWord `xml:"error,omitempty"`
		Skipped *junitWord `xml:"skipped,omitempty"`
		Out     string     `xml:"system-out,omitempty"`
	}
	junitWord struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes one test case for each row: FAIL is a failure, NOT CHECKED is skipped, PARTIAL passes with its reason as output.
// A run that is not complete has an error.
func (r *Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{
		Name: "fence-sidecar checklist " + r.Gateway, Timestamp: r.Started.Format("2006-01-02T15:04:05"), Time: max(r.Ended.Sub(r.Started).Seconds(), 0),
		Properties: &junitProps{[]junitProp{{"base_url", r.BaseURL}, {"complete", fmt.Sprint(r.Complete)}}},
	}
	for _, row := range r.Rows {
		c := junitCase{Class: "checklist." + r.Gateway, Name: row.Name + " " + row.Asks}
		c.Out = printable(row.Verdict+": "+row.Reason) + "\n" + row.Consequence
		var tried strings.Builder
		for _, x := range row.Tried {
			fmt.Fprintf(&tried, "%s → %s\n", printable(x.Sent), printable(x.Got))
		}
		switch row.Verdict {
		case Fail:
			c.Failure = &junitWord{Message: printable(row.Reason), Type: Fail, Text: tried.String() + row.Consequence}
			s.Failures++
		case NotChecked:
			c.Skipped = &junitWord{Message: printable(row.Reason)}
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	if !r.Complete {
		s.Errors++
		word := &junitWord{Message: printable(r.Problem), Type: "incomplete"}
		s.Cases = append(s.Cases, junitCase{Class: "checklist." + r.Gateway, Name: "complete", Error: word})
	}
	s.Tests = len(s.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(junitSuites{Suites: []junitSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
