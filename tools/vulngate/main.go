// Command vulngate reads govulncheck's JSON stream and decides whether it may pass.
//
// A finding in any module but the standard library fails. A finding in the standard library is printed with the version
// that fixes it and does not fail: it is cured by a newer toolchain, not by a change here.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// message is one object of the stream (golang.org/x/vuln/internal/govulncheck, protocol v1).
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module   string `json:"module"`
			Package  string `json:"package"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

// found is the nearest of all findings of one vulnerability in one module.
type found struct {
	id, module, fixed string
	reach             int // 0 required, 1 imported, 2 called
}

func main() {
	ok, err := gate(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulngate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// gate reports whether nothing but the standard library has findings.
func gate(in io.Reader, out io.Writer) (ok bool, err error) {
	findings, summaries := map[string]found{}, map[string]string{}
	configured := false
	for d := json.NewDecoder(in); ; {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return false, fmt.Errorf("govulncheck's output: %w", err)
		}
		switch {
		case m.Config != nil:
			configured = true
			fmt.Fprintf(out, "govulncheck: %s\n", m.Config.GoVersion)
		case m.OSV != nil:
			summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			at := m.Finding.Trace[0]
			f := found{id: m.Finding.OSV, module: at.Module, fixed: m.Finding.Fixed}
			if at.Package != "" {
				f.reach = 1
			}
			if at.Function != "" {
				f.reach = 2
			}
			key := f.id + " " + f.module
			if old, seen := findings[key]; !seen || f.reach > old.reach {
				findings[key] = f
			}
		}
	}
	if !configured {
		return false, errors.New("govulncheck said nothing: it did not run")
	}
	return report(out, findings, summaries), nil
}

func report(out io.Writer, findings map[string]found, summaries map[string]string) (ok bool) {
	ok = true
	reach := [...]string{"required only", "imported", "called"}
	std := 0
	for _, key := range slices.Sorted(maps.Keys(findings)) {
		f := findings[key]
		fixed := "no fix yet"
		if f.fixed != "" {
			fixed = "fixed in " + strings.TrimPrefix(f.fixed, "v")
		}
		verdict := "FAIL"
		if f.module == "stdlib" {
			std++
			verdict = "note"
		} else {
			ok = false
		}
		fmt.Fprintf(out, "%s %s %s (%s, %s): %s\n", verdict, f.id, f.module, reach[f.reach], fixed, summaries[f.id])
	}
	fmt.Fprintf(out, "govulncheck: %d in the standard library (a newer toolchain cures them), %d in other modules\n", std, len(findings)-std)
	return ok
}
