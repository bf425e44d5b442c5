package claims

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestEncodeURIComponent(t *testing.T) {
	// What ECMA-262's encodeURIComponent gives.
	for in, want := range map[string]string{
		"":                           "",
		"abcXYZ019":                  "abcXYZ019",
		"-_.!~*'()":                  "-_.!~*'()",
		"a b":                        "a%20b",
		"a+b":                        "a%2Bb",
		"a:b/c?d#e&f=g@h,i;j$k%l":    "a%3Ab%2Fc%3Fd%23e%26f%3Dg%40h%2Ci%3Bj%24k%25l",
		"[]{}|\\^`\"<>":              "%5B%5D%7B%7D%7C%5C%5E%60%22%3C%3E",
		"é":                          "%C3%A9",
		"日本":                         "%E6%97%A5%E6%9C%AC",
		"😀":                          "%F0%9F%98%80",
		"\x00\n\x7f":                 "%00%0A%7F",
		"%3A":                        "%253A",
		InstancePrefix + "x":         "%40instance%3Ax",
		"a\u0301":                    "a%CC%81",
		"\u200b\u00a0":               "%E2%80%8B%C2%A0",
		strings.Repeat("ä", 3) + ".": "%C3%A4%C3%A4%C3%A4.",
	} {
		if got := encodeURIComponent(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestScopeKeysDoNotCollide(t *testing.T) {
	seen := map[string][2]string{}
	parts := []string{"a", "b", "a:b", ":", "a%3Ab", "%", "@instance:x", "A", "a ", "é", "e\u0301"}
	for _, tenant := range parts {
		for _, id := range parts {
			k := ScopeKey(tenant, id)
			if was, ok := seen[k]; ok {
				t.Errorf("%q for %q and %q", k, was, [2]string{tenant, id})
			}
			seen[k] = [2]string{tenant, id}
			gt, gi, err := SplitScope(k)
			if err != nil || gt != tenant || gi != id {
				t.Errorf("%q: %q %q %v", k, gt, gi, err)
			}
			if (Guard{Scope: k}).Instance() {
				t.Errorf("%q looks like an instance's scope", k)
			}
		}
	}
}

func TestParseGuard(t *testing.T) {
	for in, want := range map[string]Guard{
		"shop:run#1":                     {"shop:run", 1},
		"shop:a%2Fb#9223372036854775807": {"shop:a%2Fb", 1<<63 - 1},
	} {
		g, err := ParseGuard(in)
		if err != nil || g != want || g.String() != in {
			t.Errorf("%q: %v %v", in, g, err)
		}
	}
	for _, in := range []string{
		"", "#", "#1", "shop#1", "shop:#1", ":run#1", ":#1", "shop:run", "shop:run#", "shop:run#0", "shop:run#01", "shop:run#+1", "shop:run#-1",
		"shop:run# 1", "shop:run#1 ", " shop:run#1", "shop:run#1#1", "shop:run#0x1", "shop:run#1.0", "shop:run#1e3", "shop:run#١",
		"shop:run#9223372036854775808", "shop:run#99999999999999999999", "shop:run:more#1", "shop:a/b#1", "shop:a%2fb#1", "shop:%61#1", "shop:%#1",
		"shop:%zz#1", "sh op:run#1", "shop:run\n#1", "shop:é#1", "@instance:x#1", "%40instance:x#0", "shop:" + strings.Repeat("a", maxScope) + "#1",
		"shop:%FF#1", "%C3:%A9#1",
	} {
		if g, err := ParseGuard(in); err == nil {
			t.Errorf("%q was read as %v", in, g)
		}
	}
	_, err := ParseGuard(strings.Repeat("x", 100_000))
	if err == nil || len(err.Error()) > 300 {
		t.Error("outside text is repeated at length")
	}
}

func FuzzParseGuard(f *testing.F) {
	for _, s := range []string{"shop:run#1", "a%3Ab:c#18446744073709551615", "@instance:x#1", "shop:%C3%A9#7", "#", "a:b#01", "a:%FF#1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGuard(s)
		if err != nil {
			if g != (Guard{}) {
				t.Errorf("%q: a guard beside an error", s)
			}
			return
		}
		tenant, id, err := SplitScope(g.Scope)
		if err != nil || g.String() != s || g.Instance() || g.Token == 0 || ScopeKey(tenant, id) != g.Scope || !utf8.ValidString(tenant) || !utf8.ValidString(id) {
			t.Errorf("%q: %v %q %q %v", s, g, tenant, id, err)
		}
	})
}

func FuzzScopeKey(f *testing.F) {
	f.Add("shop", "run")
	f.Add("a:b", "%")
	f.Fuzz(func(t *testing.T, tenant, id string) {
		k := ScopeKey(tenant, id)
		gt, gi, err := SplitScope(k)
		fits := tenant != "" && id != "" && len(k) <= maxScope && utf8.ValidString(tenant) && utf8.ValidString(id)
		if fits != (err == nil) || fits && (gt != tenant || gi != id) {
			t.Errorf("%q %q: %q, %q %q %v", tenant, id, k, gt, gi, err)
		}
	})
}

func TestKeyCheck(t *testing.T) {
	for _, k := range []Key{
		{"shop", "charge:order:42"}, {"s", strings.Repeat("x", MaxKey)}, {"日本", "é \u00a0"}, {"a", " trailing "}, {"a", "\ufffd"},
	} {
		if err := k.Check(); err != nil {
			t.Errorf("%q: %v", k, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", MaxKey+1), "\xff", "a\x00", "a\n", "\t", "\x1f", "\x7f", "\u0080", "\u009f", "a\xc3"} {
		if (Key{"shop", bad}).Check() == nil || (Key{bad, "a"}).Check() == nil {
			t.Errorf("%q passed as a key", bad)
		}
	}
}

func TestTrust(t *testing.T) {
	from := Reading{Mono: 5 * time.Second, Boot: time.Hour, Wall: t0.Wall}
	trust := Trust{From: from, For: 10 * time.Second}
	if trust.Left(from) != 10*time.Second {
		t.Error("at once")
	}
	for name, now := range map[string]Reading{
		"all":            {9 * time.Second, time.Hour + 4*time.Second, t0.Wall.Add(4 * time.Second)},
		"monotonic most": {9 * time.Second, time.Hour, t0.Wall},
		"boot most":      {5 * time.Second, time.Hour + 4*time.Second, t0.Wall.Add(-time.Hour)},
		"wall most":      {6 * time.Second, time.Hour + time.Second, t0.Wall.Add(4 * time.Second)},
	} {
		if left := trust.Left(now); left != 6*time.Second {
			t.Errorf("%s: %s left", name, left)
		}
	}
	if left := trust.Left(Reading{Mono: 15 * time.Second, Boot: time.Hour, Wall: t0.Wall}); left != 0 {
		t.Errorf("%s left at its end", left)
	}
}

func TestAge(t *testing.T) {
	since := t0
	for _, tc := range []struct{ store, wall, want time.Duration }{
		{time.Hour, time.Hour, time.Hour}, {time.Hour, 0, time.Hour}, {0, time.Hour, time.Hour}, {-time.Hour, time.Minute, time.Minute},
	} {
		now := Now{Store: t0.Store.Add(tc.store), Wall: t0.Wall.Add(tc.wall)}
		if got := now.Age(since); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

func TestSystemClock(t *testing.T) {
	a := SystemClock()
	b := SystemClock()
	if d := b.Sub(a); d < 0 || b.Mono < a.Mono || b.Boot < a.Boot || a.Boot <= 0 || time.Since(a.Wall) > time.Minute {
		t.Errorf("%+v then %+v", a, b)
	}
	if a.Wall != a.Wall.Round(0) {
		t.Error("the wall reading carries a monotonic part: a step would not be seen")
	}
}

func TestClaimIDText(t *testing.T) {
	id := NewClaimID()
	text, _ := id.MarshalText()
	var back ClaimID
	if err := back.UnmarshalText(text); err != nil || back != id || NewClaimID() == id {
		t.Errorf("%s %s %v", id, back, err)
	}
	for _, s := range []string{"", "00", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		if back.UnmarshalText([]byte(s)) == nil {
			t.Errorf("%q was read", s)
		}
	}
}

func TestClone(t *testing.T) {
	r := Record{
		Answer: &Answer{Header: []Field{{"a", "b"}}, Body: []byte{}}, Facts: Facts{Lookup: map[string]string{"a": "b"}},
		Attempts: []Attempt{{Number: 1}}, Evidence: []Evidence{{Answer: body("x")}}, Review: &Review{Reason: "x"}, Fingerprint: Fingerprint{MAC: []byte{1}},
	}
	c := r.Clone()
	if c.Answer.Body == nil {
		t.Error("an empty body became none")
	}
	c.Answer.Header[0].Value, c.Facts.Lookup["a"], c.Attempts[0].Number, c.Evidence[0].Answer.Body[0], c.Review.Reason, c.Fingerprint.MAC[0] = "z", "z", 9, 'z', "z", 9
	if r.Answer.Header[0].Value != "b" || r.Facts.Lookup["a"] != "b" || r.Attempts[0].Number != 1 || string(r.Evidence[0].Answer.Body) != "x" ||
		r.Review.Reason != "x" || r.Fingerprint.MAC[0] != 1 {
		t.Errorf("the copy shares with its original: %+v", r)
	}
	var none *Answer
	if none.Clone() != nil {
		t.Error("no answer became one")
	}
}

func TestRefused(t *testing.T) {
	for _, err := range []error{ErrLost, ErrSenderLives, ErrHeld, ErrFinished, ErrCallsInFlight, ErrUnreadable, ErrBadScope, &FencedError{}, errors.Join(errors.New("x"), ErrLost)} {
		if !Refused(err) {
			t.Errorf("%v counts as perhaps applied", err)
		}
	}
	for _, err := range []error{nil, errors.New("commit: connection reset"), &Refusal{}} {
		if Refused(err) {
			t.Errorf("%v counts as surely not applied", err)
		}
	}
}
