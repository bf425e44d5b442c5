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

// misfit finds the first field of a configuration file whose value is of another kind than Config's, so that the error can
// name it; "" where there is none.
func misfit(file []byte) (field, value, allowed string) {
	var tree any
	if yaml.Unmarshal(file, &tree) != nil {
		return "", "", ""
	}
	return misfitAt(tree, reflect.TypeFor[Config](), "")
}

func misfitAt(v any, t reflect.Type, path string) (field, value, allowed string) {
	wrong := func(allowed string) (string, string, string) {
		if _, scalar := v.([]any); scalar || reflect.ValueOf(v).Kind() == reflect.Map {
			return path, "…", allowed // may hold a secret
		}
		return path, fmt.Sprint(v), allowed
	}
	switch m, _ := v.(map[string]any); {
	case v == nil:
		return "", "", ""
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(fmt.Sprint(v)); err != nil || reflect.TypeOf(v).Kind() != reflect.String {
			return wrong("a length of time such as 90s, 10m, 24h")
		}
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		if m == nil {
			return wrong("a map of fields")
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if ft := fieldType(t, name); ft != nil {
				if f, v, a := misfitAt(m[name], ft, strings.TrimPrefix(path+"."+name, ".")); f != "" {
					return f, v, a
				}
			}
		}
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return wrong("a list")
		}
		for i, x := range list {
			if f, v, a := misfitAt(x, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); f != "" {
				return f, v, a
			}
		}
	case t.Kind() == reflect.Bool:
		if _, ok := v.(bool); !ok {
			return wrong("true or false")
		}
	case t.Kind() != reflect.String:
		if k := reflect.TypeOf(v).Kind(); k < reflect.Int || k > reflect.Uint64 {
			return wrong("a whole number")
		}
	}
	return "", "", ""
}

// fieldType is the type of what stands under a name; nil where there is no such field.
func fieldType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return t.Field(i).Type
		}
	}
	return nil
}
