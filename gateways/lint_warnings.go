package gateways

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// warnings are what a valid gateway leaves open, each with what it leads to.
func (g *Gateway) warnings() (found []Problem) {
	warn := func(field, what, remedy string) {
		found = append(found, Problem{Field: field, What: what, Remedy: remedy, Warning: true})
	}
	if why := g.Loosened(); why != "" {
		field, what, _ := strings.Cut(why, ": ")
		warn(field, what+": run refuses it", "take the built-in's value, or less")
	}
	if len(g.Error.Members) == 0 {
		warn("error", "no error shape is declared: an SDK may take the sidecar's refusals for successes", "declare error.members as the gateway writes its own errors")
	}
	for _, n := range GuaranteeNames {
		if g.Guarantees[n.Name] == nil {
			warn("guarantees."+n.Name, "nothing is said of "+n.Asks, "say what the gateway documents, with its page, or run the checklist against its sandbox")
		}
	}
	g.warnAnswers("answers", g.Answers, warn)
	for _, r := range g.Routes {
		g.warnRoute(r, warn)
	}
	if g.Webhook != nil && g.Webhook.Signature == nil && slices.ContainsFunc(g.Webhook.Cases, func(c NoticeCase) bool { return c.Outcome != "" }) {
		warn("webhook.cases", "notices are not signed, so that no outcome of theirs counts", "declare webhook.signature, or leave the outcomes out")
	}
	return found
}

type warner func(field, what, remedy string)

func (g *Gateway) warnAnswers(path string, rules []*AnswerRule, warn warner) {
	for i, r := range rules {
		path := fmt.Sprintf("%s[%d]", path, i)
		for _, s := range r.Status {
			switch {
			case r.outcome == claims.Succeeded && len(r.When) == 0:
				warn(path, "every "+s+" counts as a success, whatever its body says", "add a condition on the body (when), such as its id or state")
			case r.outcome != claims.Declined && r.outcome != claims.NotExecuted:
			case s[0] == '5' || s == "408" || s == "409" || s == "425":
				warn(path, "status "+s+" counts as "+r.Outcome+": such answers also come after the call was carried out", "leave it out, unless the gateway's documentation promises it")
			case s[0] == '4' && len(r.When) == 0 && s != "401":
				warn(path, "every "+s+" counts as "+r.Outcome+", also one that a proxy on the way made", "add a condition on the gateway's own error body (when)")
			}
		}
	}
}

// undoing are words of paths that take money back.
var undoing = regexp.MustCompile(`(?i)refund|void|cancel|revers`)

func (g *Gateway) warnRoute(r *Route, warn warner) {
	path := "routes." + r.Name
	g.warnAnswers(path+".answers", r.Answers, warn)
	if r.Effect == EffectMove && undoing.MatchString(r.Path) {
		warn(path+".effect", "the path looks like a refund, void or cancellation, and the effect is move: a zombie could compensate by it", "set effect: undo")
	}
	if r.Untagged == UntaggedPass {
		warn(path+".untagged", "requests without a call key are sent without a fence", "keep it for requests that move no money")
	}
	if !r.moves() || r.catchAll() {
		return
	}
	switch key := g.key(r); {
	case key == nil:
		warn(path+".key", "the gateway takes no key here: after a doubt nothing is ever resent", "declare key, if the gateway has one")
	case first(r.KeyRetention, g.KeyRetention) == 0:
		warn(path+".keyRetention", "how long keys are kept is not declared: after a doubt nothing is resent", "declare keyRetention, at most the documented minimum")
	}
	switch rules := g.LookupRules(r.Name); {
	case rules.NoWay:
		warn(path+".lookup", "neither a lookup nor a probe: a doubt is a person's as soon as it has settled", "declare lookup, or probe where a repeat surely replays")
	case r.Lookup != nil && !rules.Proves && !r.Probe:
		warn(path+".lookup", "the lookup finds, but proves no absence: a call that never arrived is a person's after 24 h", "set proves where lists are consistent with writes, or probe where a repeat surely replays")
	}
	if ref := g.reference(r); r.Lookup != nil && ref != nil && !ref.Owned && !ref.Unique {
		warn(path+".reference", "where the app writes a reference of its own, a lookup that finds it cannot tell", "set owned, or unique where the app's value names one call only")
	}
}

// moves reports whether a route is about money: anything but what passes without a fence.
func (r *Route) moves() bool { return r.Untagged != UntaggedPass }

// AfterDoubt says what becomes of a route's call whose outcome is not known, for people.
func (g *Gateway) AfterDoubt(r *Route) string {
	rules, retention := g.LookupRules(r.Name), first(r.KeyRetention, g.KeyRetention)
	var parts []string
	if r.Lookup != nil {
		how := map[string]string{KindList: "listed", KindGet: "read", KindSearch: "searched for", KindObject: "read once its id is known"}[r.Lookup.Kind]
		parts = append(parts, how)
		if rules.Proves && rules.Keyed {
			parts = append(parts, fmt.Sprintf("%d misses prove absence", rules.Misses))
		} else {
			parts = append(parts, "a miss proves nothing")
		}
	}
	if r.Probe {
		parts = append(parts, "the app's repeat asks within "+brief(retention))
	}
	switch {
	case rules.NoWay:
		return "never resent; a notice or a person decides"
	case r.Probe || rules.Proves && rules.Keyed && retention > 0:
		return strings.Join(parts, "; ")
	}
	return strings.Join(append(parts, "never resent; then a person decides"), "; ")
}
