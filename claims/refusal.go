package claims

import "time"

// Reason is the stable name of a refusal; it ends the problem type's URI and the gateway-shaped error code.
type Reason string

const (
	BadRequest       Reason = "bad-request"
	NoKey            Reason = "no-call-key"
	Untagged         Reason = "untagged"
	WrongTenant      Reason = "tenant-not-served"
	UnknownGateway   Reason = "unknown-gateway"
	KeyConflict      Reason = "key-conflict"
	Fenced           Reason = "fenced"
	SupersededRev    Reason = "superseded-revision"
	RevisionBlocked  Reason = "revision-blocked"
	AlreadyUndone    Reason = "already-undone"
	NothingToUndo    Reason = "nothing-to-undo"
	AttemptsUsed     Reason = "attempts-used"
	AnswerGone       Reason = "answer-gone"
	ScopeFinished    Reason = "scope-finished"
	CallCancelled    Reason = "call-cancelled"
	RetentionPassed  Reason = "retention-passed"
	InFlight         Reason = "in-flight"
	NeedsReview      Reason = "needs-review"
	TooLarge         Reason = "body-too-large"
	StoreUnavailable Reason = "store-unavailable"
	LeaseLost        Reason = "instance-lease-lost"
	Draining         Reason = "draining"
	BreakerOpen      Reason = "breaker-open"
	Quarantine       Reason = "quarantine"
	Unreadable       Reason = "unreadable"
	NotSent          Reason = "not-sent"
	InDoubt          Reason = "in-doubt"

	ScopeHeld     Reason = "held"
	CallsInFlight Reason = "calls-in-flight"
	StalePing     Reason = "stale-ping"
	UnknownWatch  Reason = "unknown-watch"

	Unauthorized   Reason = "unauthorized"
	NoOperators    Reason = "no-operators"
	NoSuchCall     Reason = "no-such-call"
	RecordChanged  Reason = "record-changed"
	NotResolvable  Reason = "not-resolvable"
	NoticeEarly    Reason = "notice-early"
	NoticeConflict Reason = "notice-conflict"
	NoticeRefused  Reason = "notice-refused"
)

// Reasons lists every refusal of a call, for the tests that demand a status and an error shape for each.
var Reasons = []Reason{
	BadRequest, NoKey, Untagged, WrongTenant, UnknownGateway, KeyConflict, Fenced, SupersededRev, RevisionBlocked,
	AlreadyUndone, NothingToUndo, AttemptsUsed, AnswerGone, ScopeFinished, CallCancelled, RetentionPassed, InFlight,
	NeedsReview, TooLarge, StoreUnavailable, LeaseLost, Draining, BreakerOpen, Quarantine, Unreadable, NotSent, InDoubt,
}

// LeaseReasons lists the refusals that only the lease API makes; it makes some of Reasons too.
var LeaseReasons = []Reason{ScopeHeld, CallsInFlight, StalePing, UnknownWatch}

// CallsReasons lists the refusals that only the calls API makes; it makes some of Reasons too.
var CallsReasons = []Reason{
	Unauthorized, NoOperators, NoSuchCall, RecordChanged, NotResolvable, NoticeEarly, NoticeConflict, NoticeRefused,
}

// Refusal is the one error that says why a request got no gateway answer.
type Refusal struct {
	Reason     Reason
	Detail     string        // for people; no body, key material or card data
	RetryAfter time.Duration // 0: none
	// Outcome is what may be said of the call; Unknown wherever the record was not read under the request's own fence.
	Outcome Outcome
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Detail }
