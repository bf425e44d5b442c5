package claimstest

import (
	"fmt"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var findRules = []rule{
	{"find/by-reference", findByReference},
	{"find/by-earlier-reference", findByEarlierReference},
	{"find/by-object", findByObject},
	{"find/by-either", findByEither},
	{"find/only-asked-tenant", findOfTenant},
	{"find/only-asked-gateway", findAtGateway},
	{"find/compares-bytes", findComparesBytes},
	{"find/limit-and-order", findLimitAndOrder},
	{"find/unreadable", findUnreadable},
	{"find/lost-swap-leaves-nothing", lostSwapLeavesNothing},
	{"find/of-two-records", findOfTwoRecords},
}

const acquirer = "stripe"

// find looks for the tenant's calls at the gateway that the rules use.
func (k *kit) find(h claims.Handles) []string {
	k.Helper()
	return k.findAt("shop", acquirer, h, 100)
}

func (k *kit) findAt(tenant, gateway string, h claims.Handles, limit int) (names []string) {
	k.Helper()
	keys, err := k.Backend.Find(k.Context(), tenant, gateway, h, limit)
	k.ok("find", err)
	for _, key := range keys {
		if key.Tenant != tenant {
			k.Errorf("of tenant %q: %q", tenant, key)
		}
		names = append(names, key.Call)
	}
	return names
}

func reference(s string) claims.Handles { return claims.Handles{Reference: s} }
func object(s string) claims.Handles    { return claims.Handles{Object: s} }

// handled is a record that the gateway knows by a reference and an object.
func handled(name, ref, obj string) claims.Record {
	r := record(call(name), claims.StateSucceeded)
	r.Facts.Gateway, r.Facts.Reference, r.Object = acquirer, ref, obj
	return r
}

// revised is the record at its next revision.
func revised(r claims.Record, gateway, ref string) claims.Record {
	next := r.Clone()
	next.Past = append(next.Past, claims.Past{Revision: r.Revision, State: claims.StateDeclined, Facts: r.Facts})
	next.Revision, next.Facts.Gateway, next.Facts.Reference, next.Object = r.Revision+1, gateway, ref, ""
	return next
}

var nobody []string

func findByReference(k *kit) {
	k.put(handled("a", "ref-a", ""))
	k.put(handled("b", "ref-b", ""))
	k.put(handled("none", "", ""))
	k.equal("a's", k.find(reference("ref-a")), []string{"a"})
	k.equal("b's", k.find(reference("ref-b")), []string{"b"})
	k.equal("nobody's", k.find(reference("ref-c")), nobody)
	k.equal("a reference as an object", k.find(object("ref-a")), nobody)
	k.equal("of no handle", k.find(claims.Handles{}), nobody)
	r := k.claim(call("c"), app, claims.Guard{})
	r.Facts.Gateway, r.Facts.Reference = acquirer, "ref-c"
	r = k.put(r)
	k.equal("one that is in doubt", k.find(reference("ref-c")), []string{"c"})
	r.State = claims.StateDeclined
	k.put(r)
	k.equal("one that came to rest", k.find(reference("ref-c")), []string{"c"})
}

// findByEarlierReference: a revision may go through another gateway than the one before.
func findByEarlierReference(k *kit) {
	first := k.put(handled("c", "ref-1", ""))
	second := k.put(revised(first, "adyen", "ref-2"))
	k.put(revised(second, acquirer, "ref-3"))
	k.put(handled("other", "ref-3", ""))
	k.equal("the first", k.find(reference("ref-1")), []string{"c"})
	k.equal("the second, elsewhere", k.findAt("shop", "adyen", reference("ref-2"), 10), []string{"c"})
	k.equal("the second, here", k.find(reference("ref-2")), nobody)
	k.equal("the first, elsewhere", k.findAt("shop", "adyen", reference("ref-1"), 10), nobody)
	k.equal("the third, also another's", k.find(reference("ref-3")), []string{"c", "other"})
	same := k.put(handled("same", "ref", "")) // the application's own reference stays
	k.put(revised(same, acquirer, "ref"))
	k.equal("of both revisions", k.find(reference("ref")), []string{"same"})
	bare := k.put(handled("bare", "", ""))
	k.put(revised(bare, acquirer, ""))
	k.equal("of no reference", k.find(claims.Handles{Object: "ob"}), nobody)
	fresh := FullRecord(call("full")) // put back after a loss, with all its revisions
	fresh.Past[0].Facts.Reference = "ref-0"
	k.put(fresh)
	k.equal("of a first write", k.find(reference("ref-0")), []string{"full"})
}

func findByObject(k *kit) {
	r := handled("c", "ref", "")
	r.State = claims.StateUnknown
	r = k.put(r)
	k.equal("not known yet", k.find(object("ch_1")), nobody)
	r.State, r.Object = claims.StateSucceeded, "ch_1"
	r = k.put(r)
	k.equal("told with the answer", k.find(object("ch_1")), []string{"c"})
	k.equal("an object as a reference", k.find(reference("ch_1")), nobody)
	r.Object = "ch_2"
	k.put(r)
	k.equal("corrected", k.find(object("ch_2")), []string{"c"})
	k.equal("before it was", k.find(object("ch_1")), nobody)
}

func findByEither(k *kit) {
	k.put(handled("a", "ref", "ch_a"))
	k.put(handled("b", "", "ch"))
	k.put(handled("both", "ref", "ch"))
	old := k.put(handled("old", "ref", ""))
	k.put(revised(old, acquirer, "ref-2"))
	k.put(handled("z", "other", "ch_z"))
	k.equal("either", k.find(claims.Handles{Reference: "ref", Object: "ch"}), []string{"a", "b", "both", "old"})
}

func findOfTenant(k *kit) {
	for _, tenant := range []string{"shop", "Shop", "other"} {
		r := handled("c", "ref-1", "ch")
		r.Key.Tenant = tenant
		k.put(revised(k.put(r), acquirer, "ref-2"))
		r = handled("of "+tenant, "ref", "ch")
		r.Key.Tenant = tenant
		k.put(r)
	}
	for _, h := range []claims.Handles{reference("ref"), object("ch")} {
		k.equal("shop's", k.findAt("shop", acquirer, h, 10), []string{"of shop"})
		k.equal("other's", k.findAt("other", acquirer, h, 10), []string{"of other"})
		k.equal("nobody's", k.findAt("nobody", acquirer, h, 10), nobody)
	}
	k.equal("shop's earlier one", k.findAt("shop", acquirer, reference("ref-1"), 10), []string{"c"})
	k.equal("nobody's earlier one", k.findAt("nobody", acquirer, reference("ref-1"), 10), nobody)
}

func findAtGateway(k *kit) {
	for _, gateway := range []string{"stripe", "stripe-eu", ""} {
		r := handled("at "+gateway, "ref", "ch")
		r.Facts.Gateway = gateway
		k.put(r)
	}
	for _, h := range []claims.Handles{reference("ref"), object("ch")} {
		k.equal("at one", k.findAt("shop", "stripe-eu", h, 10), []string{"at stripe-eu"})
		k.equal("at another", k.findAt("shop", "stripe", h, 10), []string{"at stripe"})
		k.equal("at an unknown one", k.findAt("shop", "adyen", h, 10), nobody)
	}
}

// alike are texts that some comparison takes for one another.
var alike = []string{
	"a", "A", "a ", " a", "\u00e9", "e\u0301", "e", "\u00df", "ss", "\u0130", "i", "a%", "a_", "01", "1", "1.0", "base64:YQ==",
}

func findComparesBytes(k *kit) {
	for i, s := range alike {
		k.put(handled(fmt.Sprintf("ref %02d", i), s, ""))
		k.put(handled(fmt.Sprintf("obj %02d", i), "", s))
		k.put(revised(k.put(handled(fmt.Sprintf("was %02d", i), "was "+s, "")), acquirer, ""))
		r := handled(fmt.Sprintf("at %02d", i), "ref", "ch")
		r.Facts.Gateway = s
		k.put(r)
	}
	for i, s := range alike {
		k.equal(fmt.Sprintf("reference %q", s), k.find(reference(s)), []string{fmt.Sprintf("ref %02d", i)})
		k.equal(fmt.Sprintf("object %q", s), k.find(object(s)), []string{fmt.Sprintf("obj %02d", i)})
		k.equal(fmt.Sprintf("earlier reference %q", s), k.find(reference("was "+s)), []string{fmt.Sprintf("was %02d", i)})
		k.equal(fmt.Sprintf("reference at %q", s), k.findAt("shop", s, reference("ref"), 10), []string{fmt.Sprintf("at %02d", i)})
	}
}

func findLimitAndOrder(k *kit) {
	for _, name := range []string{"b", "é", "B", "a"} { // "B" < "a" < "b" < "é" as bytes
		k.put(handled(name, "ref", ""))
	}
	k.put(handled("ab", "", "ch"))
	k.put(revised(k.put(handled("aa", "ref", "")), acquirer, "ref-2"))
	h := claims.Handles{Reference: "ref", Object: "ch"}
	all := []string{"B", "a", "aa", "ab", "b", "é"}
	k.equal("all", k.find(h), all)
	for n := range all {
		want := all[:n]
		if n == 0 {
			want = nobody
		}
		k.equal(fmt.Sprintf("at most %d", n), k.findAt("shop", acquirer, h, n), want)
	}
	k.equal("at most -1", k.findAt("shop", acquirer, h, -1), nobody)
}

// findUnreadable: a call that only a newer version can read is known all the same.
func findUnreadable(k *kit) {
	k.put(handled("c", "ref", "ch"))
	k.Spoil(call("c"))
	k.equal("by its reference", k.find(reference("ref")), []string{"c"})
	k.equal("by its object", k.find(object("ch")), []string{"c"})
}

func lostSwapLeavesNothing(k *kit) {
	r := k.put(handled("c", "ref-1", ""))
	next := revised(r, acquirer, "ref-2")
	facts := claims.Facts{Gateway: acquirer, Reference: "ref-9"}
	next.Past = append(next.Past, claims.Past{Revision: 9, State: claims.StateOpen, Facts: facts})
	_, err := k.swap(claims.Condition{}, claims.Write{Version: r.Version + 1, Next: next})
	k.refused("stale", err, claims.ErrLost)
	_, err = k.swap(claims.Condition{Guard: claims.Guard{Scope: app, Token: 1}}, claims.Write{Version: r.Version, Next: next})
	k.fenced("the guard is not live", err, claims.FencedError{Guard: claims.Guard{Scope: app, Token: 1}})
	k.equal("an earlier one", k.find(reference("ref-9")), nobody)
	k.equal("the next one", k.find(reference("ref-2")), nobody)
	k.equal("the present one", k.find(reference("ref-1")), []string{"c"})
}

// findOfTwoRecords: both of a Swap are found by what they bring, or neither.
func findOfTwoRecords(k *kit) {
	target, undo := k.put(handled("z", "ref-z", "")), k.put(handled("a", "ref-a", ""))
	write := func(r claims.Record, version int64) claims.Write {
		next := revised(r, acquirer, "ref-2")
		next.Past[0].Facts.Reference, next.Object = "was-"+r.Key.Call, "ch-"+r.Key.Call
		return claims.Write{Version: version, Next: next}
	}
	found := func(what string, z, a []string) {
		k.Helper()
		k.equal(what+", z by an earlier reference", k.find(reference("was-z")), z)
		k.equal(what+", a by an earlier reference", k.find(reference("was-a")), a)
		k.equal(what+", z by its object", k.find(object("ch-z")), z)
		k.equal(what+", a by its object", k.find(object("ch-a")), a)
	}
	_, err := k.swap(claims.Condition{}, write(target, target.Version), write(undo, undo.Version+1))
	k.refused("the second is stale", err, claims.ErrLost)
	found("lost", nobody, nobody)
	_, err = k.swap(claims.Condition{}, write(target, target.Version), write(undo, undo.Version))
	k.ok("swap", err)
	found("written", []string{"z"}, []string{"a"})
	k.equal("both", k.find(reference("ref-2")), []string{"a", "z"})
}
