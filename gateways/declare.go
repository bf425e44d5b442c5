package gateways

// Small words that declarations are written in.

// guaranteed is one of G1 to G6 as a gateway's page has it.
func guaranteed(level, mark, says string, source ...string) *Guarantee {
	return &Guarantee{Level: level, Mark: mark, Says: says, Source: source}
}

// answered is a line of an answer table.
func answered(outcome, payment string, status []string, conditions ...Condition) *AnswerRule {
	return &AnswerRule{Status: status, When: conditions, Outcome: outcome, Payment: payment}
}

func present(at string) Condition { return Condition{At: at} }

func on(status ...string) []string { return status }

// paid reads from the text at a pointer where the money is.
func paid(at string, pending, done, failed, reversed []string) *Payment {
	p := &Payment{At: at, Values: map[string]string{}}
	for state, words := range map[string][]string{"pending": pending, "done": done, "failed": failed, "reversed": reversed} {
		for _, w := range words {
			p.Values[w] = state
		}
	}
	return p
}

// unkeyed is an operation under which the gateway takes no key: sent once, never again after doubt.
func unkeyed(name, method, path string) *Route {
	return &Route{Name: name, Method: method, Path: path, Keyless: true, NoReference: true}
}

// passing is a request that reads or logs in by an unsafe method: it goes on as it is.
func passing(name, path string, also ...string) *Route {
	r := unkeyed(name, "POST", path)
	r.Also, r.Untagged = also, UntaggedPass
	return r
}

// elsewhere is every other unsafe request: nothing is known of it but for the rules, so that nothing can be proved after doubt.
func elsewhere(rules ...*AnswerRule) *Route {
	r := unkeyed("other", "*", "/**")
	r.Answers = rules
	return r
}

// stateless is a 2xx with something that has an id and no status: what was asked for was made, and it is no payment that could
// have been refused. fault points at what an error has.
func stateless(fault string) *AnswerRule {
	return answered("succeeded", "", on("2xx"), present("/id"), absent("/status"), absent(fault))
}
