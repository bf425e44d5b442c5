package gateways

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds a gateway file, in bytes.
const maxFile = 1 << 20

// Load reads one gateway from YAML, strictly, and validates it. The error is one line: file, field, value, what is allowed.
func Load(data []byte, file string) (*Gateway, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: has %d bytes, at most %d are allowed", file, len(data), maxFile)
	}
	tree, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	g, err := extended(tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := fill(data, tree, g); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := g.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return g, nil
}

// Decode reads YAML strictly into the struct that v points to; what the text does not say stays as it is. The error is one
// line: field, value, what is allowed. A value in a place where a secret may stand is not repeated.
func Decode(data []byte, v any) error {
	tree, err := parse(data)
	if err != nil || tree == nil { // nothing is said
		return err
	}
	return fill(data, tree, v)
}

func parse(data []byte) (tree any, err error) {
	if f, err := parser.ParseBytes(data, 0); err == nil && len(f.Docs) > 1 {
		return nil, errors.New("it has several YAML documents (---): one is allowed")
	}
	if err := yaml.UnmarshalWithOptions(data, &tree); err != nil {
		return nil, fmt.Errorf("not YAML: %s", oneLine(err))
	}
	return tree, nil
}

func fill(data []byte, tree, v any) error {
	if err := check(tree, reflect.TypeOf(v).Elem(), ""); err != nil {
		return err
	}
	if err := yaml.UnmarshalWithOptions(data, v, yaml.Strict()); err != nil {
		return errors.New(oneLine(err))
	}
	return nil
}

// extended is what a file starts from: a built-in gateway, or nothing.
func extended(tree any) (*Gateway, error) {
	m, _ := tree.(map[string]any)
	name, ok := m["extends"]
	if !ok {
		return &Gateway{}, nil
	}
	var names []string
	for _, g := range Builtin() {
		names = append(names, g.Name)
	}
	if s, isText := name.(string); isText {
		if g, ok := Declared(s); ok {
			return g, nil
		}
	}
	return nil, wrong("extends", name, strings.Join(names, ", "))
}

// oneLine takes the message out of a YAML error, without the source excerpt.
func oneLine(err error) string {
	var y yaml.Error
	if errors.As(err, &y) {
		if t := y.GetToken(); t != nil && t.Position != nil {
			return fmt.Sprintf("line %d: %s", t.Position.Line, unquoted(flat(y.GetMessage())))
		}
		return unquoted(flat(y.GetMessage()))
	}
	return unquoted(flat(err.Error()))
}

// shownText are parts of the text that a parser's message repeats: a secret may stand there by mistake.
var shownText = regexp.MustCompile(`"[^"]*"|'[^']*'`)

func unquoted(s string) string { return shownText.ReplaceAllString(s, "…") }

func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

// check compares a YAML tree with a Go type, so that an error can name the field by its path and say what it takes.
func check(v any, t reflect.Type, path string) error {
	if v == nil {
		return wrong(path, v, "a value")
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		s, ok := v.(string)
		if _, err := time.ParseDuration(s); !ok || err != nil {
			return wrong(path, v, "a length of time such as 90s, 10m, 24h")
		}
		return nil
	case t.Kind() == reflect.Pointer:
		return check(v, t.Elem(), path)
	case t.Kind() == reflect.Struct:
		return checkStruct(v, t, path)
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return wrong(path, v, "a list")
		}
		for i, x := range list {
			if err := check(x, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() == reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong(path, v, "a map of names")
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if err := check(m[k], t.Elem(), path+"."+plainName(k)); err != nil {
				return err
			}
		}
		return nil
	}
	return checkScalar(v, t, path)
}

func checkScalar(v any, t reflect.Type, path string) error {
	kind := reflect.TypeOf(v).Kind()
	number := kind >= reflect.Int && kind <= reflect.Uint64
	switch {
	case t.Kind() == reflect.String && kind != reflect.String:
		return wrong(path, v, "a text (in quotes)")
	case t.Kind() == reflect.Bool && kind != reflect.Bool:
		return wrong(path, v, "true or false")
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 && !number:
		return wrong(path, v, "a whole number")
	}
	return nil
}

func checkStruct(v any, t reflect.Type, path string) error {
	m, ok := v.(map[string]any)
	if !ok {
		return wrong(path, v, "a map of fields")
	}
	fields := map[string]reflect.Type{}
	for field := range t.Fields() {
		if name := field.Tag.Get("yaml"); name != "" && name != "-" {
			fields[name] = field.Type
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		at := strings.TrimPrefix(path+"."+plainName(k), ".")
		if fields[k] == nil && secretPath.MatchString(path) && !fieldWord.MatchString(k) { // it may be the secret itself
			return fmt.Errorf("%s: has a field that does not exist; allowed here: %s", path, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if fields[k] == nil {
			return fmt.Errorf("%s: no such field; allowed here: %s", at, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := check(m[k], fields[k], at); err != nil {
			return err
		}
	}
	return nil
}

// fieldWord is what names of fields are made of.
var fieldWord = regexp.MustCompile(`^[A-Za-z]{1,30}$`)

// plainName is a name of the file for an error: clipped, and quoted where it is not plain.
func plainName(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// secretPath is where a secret may stand by mistake: there no error shows the value.
var secretPath = regexp.MustCompile(`(?i)(credential|clientKey|lookupHeaders|lookupScheme|tokenPath|tokenURL|oauth2|secrets?\b|\btoken\b|^keys\b|(^|\.)error\.header)`)

func wrong(path string, v any, allowed string) error {
	s := flat(fmt.Sprint(v))
	switch {
	case v == nil:
		s = ""
	case secretPath.MatchString(path):
		s = "…"
	case strings.Contains(s, "://") && strings.Contains(s, "@"):
		scheme, _, _ := strings.Cut(s, "://")
		s = scheme + "://…" + s[strings.LastIndex(s, "@"):] // a URL's user may be a secret
	}
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return fmt.Errorf("%s: %q is not allowed; allowed: %s", first(strings.TrimPrefix(path, "."), "the file"), s, allowed)
}
