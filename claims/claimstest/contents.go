package claimstest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

var contentRules = []rule{
	{"record/every-field-kept", everyFieldKept},
	{"record/keys-are-bytes", keysAreBytes},
	{"record/handed-out-as-copies", handedOutAsCopies},
	{"record/taken-in-as-copies", takenInAsCopies},
	{"record/no-body-and-empty-body", noBodyAndEmptyBody},
	{"record/header-lines", headerLines},
	{"record/header-bytes", headerBytes},
	{"record/answer-replaced", answerReplaced},
	{"record/age", recordAge},
	{"list/newest-first", listNewestFirst},
	{"list/of-tenant-and-states", listOfTenantAndStates},
	{"store/realm-and-keys", realmAndKeys},
	{"store/confirm", confirms},
	{"store/close", closeTwice},
}

func everyFieldKept(k *kit) {
	r := FullRecord(call("c"))
	if path := ZeroField(r); path != "" {
		k.Fatalf("the test's record leaves %s empty", path)
	}
	now := k.get(r.Key, claims.Guard{}).Now
	written := k.put(r)
	want := r.Clone()
	want.Version, want.Updated = r.Version+1, now
	k.equal("as written", written, want)
	k.equal("as stored", k.get(r.Key, claims.Guard{}).Record, want)
	list, err := k.Backend.List(k.Context(), "", nil, 1)
	k.ok("list", err)
	k.equal("as listed", list, []claims.Record{want})
}

func keysAreBytes(k *kit) {
	keys := []claims.Key{
		call("a"), call("A"), call("a "), call(" a"), call("é"), call("e\u0301"), call("ß"), call("ss"), call("a%"), call("a_"),
		{Tenant: "Shop", Call: "a"}, {Tenant: "shop ", Call: "a"}, {Tenant: "a", Call: "bc"}, {Tenant: "ab", Call: "c"},
		{Tenant: "a/b", Call: "c"}, {Tenant: "a", Call: "b/c"}, call("1"), call("01"), call("1.0"), call("İ"), call("i"),
	}
	for i, key := range keys {
		r := record(key, claims.StateSucceeded)
		r.Payment = fmt.Sprint(i)
		s, err := k.swap(claims.Condition{}, claims.Write{Next: r})
		if err != nil {
			k.Errorf("%q is taken for another key: %v, %v", key, err, s.Records)
		}
	}
	for i, key := range keys {
		r := k.get(key, claims.Guard{}).Record
		if r.Key != key || r.Payment != fmt.Sprint(i) {
			k.Errorf("%q reads as %q, written as number %s, want %d", key, r.Key, r.Payment, i)
		}
	}
}

// scribble changes all of a record that a shallow copy would share.
func scribble(r *claims.Record) {
	r.Fingerprint.MAC[0] ^= 0xff
	r.Facts.Lookup["amount"] = "scribbled"
	r.Attempts[0].Cause = "scribbled"
	r.Evidence[0].Source = "scribbled"
	r.Evidence[0].Answer.Body[0] ^= 0xff
	r.Answer.Header[0].Value = "scribbled"
	r.Answer.Body[0] ^= 0xff
	r.Review.Reason = "scribbled"
	r.Undos[0].Part = "scribbled"
	r.Past[0].Facts.Lookup["amount"] = "scribbled"
	r.Past[0].Attempts[0].Cause = "scribbled"
}

func handedOutAsCopies(k *kit) {
	want := k.put(FullRecord(call("c")))
	kept := want.Clone()
	scribble(&want)
	k.equal("after writing into what Swap returned", k.get(call("c"), claims.Guard{}).Record, kept)
	got := k.get(call("c"), claims.Guard{}).Record
	scribble(&got)
	k.equal("after writing into what Get returned", k.get(call("c"), claims.Guard{}).Record, kept)
	s, _ := k.swap(claims.Condition{}, claims.Write{Next: record(call("c"), claims.StateOpen)})
	scribble(&s.Records[0])
	k.equal("after writing into what a lost Swap returned", k.get(call("c"), claims.Guard{}).Record, kept)
	list, err := k.Backend.List(k.Context(), "", nil, 1)
	k.ok("list", err)
	scribble(&list[0])
	k.equal("after writing into what List returned", k.get(call("c"), claims.Guard{}).Record, kept)
}

func takenInAsCopies(k *kit) {
	r := FullRecord(call("c"))
	want := k.put(r)
	want = want.Clone()
	scribble(&r)
	k.equal("after writing into what Swap took", k.get(call("c"), claims.Guard{}).Record, want)
}

func noBodyAndEmptyBody(k *kit) {
	answers := map[string]*claims.Answer{
		"no answer": nil, "no body": {Status: 200}, "empty body": {Status: 204, Body: []byte{}}, "body": {Status: 200, Body: []byte{0}},
	}
	for name, a := range answers {
		r := record(call(name), claims.StateSucceeded)
		r.Answer = a
		r.Evidence = []claims.Evidence{{Answer: a.Clone(), Read: true}}
		k.equal(name+" as written", k.put(r).Answer, a)
		got := k.get(r.Key, claims.Guard{}).Record
		k.equal(name, got.Answer, a)
		k.equal(name+" of evidence", got.Evidence[0].Answer, a)
	}
}

func (k *kit) answerKept(name string, header []claims.Field) {
	k.Helper()
	r := record(call(name), claims.StateSucceeded)
	r.Answer = &claims.Answer{Status: 200, Header: header, Body: []byte("{}")}
	r.Evidence = []claims.Evidence{{Answer: r.Answer.Clone(), Read: true}}
	k.put(r)
	got := k.get(r.Key, claims.Guard{}).Record
	k.equal(name, got.Answer, r.Answer)
	k.equal(name+" of evidence", got.Evidence[0].Answer, r.Answer)
}

func headerLines(k *kit) {
	k.answerKept("lines", []claims.Field{
		{Name: "Set-Cookie", Value: "b=2"}, {Name: "x-Odd-CASE", Value: ""}, {Name: "Set-Cookie", Value: "a=1"}, {Name: "set-cookie", Value: "a=1"},
		{Name: "Content-Type", Value: "application/json; charset=\"utf-8\""}, {Name: "X-Markup", Value: "<&>'\"\\"},
	})
}

// headerBytes: a field value may hold any octet from 0x80 on (RFC 9110 section 5.5, obs-text).
func headerBytes(k *kit) {
	var all strings.Builder
	for c := 0x80; c <= 0xff; c++ {
		all.WriteByte(byte(c))
	}
	k.answerKept("bytes", []claims.Field{{Name: "X-Name", Value: "Ren\xe9"}, {Name: "X-All", Value: all.String()}, {Name: "X-UTF8", Value: "René \ufffd"}})
}

func answerReplaced(k *kit) {
	r := record(call("c"), claims.StateSucceeded)
	r.Evidence = []claims.Evidence{{Answer: &claims.Answer{Status: 500}, Read: true}} // stays beside it
	for _, a := range []*claims.Answer{{Status: 200, Body: []byte("one"), Key: "k1"}, {Status: 201}, nil, {Status: 202, Body: []byte("two")}} {
		r.Answer = a
		r = k.put(r)
		k.equal("answer", k.get(r.Key, claims.Guard{}).Record.Answer, a)
	}
}

// recordAge: a key's age can only look greater by a step of the wall clock, never less.
func recordAge(k *kit) {
	r := k.claim(call("c"), app, claims.Guard{})
	age := func() time.Duration { return k.get(r.Key, claims.Guard{}).Now.Age(r.FirstStarted) }
	k.equal("at once", age(), 0*time.Second)
	k.Advance(time.Hour)
	k.equal("after an hour", age(), time.Hour)
	k.StepWall(-48 * time.Hour)
	k.equal("after a step back", age(), time.Hour)
	k.StepWall(96 * time.Hour)
	k.equal("after a step forward", age(), 49*time.Hour)
}

func listKeys(records []claims.Record) (keys []string) {
	for _, r := range records {
		keys = append(keys, r.Key.String())
	}
	return keys
}

func listNewestFirst(k *kit) {
	for _, name := range []string{"b", "c", "a"} {
		k.put(record(call(name), claims.StateOpen))
		k.Advance(time.Second)
	}
	k.put(k.get(call("b"), claims.Guard{}).Record) // a later write makes no call newer
	list, err := k.Backend.List(k.Context(), "shop", nil, 10)
	k.ok("list", err)
	k.equal("all", listKeys(list), []string{"shop/a", "shop/c", "shop/b"})
	list, err = k.Backend.List(k.Context(), "shop", nil, 2)
	k.ok("list", err)
	k.equal("two", listKeys(list), []string{"shop/a", "shop/c"})
}

func listOfTenantAndStates(k *kit) {
	for _, key := range []claims.Key{call("a"), {Tenant: "Shop", Call: "a"}, {Tenant: "other", Call: "a"}} {
		k.put(record(key, claims.StateOpen))
		k.Advance(time.Second)
	}
	k.put(record(call("b"), claims.StateReview))
	for _, c := range []struct {
		tenant string
		states []claims.State
		want   []string
	}{
		{"", nil, []string{"shop/b", "other/a", "Shop/a", "shop/a"}},
		{"shop", nil, []string{"shop/b", "shop/a"}},
		{"shop", []claims.State{claims.StateOpen}, []string{"shop/a"}},
		{"", []claims.State{claims.StateReview, claims.StateOpen}, []string{"shop/b", "other/a", "Shop/a", "shop/a"}},
		{"shop", []claims.State{claims.StateUnknown}, nil},
	} {
		list, err := k.Backend.List(k.Context(), c.tenant, c.states, 10)
		k.ok("list", err)
		k.equal(fmt.Sprintf("tenant %q, states %q", c.tenant, c.states), listKeys(list), c.want)
	}
}

func realmAndKeys(k *kit) {
	if k.Backend.Realm() == "" {
		k.Errorf("no realm")
	}
	b := k.Backend.Keyset()
	if _, err := keys.Parse(b); err != nil {
		k.Fatalf("what the migration made cannot be read: %v", err)
	}
	kept := string(b)
	clear(b)
	if string(k.Backend.Keyset()) != kept {
		k.Errorf("the key set changed by itself, or by its reader")
	}
}

// confirms: a store that cannot write confirms nothing.
func confirms(k *kit) {
	k.ok("confirm", k.Backend.Confirm(k.Context()))
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	if err := k.Backend.Confirm(ctx); err == nil || claims.Refused(err) {
		k.Errorf("confirm with a cancelled context: %v, want an error that is no refusal", err)
	}
	k.ok("close", k.Backend.Close())
	if err := k.Backend.Confirm(k.Context()); err == nil {
		k.Errorf("a closed store confirms")
	}
}

func closeTwice(k *kit) {
	k.ok("close", k.Backend.Close())
	k.ok("close again", k.Backend.Close())
	_, err := k.swap(claims.Condition{}, claim(call("c"), app, claims.Guard{}))
	if err == nil || claims.Refused(err) {
		k.Errorf("swap on a closed store: %v, want an error that is no refusal", err)
	}
	if _, err := k.Backend.Get(k.Context(), call("c"), claims.Guard{}); err == nil || claims.Refused(err) {
		k.Errorf("get on a closed store: %v, want an error that is no refusal", err)
	}
}
