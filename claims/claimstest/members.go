package claimstest

import (
	"reflect"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var memberRules = []rule{
	{"member/what-it-says", memberSays},
	{"member/said-nothing", memberSaidNothing},
	{"member/only-live-processes", membersLive},
	{"member/words-of-an-earlier-token", memberEarlierWords},
	{"member/announce-needs-its-lease", announceNeedsLease},
}

const second = claims.InstancePrefix + "0a2b"

func (k *kit) members() []claims.Member {
	k.Helper()
	list, err := k.Backend.Members(k.Context())
	k.ok("members", err)
	return some(list)
}

func (k *kit) announce(m claims.Member) {
	k.Helper()
	k.ok("announce", k.Backend.Announce(k.Context(), m))
}

func memberSays(k *kit) {
	k.equal("none", k.members(), []claims.Member(nil))
	one := claims.Member{Guard: k.take(instance), Version: "1.2.3+é", Schema: 7, Keys: []string{"k2", "k1", "K1"}}
	two := claims.Member{Guard: k.take(second), Version: "2", Schema: 8, Keys: []string{"k2"}}
	if path := zeroField("Member", reflect.ValueOf(one)); path != "" {
		k.Fatalf("the test's member leaves %s empty", path)
	}
	k.announce(one)
	k.announce(two)
	kept := []claims.Member{two, one} // by scope
	kept[0].Keys, kept[1].Keys = []string{"k2"}, []string{"k2", "k1", "K1"}
	two.Keys[0] = "scribbled"
	k.equal("members", k.members(), kept)
	for _, m := range k.members() {
		for i := range m.Keys {
			m.Keys[i] = "scribbled"
		}
	}
	k.equal("after writing into what was returned", k.members(), kept)
	one.Version, one.Schema, one.Keys = "3", 9, nil
	k.announce(one)
	k.equal("replaced", k.members(), []claims.Member{kept[0], one})
}

func memberSaidNothing(k *kit) {
	g := k.take(instance)
	k.equal("members", k.members(), []claims.Member{{Guard: g}})
}

func membersLive(k *kit) {
	k.take(app)
	k.present(external(7))
	var gone []claims.Guard
	for _, scope := range []string{"released", "finished", "expired"} {
		g := k.take(claims.InstancePrefix + scope)
		k.announce(claims.Member{Guard: g, Version: scope})
		gone = append(gone, g)
	}
	k.ok("release", k.Backend.Release(k.Context(), gone[0]))
	k.ok("finish", k.Backend.Finish(k.Context(), gone[1]))
	k.Advance(ttl - tick)
	k.equal("just before the expiry", k.members(), []claims.Member{{Guard: gone[2], Version: "expired"}})
	k.Advance(tick)
	k.equal("at the expiry", k.members(), []claims.Member(nil))
	next := k.take(instance)
	k.announce(claims.Member{Guard: next, Version: "next"})
	k.equal("another", k.members(), []claims.Member{{Guard: next, Version: "next"}})
}

// memberEarlierWords: a scope that was taken anew is another process, of which nothing is known.
func memberEarlierWords(k *kit) {
	m := claims.Member{Guard: k.take(instance), Version: "old", Schema: 1, Keys: []string{"k1"}}
	k.announce(m)
	k.Advance(ttl)
	next := k.take(instance)
	k.equal("taken anew", k.members(), []claims.Member{{Guard: next}})
	fenced := claims.FencedError{Guard: m.Guard, Status: claims.LeaseSuperseded, Sender: true}
	k.fenced("announce under the earlier one", k.Backend.Announce(k.Context(), m), fenced)
	k.equal("after it", k.members(), []claims.Member{{Guard: next}})
	m.Guard, m.Version = next, "new"
	k.announce(m)
	m.Guard.Token--
	k.fenced("announce under the earlier one", k.Backend.Announce(k.Context(), m), fenced)
	m.Guard = next
	k.equal("what the later one said", k.members(), []claims.Member{m})
}

func announceNeedsLease(k *kit) {
	for status, g := range k.ended() {
		err := k.Backend.Announce(k.Context(), claims.Member{Guard: g, Version: "dead"})
		k.fenced("announce", err, claims.FencedError{Guard: g, Status: status, Sender: true})
		if !claims.Refused(err) {
			k.Errorf("%v does not count as refused", err)
		}
	}
	g := k.take(instance)
	k.equal("members", k.members(), []claims.Member{{Guard: g}})
}
