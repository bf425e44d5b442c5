package keys_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSet(t *testing.T) *keys.Set {
	t.Helper()
	s, err := keys.New()
	ok(t, err)
	return s
}

// added is the set with a key more; promoted the one with the youngest keys as primaries.
func added(t *testing.T, s *keys.Set) *keys.Set {
	t.Helper()
	next, err := s.Add()
	ok(t, err)
	return next
}

func promoted(t *testing.T, s *keys.Set) *keys.Set {
	t.Helper()
	next, err := s.Promote()
	ok(t, err)
	return next
}

func text(t *testing.T, s *keys.Set) []byte {
	t.Helper()
	b, err := s.JSON()
	ok(t, err)
	return b
}

// primaries are the ids of a set's primary keys.
func primaries(s *keys.Set) (ids []string) {
	for _, k := range s.Keys() {
		if k.Primary {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

func TestSetIsKept(t *testing.T) {
	s := added(t, promoted(t, added(t, newSet(t))))
	if n := len(s.Keys()); n != 6 {
		t.Fatalf("%d keys: %v", n, s.Keys())
	}
	b := text(t, s)
	if !bytes.Equal(b, text(t, s)) {
		t.Error("two writings of one set differ")
	}
	back, err := keys.Parse(b)
	ok(t, err)
	if d := cmp.Diff(s.Keys(), back.Keys()); d != "" {
		t.Error(d)
	}
	if !bytes.Equal(b, text(t, back)) {
		t.Error("what was read is written otherwise")
	}
	for _, k := range s.Keys() {
		if !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(k.ID) || k.Use != keys.Fingerprints && k.Use != keys.Answers {
			t.Errorf("%+v", k)
		}
	}
}

// TestRotation: a key is added that only reads, then it becomes the primary; the set that it was made from stays as it is.
func TestRotation(t *testing.T) {
	s := newSet(t)
	first, before := primaries(s), text(t, s)
	if len(first) != 2 || len(s.Pending()) != 0 {
		t.Fatalf("fresh: primaries %v, pending %v", first, s.Pending())
	}
	two := added(t, s)
	if p := two.Pending(); len(p) != 2 || len(two.Keys()) != 4 {
		t.Fatalf("after a key was added: %v pending of %v", p, two.Keys())
	}
	if d := cmp.Diff(first, primaries(two)); d != "" {
		t.Errorf("an added key writes at once: %s", d)
	}
	three := promoted(t, two)
	if d := cmp.Diff(two.Pending(), primaries(three)); d != "" || len(three.Pending()) != 0 || len(three.Keys()) != 4 {
		t.Errorf("after the step: %v, %s", three.Keys(), d)
	}
	if !bytes.Equal(before, text(t, s)) {
		t.Error("the set that was rotated has changed")
	}
}

// secretOf is the first key's material, as it stands in the document.
func secretOf(t *testing.T, b []byte) string {
	t.Helper()
	m := regexp.MustCompile(`"value": "([^"]{20,})"`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no key in %s", b)
	}
	return string(m[1])
}

func TestParseRefuses(t *testing.T) {
	s := newSet(t)
	b := text(t, s)
	ids := primaries(s)
	one, other := string(text(t, added(t, s))), string(text(t, newSet(t)))
	replace := func(old, new string) string { return strings.Replace(string(b), old, new, 1) }
	decimal := regexp.MustCompile(`"primaryKeyId": (\d+)`).FindStringSubmatch(string(b))[1]
	parts := func(doc string) (d struct{ Fingerprints, Answers json.RawMessage }) {
		ok(t, json.Unmarshal([]byte(doc), &d))
		return d
	}
	p := parts(string(b))
	doc := func(fingerprints, answers any) string {
		return fmt.Sprintf(`{"version":1,"fingerprints":%s,"answers":%s}`, fingerprints, answers)
	}
	for name, c := range map[string][2]string{
		"nothing":                {"", "not a JSON object"},
		"no JSON":                {"keys", "not a JSON object"},
		"a list":                 {"[]", "not a JSON object"},
		"cut":                    {string(b[:len(b)-10]), "not JSON"},
		"cut after a name":       {`{"version"`, "not JSON"},
		"two documents":          {string(b) + "{}", "not one JSON object"},
		"another version":        {replace(`"version": 1`, `"version": 2`), "version must be 1"},
		"a text for a version":   {replace(`"version": 1`, `"version": "1"`), "version must be 1"},
		"an unknown member":      {replace(`"version": 1`, `"version": 1, "more": 1`), `member "more" is unknown`},
		"a member twice":         {replace(`"version": 1`, `"version": 1, "version": 1`), `member "version" is unknown, or there twice`},
		"no answers":             {fmt.Sprintf(`{"version":1,"fingerprints":%s}`, p.Fingerprints), "answers is missing"},
		"null":                   {doc("null", p.Answers), "fingerprints: not a keyset of Tink"},
		"a text for a keyset":    {doc(p.Fingerprints, `"x"`), "answers: not a keyset of Tink"},
		"no keys":                {doc(`{"primaryKeyId":1,"key":[]}`, p.Answers), "fingerprints: not a keyset of Tink"},
		"an unknown field":       {replace(`"primaryKeyId"`, `"x": 1, "primaryKeyId"`), "fingerprints: not a keyset of Tink"},
		"no such primary":        {replace(`"primaryKeyId": `+decimal, `"primaryKeyId": 1`), "primary key"},
		"a disabled primary":     {replace("ENABLED", "DISABLED"), "primary key"},
		"a disabled key":         {lastReplaced(one, "ENABLED", "DISABLED"), "is Disabled"},
		"a destroyed key":        {lastReplaced(one, "ENABLED", "DESTROYED"), "is Destroyed"},
		"an unknown status":      {replace("ENABLED", "MARTIAN"), "fingerprints: not a keyset of Tink"},
		"the uses swapped":       {doc(p.Answers, p.Fingerprints), "key " + ids[1] + " is not HMAC-SHA256"},
		"no prefix":              {replace(`"outputPrefixType": "TINK"`, `"outputPrefixType": "RAW"`), "key " + ids[0] + " is not HMAC-SHA256"},
		"a short prefix":         {replace(`"outputPrefixType": "TINK"`, `"outputPrefixType": "CRUNCHY"`), "key " + ids[0] + " is not HMAC-SHA256"},
		"an unknown key":         {replace("google.crypto.tink.HmacKey", "google.crypto.tink.Martian"), "key " + ids[0] + " is not HMAC-SHA256"},
		"a broken key":           {replace(secretOf(t, b), "!"+secretOf(t, b)), "fingerprints: not a keyset of Tink"},
		"a key that is cut":      {replace(secretOf(t, b), secretOf(t, b)[:8]), "fingerprints: not a keyset of Tink"},
		"one id for both uses":   {strings.ReplaceAll(string(b), answerID(b), decimal), "key " + ids[0] + " is there twice"},
		"one key twice in a set": {twice(t, b), "fingerprints: not a keyset of Tink"},
		"another set's half":     {doc(p.Fingerprints, parts(other).Answers), ""},
	} {
		_, err := keys.Parse([]byte(c[0]))
		switch {
		case c[1] == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c[1] != "" && (err == nil || !strings.Contains(err.Error(), c[1]) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want one line with %q", name, err, c[1])
		case err != nil && strings.Contains(err.Error(), secretOf(t, b)[:8]):
			t.Errorf("%s: the error tells a key: %v", name, err)
		}
	}
}

func lastReplaced(s, old, new string) string {
	i := strings.LastIndex(s, old)
	return s[:i] + new + s[i+len(old):]
}

// answerID is the decimal id of the primary answer key.
func answerID(b []byte) string {
	all := regexp.MustCompile(`"primaryKeyId": (\d+)`).FindAllSubmatch(b, 2)
	return string(all[1][1])
}

// twice is a document whose first keyset lists its key twice.
func twice(t *testing.T, b []byte) string {
	t.Helper()
	var d map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	ok(t, dec.Decode(&d))
	set := d["fingerprints"].(map[string]any)
	list := set["key"].([]any)
	set["key"] = append(list, list...)
	out, err := json.Marshal(d)
	ok(t, err)
	return string(out)
}

// FuzzParse: whatever stands in the file, Parse refuses it or gives a set that works.
func FuzzParse(f *testing.F) {
	s, err := keys.New()
	if err != nil {
		f.Fatal(err)
	}
	b, err := s.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"fingerprints":{},"answers":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := keys.Parse(b)
		if err != nil {
			return
		}
		r, err := keys.NewRing(s)
		if err != nil {
			t.Fatalf("parsed, and no ring can be made of it: %v", err)
		}
		if _, err := r.Sign(1, nil); err != nil {
			t.Fatal(err)
		}
	})
}
