package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// misfit finds the first field of a configuration file that Config does not have, or whose value is of another kind, and
// says so in one line; "" where there is none.
func misfit(file []byte) string {
	var tree any
	if yaml.Unmarshal(file, &tree) != nil {
		return ""
	}
	return misfitAt(tree, reflect.TypeFor[Config](), "")
}

func misfitAt(v any, t reflect.Type, path string) string {
	wrong := func(allowed string) string {
		return fmt.Sprintf("%s: %q is not allowed: %s", path, fmt.Sprint(v), allowed)
	}
	switch kind := reflect.ValueOf(v).Kind(); {
	case v == nil:
		return ""
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(fmt.Sprint(v)); err != nil || kind != reflect.String {
			return wrong("a length of time such as 90s, 10m, 24h")
		}
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return misfitIn(v, t, path)
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return fmt.Sprintf("%s: want a list", path)
		}
		for i, x := range list {
			if bad := misfitAt(x, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); bad != "" {
				return bad
			}
		}
	case kind == reflect.Map, kind == reflect.Slice:
		return fmt.Sprintf("%s: want one value", path)
	case t.Kind() == reflect.Bool && kind != reflect.Bool:
		return wrong("true or false")
	case t.Kind() != reflect.String && t.Kind() != reflect.Bool && (kind < reflect.Int || kind > reflect.Uint64):
		return wrong("a whole number")
	}
	return ""
}

// misfitIn looks into a map of fields. A value in a wrong place is not repeated: it may be a secret.
func misfitIn(v any, t reflect.Type, path string) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s: want a map of fields", path)
	}
	fields := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			if name := field.Tag.Get("yaml"); name != "" {
				fields[name] = field.Type
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		at, ft := strings.TrimPrefix(path+"."+name, "."), fields[name]
		if t.Kind() == reflect.Map {
			ft = t.Elem()
		}
		if ft == nil {
			return fmt.Sprintf("%s: no such field; allowed here: %s", at, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if bad := misfitAt(m[name], ft, at); bad != "" {
			return bad
		}
	}
	return ""
}
