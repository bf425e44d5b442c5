package claims

// Outcome is what is known of an attempt or of a call. The zero value is Unknown.
type Outcome uint8

const (
	Unknown     Outcome = iota // perhaps executed
	Succeeded                  // the gateway carried the operation out and said so
	Declined                   // the gateway ran it and said no: final for the revision
	NotExecuted                // proved: nothing was executed
)

func (o Outcome) String() string {
	switch o {
	case Succeeded:
		return "succeeded"
	case Declined:
		return "declined"
	case NotExecuted:
		return "not-executed"
	}
	return "unknown"
}

// Definite reports whether the outcome is proved.
func (o Outcome) Definite() bool { return o == Succeeded || o == Declined || o == NotExecuted }

// State is where a call stands. Stores keep it as text; a text that is not listed here is unreadable, never a default.
type State string

const (
	None           State = ""          // no record
	StatePending   State = "pending"   // an attempt is claimed
	StateUnknown   State = "unknown"   // its sender gave up
	StateSucceeded State = "succeeded" // final
	StateDeclined  State = "declined"  // final for the revision
	StateOpen      State = "open"      // proved not executed: may be sent again
	StateReview    State = "review"    // a person decides
	StateCancelled State = "cancelled" // undone before anything was executed
)

// Readable reports whether this version knows the state.
func (s State) Readable() bool {
	switch s {
	case None, StatePending, StateUnknown, StateSucceeded, StateDeclined, StateOpen, StateReview, StateCancelled:
		return true
	}
	return false
}

// Unsettled reports whether somebody still has to find out what happened.
func (s State) Unsettled() bool { return s == StatePending || s == StateUnknown || s == StateReview }
