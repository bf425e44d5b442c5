package postgres

import (
	"slices"
	"testing"
)

func TestConfirming(t *testing.T) {
	for setting, want := range map[string][]string{
		"":                             nil,
		"b":                            {"b"},
		" B ":                          {"b"},
		"b, c":                         nil, // the first that is there
		"*":                            nil,
		`"*"`:                          nil,
		"1 (b)":                        {"b"},
		"FIRST 1 (b, c)":               nil,
		"first 2 (c, b)":               {"b", "c"},
		"ANY 2 (b, c)":                 {"b", "c"},
		"ANY 1 (b, c)":                 nil,
		"any 2(b,c)":                   {"b", "c"},
		"3 (b, c)":                     nil, // never confirmed
		"ANY 2 (b, b)":                 nil,
		"ANY 2 (b, *)":                 nil,
		`ANY 2 ("b, x", "say ""hi""")`: {"b, x", `say "hi"`},
		"any":                          {"any"},
		"2 (first, any)":               {"any", "first"},
	} {
		got, err := confirming(setting)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", setting, got, err, want)
		}
	}
	for _, bad := range []string{"(b)", "2 (b", "2 b)", "x (b)", "ANY (b)", `"b`, "b c", "b,", "2 (b,,c)", "FIRST 2 2 (b, c)"} {
		if got, err := confirming(bad); err == nil && got != nil {
			t.Errorf("%q is taken for %q", bad, got)
		}
	}
}

func TestStandbyName(t *testing.T) {
	for _, c := range []struct{ conninfo, cluster, want string }{
		{"", "b", ""}, // no standby at all
		{"host=a port=1", "", "walreceiver"},
		{"host=a port=1", "B", "b"},
		{"host=a application_name=B port = 1", "c", "b"},
		{`user=x password='it''s' application_name='a b\'c'`, "", ""},
		{`password='it\'s' application_name='a b\'c' host=h`, "", "a b'c"},
		{"postgres://a/db?application_name=b", "b", ""},
	} {
		if got := standbyName(c.conninfo, c.cluster); got != c.want {
			t.Errorf("%q, cluster_name %q: %q, want %q", c.conninfo, c.cluster, got, c.want)
		}
	}
}

func FuzzConfirming(f *testing.F) {
	f.Add(`ANY 2 ("b, x", c)`)
	f.Fuzz(func(t *testing.T, setting string) {
		names, err := confirming(setting)
		if err == nil && (len(names) > 0 && slices.Contains(names, "*") || names != nil && len(names) == 0) {
			t.Errorf("%q is taken for %q", setting, names)
		}
	})
}
