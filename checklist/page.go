package checklist

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

// page is self-contained: no script, no style sheet, picture or font from elsewhere.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"class": func(verdict string) string { return strings.ToLower(strings.ReplaceAll(verdict, " ", "-")) },
	// web is a source that may be a link; any other is shown as text.
	"web": func(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") },
}).Parse(pageText))

// WriteHTML writes the report as one page.
func (r *Report) WriteHTML(w io.Writer) error { return page.Execute(w, r) }
