package checklist

// consequences say what a verdict means for the guarantees of docs/guarantees.md.
var consequences = map[string]map[string]string{
	"G1": {
		Pass: "P3: a send that freezes past its lease and wakes is still one charge, while the key is kept; after proof " +
			"of absence the call may be sent again.",
		Fail: "A7 does not hold: two requests are two charges. Declare the route keyless, without probe: nothing is ever " +
			"sent again after a doubt (review), and what remains of a frozen sender is not closed by anything.",
	},
	"G2": {
		Pass: "S1, A15: a call in doubt is settled by a read; absence may be proved once settleAfter is over.",
		Partial: "S1: a call in doubt is settled, but later or at more expense. A miss proves nothing before settleAfter; " +
			"with a search, or by the gateway's own id alone, it never does.",
		Fail: "Nothing but a repeat (G1 and G4), a signed notice (G6) or a person settles a call in doubt; without these " +
			"it ends in review.",
	},
	"G3": {
		Pass: "A16: keyRetention may be what is documented; no attempt leaves past it.",
		Partial: "A16: declare keyRetention no longer than both what is promised and what was seen; undeclared there is no " +
			"further attempt after a doubt.",
		Fail: "A16 is broken: a repeat past the real retention is a second charge. Declare keyRetention below what was " +
			"seen, or not at all: then there is no further attempt after a doubt.",
	},
	"G4": {
		Pass: "A repeat is a question (probe): it settles a call in doubt with the gateway's own first answer (family a).",
		Partial: "A repeat tells that the first was carried out, but not with its answer (family b or c), or not after " +
			"every answer: after a 5xx the call is looked up, never repeated first.",
		Fail: "A repeat settles nothing: no probe, no family. Calls in doubt wait for a lookup, a notice or a person.",
	},
	"G5": {
		Pass:    "S4: a wrong use of a key is caught at the gateway too.",
		Partial: "S4 rests on the sidecar's fingerprint; the gateway tells a wrong use from a repeat not always.",
		Fail: "S4 rests on the sidecar's fingerprint alone: a request that goes around it under a used key gets an " +
			"answer for another charge, or a second one. A found object's amount and currency must be compared.",
	},
	"G6": {
		Pass:    "Pending payments are settled without an application's repeat; an undo (P5) can tell what really succeeded.",
		Partial: "Pending payments are settled by one way only; poll as well as listen, and expect it late.",
		Fail:    "A pending payment stays pending here: P5 refuses its undo, and a person must look at the gateway.",
	},
	"egress": {
		Pass: "P3, A6: one send is one request at the gateway.",
		Fail: "P3 is broken outside the sidecar: one send is several requests at the gateway, one charge only while it " +
			"honours the key (G1, G3). Switch retries off for the gateway's hosts, or bypass the hop.",
	},
}

// consequence says what a verdict means.
func consequence(row, verdict string) string {
	if verdict == NotChecked {
		return "Not shown: what is declared is relied on as it stands (A7)."
	}
	if c := consequences[row][verdict]; c != "" {
		return c
	}
	return consequences[row][Fail]
}
