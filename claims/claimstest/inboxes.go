package claimstest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var inboxRules = []rule{
	{"inbox/kept-once", keptOnce},
	{"inbox/names-are-bytes", noticeNamesAreBytes},
	{"inbox/stamped", noticeStamped},
	{"inbox/copies", noticeCopies},
	{"inbox/in-turn", givenInTurn},
	{"inbox/only-asked-tenants", keptOfTenants},
	{"inbox/limit", keptLimit},
	{"inbox/nobody-waits-for-ever", nobodyWaitsForEver},
	{"inbox/drop", noticeDropped},
	{"inbox/sizes", noticeSizes},
	{"inbox/full", inboxFull},
	{"inbox/full-at-once", inboxFullAtOnce},
}

// early is a notice of the tenant that the rules use.
func early(id string) claims.Early {
	return claims.Early{Tenant: "shop", Gateway: acquirer, ID: id, Body: []byte("of " + id)}
}

func (k *kit) keep(e claims.Early) {
	k.Helper()
	k.ok("keep "+e.ID, k.Backend.Keep(k.Context(), e))
}

func (k *kit) kept(limit int, tenants ...string) []claims.Early {
	k.Helper()
	list, err := k.Backend.Kept(k.Context(), tenants, limit)
	k.ok("kept", err)
	return some(list)
}

func (k *kit) drop(e claims.Early) {
	k.Helper()
	k.ok("drop "+e.ID, k.Backend.Drop(k.Context(), e.Tenant, e.Gateway, e.ID))
}

func idsOf(list []claims.Early) (ids []string) {
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

func keptOnce(k *kit) {
	k.equal("none", k.kept(10), []claims.Early(nil))
	now := k.get(call("c"), claims.Guard{}).Now
	k.keep(early("a"))
	again := early("a")
	again.Body = []byte("another")
	k.keep(again)
	want := early("a")
	want.At = now
	k.equal("kept", k.kept(10), []claims.Early{want})
	k.keep(again) // also once it was given
	k.equal("kept and given", k.kept(10), []claims.Early{want})
}

func noticeNamesAreBytes(k *kit) {
	var want []string
	add := func(e claims.Early) {
		k.keep(e)
		want = append(want, fmt.Sprintf("%q", []string{e.Tenant, e.Gateway, e.ID}))
	}
	for _, s := range append(slices.Clone(alike), "\xff", "a\x00") {
		add(claims.Early{Tenant: s, Gateway: "g", ID: "n"})
		add(claims.Early{Tenant: "t", Gateway: s, ID: "n"})
		add(claims.Early{Tenant: "t", Gateway: "g", ID: s})
	}
	for _, n := range [][3]string{{"ab", "c", "d"}, {"a", "bc", "d"}, {"a", "b", "cd"}} {
		add(claims.Early{Tenant: n[0], Gateway: n[1], ID: n[2]})
	}
	var got []string
	for _, e := range k.kept(1000) {
		got = append(got, fmt.Sprintf("%q", []string{e.Tenant, e.Gateway, e.ID}))
	}
	slices.Sort(got)
	slices.Sort(want)
	k.equal("kept", got, want)
}

// noticeStamped: the time is the store's, of when it came first.
func noticeStamped(k *kit) {
	k.Advance(time.Hour)
	k.StepWall(-time.Minute)
	want := early("a")
	want.At = k.get(call("c"), claims.Guard{}).Now
	given := early("a")
	given.At = claims.Now{Store: start, Wall: start}
	k.keep(given)
	k.Advance(time.Second)
	k.keep(given)
	k.equal("kept", k.kept(10), []claims.Early{want})
	k.Advance(time.Second)
	k.equal("given again", k.kept(10), []claims.Early{want})
}

func noticeCopies(k *kit) {
	e := early("a")
	k.keep(e)
	clear(e.Body)
	list := k.kept(10)
	k.equal("after writing into what Keep took", string(list[0].Body), "of a")
	clear(list[0].Body)
	k.equal("after writing into what Kept returned", string(k.kept(10)[0].Body), "of a")
}

// givenInTurn: also where the clock stands still, or was set back.
func givenInTurn(k *kit) {
	for _, id := range []string{"c", "a", "b"} {
		k.keep(early(id))
		k.Advance(time.Second)
	}
	k.equal("the oldest", idsOf(k.kept(2)), []string{"c", "a"})
	k.equal("who waited, then the oldest", idsOf(k.kept(2)), []string{"b", "c"})
	k.keep(early("new"))
	k.equal("a new one", idsOf(k.kept(1)), []string{"new"})
	k.StepWall(-time.Hour)
	k.equal("who waited longest", idsOf(k.kept(1)), []string{"a"})
	k.equal("and so on", idsOf(k.kept(2)), []string{"c", "b"})
	k.equal("and again", idsOf(k.kept(4)), []string{"new", "a", "c", "b"})
}

func keptOfTenants(k *kit) {
	k.keep(early("ours"))
	for _, tenant := range []string{"other", "Shop"} {
		e := early("of " + tenant)
		e.Tenant = tenant
		k.keep(e)
		k.Advance(time.Second)
	}
	k.equal("of nobody", idsOf(k.kept(10, "nobody")), nobody)
	for range 2 {
		k.equal("of one tenant", idsOf(k.kept(10, "shop")), []string{"ours"})
	}
	k.equal("of two, the next in turn", idsOf(k.kept(1, "nobody", "shop", "other")), []string{"of other"})
	k.equal("everybody's: who was not given yet is first", idsOf(k.kept(10)), []string{"of Shop", "ours", "of other"})
}

func keptLimit(k *kit) {
	for _, id := range []string{"a", "b", "c"} {
		k.keep(early(id))
		k.Advance(time.Second)
	}
	k.equal("none", idsOf(k.kept(0)), nobody)
	k.equal("less than none", idsOf(k.kept(-1)), nobody)
	k.equal("first", idsOf(k.kept(2)), []string{"a", "b"})
	k.equal("what was over the limit is next", idsOf(k.kept(1)), []string{"c"})
}

// nobodyWaitsForEver: however many ask at once.
func nobodyWaitsForEver(k *kit) {
	const notices, askers, times, limit = 12, 4, 6, 3
	for i := range notices {
		k.keep(early(fmt.Sprintf("%02d", i)))
	}
	var mu sync.Mutex
	given := map[string]int{}
	race(askers, func(int) {
		for range times {
			list, err := k.Backend.Kept(k.Context(), nil, limit)
			if err != nil {
				k.Errorf("kept: %v", err)
			}
			mu.Lock()
			for _, e := range list {
				given[e.ID]++
			}
			mu.Unlock()
		}
	})
	for i := range notices {
		if id := fmt.Sprintf("%02d", i); given[id] < 2 { // a fair share is 6
			k.Errorf("%s was given %d times: %v", id, given[id], given)
		}
	}
}

func noticeDropped(k *kit) {
	all := []claims.Early{early("a"), early("a"), early("a"), early("b")}
	all[1].Tenant, all[2].Gateway = "other", "adyen"
	for _, e := range all {
		k.keep(e)
		k.Advance(time.Second)
	}
	k.drop(all[0])
	k.drop(all[0])
	k.drop(early("never kept"))
	want := []string{"other/stripe/a", "shop/adyen/a", "shop/stripe/b"}
	names := func() (names []string) {
		for _, e := range k.kept(10) {
			names = append(names, strings.Join([]string{e.Tenant, e.Gateway, e.ID}, "/"))
		}
		slices.Sort(names)
		return names
	}
	k.equal("the others", names(), want)
	k.keep(all[0])
	k.equal("kept anew", names(), slices.Insert(want, 2, "shop/stripe/a"))
}

func noticeSizes(k *kit) {
	long := func(n int) string { return strings.Repeat("n", n) }
	for what, e := range map[string]claims.Early{
		"no id":         {Tenant: "shop", Gateway: acquirer},
		"a long id":     {Tenant: "shop", Gateway: acquirer, ID: long(claims.MaxKey + 1)},
		"a long body":   {Tenant: "shop", Gateway: acquirer, ID: "a", Body: make([]byte, claims.MaxEarlyBody+1)},
		"no tenant":     {Gateway: acquirer, ID: "a"},
		"a long tenant": {Tenant: long(claims.MaxKey + 1), Gateway: acquirer, ID: "a"},
		"no gateway":    {Tenant: "shop", ID: "a"},
	} {
		if err := k.Backend.Keep(k.Context(), e); err == nil || errors.Is(err, claims.ErrInboxFull) {
			k.Errorf("%s: %v, want an error", what, err)
		}
	}
	k.equal("written", k.kept(10), []claims.Early(nil))
	most := long(claims.MaxKey)
	e := claims.Early{Tenant: most, Gateway: most, ID: most, Body: make([]byte, claims.MaxEarlyBody)}
	for i := range e.Body {
		e.Body[i] = byte(i)
	}
	e.At = k.get(call("c"), claims.Guard{}).Now
	k.keep(e)
	k.equal("the largest", k.kept(10), []claims.Early{e})
	k.drop(e)
	e = early("no body")
	e.Body = nil
	k.keep(e)
	if list := k.kept(10); len(list) != 1 || len(list[0].Body) > 0 {
		k.Errorf("one without a body: %+v", list)
	}
}

func inboxFull(k *kit) {
	first := early("first")
	k.keep(first)
	k.Fill("shop", claims.MaxEarly-2)
	k.keep(early("last"))
	k.refused("one too many", k.Backend.Keep(k.Context(), early("more")), claims.ErrInboxFull)
	k.keep(first) // is kept already
	other := early("more")
	other.Tenant = "other"
	k.keep(other)
	k.equal("another's", idsOf(k.kept(10, "other")), []string{"more"})
	k.drop(first)
	k.keep(early("more"))
	k.refused("one too many again", k.Backend.Keep(k.Context(), first), claims.ErrInboxFull)
}

func inboxFullAtOnce(k *kit) {
	k.Fill("shop", claims.MaxEarly-1)
	for round := range 5 {
		var kept atomic.Int64
		race(racers, func(i int) {
			switch err := k.Backend.Keep(k.Context(), early(fmt.Sprint(i))); {
			case err == nil:
				kept.Add(1)
			case !errors.Is(err, claims.ErrInboxFull):
				k.Errorf("keep: %v", err)
			}
		})
		if kept.Load() != 1 {
			k.Fatalf("round %d: %d were kept where there was room for one", round, kept.Load())
		}
		for i := range racers {
			k.drop(early(fmt.Sprint(i)))
		}
	}
}
