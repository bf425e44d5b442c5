package gateways

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Problem is what Lint finds in a gateway file.
type Problem struct {
	Line    int    `json:"line"` // 0: of the whole file
	Field   string `json:"field"`
	What    string `json:"what"`
	Remedy  string `json:"remedy"`
	Warning bool   `json:"warning"` // the file can be used as it is
}

func (p Problem) String() string {
	kind := "error"
	if p.Warning {
		kind = "warning"
	}
	return fmt.Sprintf("%s: %s: %s; %s", kind, first(p.Field, "the file"), p.What, p.Remedy)
}

// Lint checks a gateway file: every error that would keep it from being used, and what in it costs safety without being one.
// In order of lines. g is nil where there is an error.
func Lint(data []byte, file string) (g *Gateway, found []Problem) {
	lines := linesOf(data)
	loaded, err := Load(data, file)
	if loaded == nil {
		found = lintErrors(data, file, err)
	} else {
		found = loaded.warnings()
	}
	for i := range found {
		if found[i].Line == 0 {
			found[i].Line = lines.of(found[i].Field)
		}
	}
	slices.SortStableFunc(found, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return loaded, found
}

// lintErrors lists all errors of validation; of a file that cannot be read as a gateway at all, the one that Load found.
func lintErrors(data []byte, file string, err error) []Problem {
	tree, perr := parse(data)
	if perr == nil && len(data) <= maxFile {
		if g, eerr := extended(tree); eerr == nil && fill(data, tree, g) == nil {
			return g.validate().all
		}
	}
	text := strings.TrimPrefix(err.Error(), file+": ")
	p := Problem{What: text, Remedy: "see docs/gateway-files.md"}
	if m := atLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.What = strings.Replace(text, m[0], "", 1)
	}
	if field, rest, ok := strings.Cut(text, ": "); ok && fieldLike.MatchString(field) {
		p.Field = field
		if p.What, p.Remedy, ok = strings.Cut(rest, "; "); !ok {
			p.Remedy = "see docs/gateway-files.md"
		}
	}
	return []Problem{p}
}

var (
	atLine    = regexp.MustCompile(`line ([0-9]+): `)
	fieldLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\[\]-]*$`)
)

// sourceLines finds the lines of a file's fields.
type sourceLines struct{ root ast.Node }

func linesOf(data []byte) sourceLines {
	f, err := parser.ParseBytes(data, 0)
	if err != nil || len(f.Docs) == 0 {
		return sourceLines{}
	}
	return sourceLines{f.Docs[0].Body}
}

// of is the line of the field, or of the nearest one around it that is there; 0: none is.
func (s sourceLines) of(field string) (line int) {
	node := s.root
	for part := range strings.FieldsFuncSeq(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next, at := child(node, part)
		if next == nil {
			return line
		}
		node, line = next, at
	}
	return line
}

// child is a member of a mapping, or an item of a sequence by its index or by its name.
func child(node ast.Node, part string) (ast.Node, int) {
	switch n := bareNode(node).(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			if k, ok := v.Key.(ast.Node); ok && yamlText(k) == part {
				return v.Value, k.GetToken().Position.Line
			}
		}
	case *ast.MappingValueNode:
		if k, ok := n.Key.(ast.Node); ok && yamlText(k) == part {
			return n.Value, k.GetToken().Position.Line
		}
	case *ast.SequenceNode:
		for i, v := range n.Values {
			name, _ := child(v, "name")
			if strconv.Itoa(i) == part || name != nil && yamlText(name) == part {
				return v, lineOf(v)
			}
		}
	}
	return nil, 0
}

// bareNode is a node without its anchor or tag.
func bareNode(n ast.Node) ast.Node {
	switch x := n.(type) {
	case *ast.AnchorNode:
		return bareNode(x.Value)
	case *ast.TagNode:
		return bareNode(x.Value)
	}
	return n
}

func lineOf(n ast.Node) int {
	n = bareNode(n)
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken().Position.Line
	}
	return n.GetToken().Position.Line
}

func yamlText(n ast.Node) string {
	var s string
	if err := yaml.NodeToValue(n, &s); err != nil {
		return n.GetToken().Value
	}
	return s
}

// ErrLint says that a gateway file has errors.
var ErrLint = errors.New("the gateway file has errors")
