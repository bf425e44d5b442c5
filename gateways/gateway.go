package gateways

import (
	"context"
	"regexp"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Duration is a length of time; in YAML a text such as 90s, 10m, 24h.
type Duration = time.Duration

// Words that a gateway's fields take.
const (
	TokensRequired = "required"
	TokensOptional = "optional"
	TokensNone     = "none"

	UntaggedRefuse = "refuse"
	UntaggedPass   = "pass"

	// Replay families: what a repeat of a used key gets.
	FamilyA = "a" // the stored first answer
	FamilyB = "b" // the current state of the first object
	FamilyC = "c" // a refusal that points at the first object

	EffectMove = "move" // moves money
	EffectUndo = "undo" // refund, void, cancel

	CredentialsApp     = "app"     // the app's own credential goes on to the gateway
	CredentialsSidecar = "sidecar" // the account's replaces it
)

// Gateway is one payment gateway. Load and Validate fill the defaults that the comments give.
type Gateway struct {
	// Extends starts a file from a built-in gateway: what the file has replaces the built-in's, whole lists at a time.
	Extends string `yaml:"extends"`
	// Name is how configuration, records and paths (/<name>/…) call it: lower-case letters, digits, '-' and '_'.
	Name string `yaml:"name"`
	// Title is the gateway's name for people; default Name.
	Title string `yaml:"title"`
	// Guarantees are what the gateway documents of G1 to G6, by these names; Notes what else one must know of it.
	Guarantees map[string]*Guarantee `yaml:"guarantees"`
	Notes      []string              `yaml:"notes"`
	// Hosts are the gateway's own host names, by which a request may address it.
	Hosts []string `yaml:"hosts"`
	// BaseURL is scheme and host to send to, without a path: request targets pass unchanged.
	BaseURL string `yaml:"baseURL"`
	// CABundle is a PEM file that replaces the system's roots; ClientCert and ClientKey are PEM files of a client certificate
	// with its chain and of its key.
	CABundle   string `yaml:"caBundle"`
	ClientCert string `yaml:"clientCert"`
	ClientKey  string `yaml:"clientKey"`
	// EgressProxy is the proxy that sends and lookups go through, by CONNECT. nil: none.
	EgressProxy *EgressProxy `yaml:"egressProxy"`

	// Tokens says whether calls without a fencing token are served: required, optional (default), none.
	Tokens string `yaml:"tokens"`
	// Untagged says what happens to an unsafe request without a call key: refuse (default), pass.
	Untagged string `yaml:"untagged"`

	// KeyRetention is how long the gateway surely keeps a key, at most its documented minimum; 0: not declared.
	KeyRetention Duration `yaml:"keyRetention"`
	// SettleAfter is the longest late execution plus the lookup's index lag; default 10m.
	SettleAfter Duration `yaml:"settleAfter"`
	// AttemptTimeout bounds one attempt; default 2m.
	AttemptTimeout Duration `yaml:"attemptTimeout"`
	// BodyLimit and AnswerLimit are in bytes; default 1 MiB each.
	BodyLimit   int64 `yaml:"bodyLimit"`
	AnswerLimit int64 `yaml:"answerLimit"`
	// UnknownStatus is the status of an answer "in doubt"; default 504. It must be outside the SDKs' retry lists.
	UnknownStatus int `yaml:"unknownStatus"`

	// Family is the replay family: a, b, c, or "" where a repeat's answer is not known.
	Family string `yaml:"family"`
	// RollsForward says that an operation answered with a stored 5xx may still be carried out later: after such an answer no miss
	// proves absence.
	RollsForward bool `yaml:"rollsForward"`
	// Replayed is the answer header that marks a replay of a stored answer.
	Replayed *HeaderValue `yaml:"replayed"`

	// Key, Reference, CallKey, Answers, Payment and Keep hold for every route that does not say otherwise. A route's own answer
	// rules are asked first.
	Key       *KeyPlace     `yaml:"key"`
	Reference *RefPlace     `yaml:"reference"`
	CallKey   *CallKey      `yaml:"callKey"`
	Answers   []*AnswerRule `yaml:"answers"`
	Payment   *Payment      `yaml:"payment"`
	Keep      *Kept         `yaml:"keep"`

	Routes []*Route `yaml:"routes"`

	// CredentialHeader carries the app's credential; default Authorization. AccountHeaders select a further account
	// (Stripe-Account, Stripe-Context).
	CredentialHeader string `yaml:"credentialHeader"`
	// Credentials says whose credential a call goes with: the app's (default) or the sidecar's.
	Credentials string `yaml:"credentials"`
	// Rotating says that an app's credential is a token that changes by itself (OAuth2), so that it tells no account: exactly
	// one account is configured, and every call is that account's.
	Rotating       bool     `yaml:"rotating"`
	AccountHeaders []string `yaml:"accountHeaders"`
	// LookupScheme precedes a lookup credential in CredentialHeader; default Bearer. The word none: the bare credential.
	LookupScheme string `yaml:"lookupScheme"`
	// LookupHeaders are further headers of a lookup, such as a pinned version.
	LookupHeaders []HeaderValue `yaml:"lookupHeaders"`
	Accounts      []Account     `yaml:"accounts"`

	// Webhook is how the gateway tells of late outcomes; nil: no notice of it is understood.
	Webhook *Webhook `yaml:"webhook"`
	// Checks are the requests that the checklist tries a sandbox of the gateway with; nil: the checklist cannot.
	Checks *Checks `yaml:"checks"`

	Error ErrorShape `yaml:"error"`

	// Mint fetches an OAuth2 token of an account, or returns one that is still good. It is set by whoever may use the network.
	Mint func(ctx context.Context, a *Account) (string, error) `yaml:"-"`
	// Now is the clock of Ask; nil: time.Now. It is a setting of tests.
	Now func() time.Time `yaml:"-"`
}

// Route is one operation of a gateway. A zero setting takes the gateway's.
type Route struct {
	Name   string `yaml:"name"`
	Method string `yaml:"method"` // POST, PUT …; "*": every unsafe method
	// Path is compared byte by byte with the raw path. {name} takes one segment of unreserved characters; a last segment
	// ** takes the rest.
	Path string `yaml:"path"`
	// Also are other paths of the same operation, with the same names in braces.
	Also []string `yaml:"also"`
	// Untagged says what happens to a request without a call key; default: what the gateway says.
	Untagged string `yaml:"untagged"`
	// Effect is move (default) or undo.
	Effect string `yaml:"effect"`
	// Signed says that the app signs the body: it is never changed.
	Signed bool `yaml:"signed"`
	// Keyless says that the gateway takes no key here; a resend is then never safe.
	Keyless   bool      `yaml:"keyless"`
	Key       *KeyPlace `yaml:"key"`
	Reference *RefPlace `yaml:"reference"`
	// NoReference says that the route takes no reference.
	NoReference bool     `yaml:"noReference"`
	CallKey     *CallKey `yaml:"callKey"`
	// Params are what a lookup needs, by name: path:<template name> or body:<dotted field>. Never card data.
	Params map[string]string `yaml:"params"`
	// Volatile are dotted body fields that do not count in the fingerprint: a repeat that differs in them only is the same
	// call. A request is sent as the app wrote it, so a further attempt may carry other bytes under the same gateway key.
	// Where the gateway compares bodies it refuses those, nothing is executed twice, and the call stays in doubt; therefore
	// no route has both Volatile and Probe, and Volatile is for what the gateway does not compare, such as a time of sending.
	Volatile []string `yaml:"volatile"`

	KeyRetention   Duration `yaml:"keyRetention"`
	SettleAfter    Duration `yaml:"settleAfter"`
	AttemptTimeout Duration `yaml:"attemptTimeout"`
	BodyLimit      int64    `yaml:"bodyLimit"`
	AnswerLimit    int64    `yaml:"answerLimit"`

	// Object points at the gateway's own id of what the call made or changed, in a succeeded answer; default: the lookup's ID.
	Object string `yaml:"object"`
	// Probe says that a repeat with the same key replays (G1 and G4).
	Probe bool `yaml:"probe"`
	// AllowCloseFramed takes an answer that ends with its connection for complete.
	AllowCloseFramed bool          `yaml:"allowCloseFramed"`
	Answers          []*AnswerRule `yaml:"answers"`
	Payment          *Payment      `yaml:"payment"`
	Keep             *Kept         `yaml:"keep"`
	Lookup           *Lookup       `yaml:"lookup"`

	paths [][]string // split templates, made by Validate
}

// KeyPlace is where the gateway takes its idempotency key: a header or a body field, one of them.
type KeyPlace struct {
	Header string `yaml:"header"`
	Field  string `yaml:"field"`
	Shape  Shape  `yaml:"shape"`
}

// RefPlace is the body field that our reference is written to, dotted: metadata.fence_ref is metadata[fence_ref] in a form.
type RefPlace struct {
	Field string `yaml:"field"`
	Shape Shape  `yaml:"shape"`
	// Owned says that the field is ours alone: what the app wrote there is replaced.
	Owned bool `yaml:"owned"`
	// Unique says that the app's own value, where it wrote one, names one call only. Without it a lookup that finds the
	// app's value could be looking at another call, and cannot tell.
	Unique bool `yaml:"unique"`
	// Required refuses a body that neither has a reference nor takes one, before anything is sent.
	Required bool `yaml:"required"`
	// Body is the only format that is stamped: form, json; "": both.
	Body string `yaml:"body"`
}

// fits reports whether the field may be written into a body of the format.
func (r *RefPlace) fits(f format) bool {
	return r.Body == "" || r.Body == "form" && f == form || r.Body == "json" && f == object
}

// Shape is what a derived key or reference looks like.
type Shape struct {
	Alphabet string `yaml:"alphabet"` // hex (default), base32 (lower-case), base62, digits, uuid
	Length   int    `yaml:"length"`   // longest that the gateway takes; default: as long as 256 bits need, 36 for uuid
}

// CallKey is where an app's request names the call, if it has no Fence-Key: a header or a body field, one of them.
type CallKey struct {
	Header string `yaml:"header"`
	Field  string `yaml:"field"`
	// Refuse lists patterns (RE2, whole value) of values that an SDK makes up anew for each request; default: UUIDs.
	Refuse []string `yaml:"refuse"`

	refuse []*regexp.Regexp
}

// HeaderValue is one header line.
type HeaderValue struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// Condition looks at one JSON pointer (RFC 6901) of a body.
type Condition struct {
	At string `yaml:"at"`
	// In lists the texts (or numbers, true, false) that hold. Without In, Absent decides.
	In []string `yaml:"in"`
	// Absent: holds where there is nothing or null; otherwise where there is a non-empty scalar, an object or a list.
	Absent bool `yaml:"absent"`
}

// AnswerRule is one line of the answer table; the first whose status and conditions all hold counts.
type AnswerRule struct {
	Status []string    `yaml:"status"` // 402, 2xx
	When   []Condition `yaml:"when"`
	// Header must stand in the answer, its value without regard to case; nil: not asked for.
	Header  *HeaderValue `yaml:"header"`
	Outcome string       `yaml:"outcome"` // succeeded, declined, not-executed, unknown
	// Transient: the gateway says that the same key may be asked again, so that the answer does not stand under it. It makes a
	// probe possible where the route has one; it proves nothing.
	Transient bool `yaml:"transient"`
	// InUse: another request with the key is in flight.
	InUse bool `yaml:"inUse"`
	// Stored: yes (family a: this is the key's first answer), no (made before the key layer), "" (the marker decides).
	Stored string `yaml:"stored"`
	// Payment overrides the payment state.
	Payment string `yaml:"payment"`
	// Points points at the id of the first object, in a refusal that says that the key's operation was carried out before
	// (replay family c): the call is unknown until that object was read, and no miss says otherwise.
	Points string `yaml:"points"`

	outcome claims.Outcome
}

// Payment says where the money is, read from a succeeded answer or a found object.
type Payment struct {
	At     string            `yaml:"at"`     // JSON pointer
	Values map[string]string `yaml:"values"` // text → pending, done, failed, reversed
}

// Kept limits what is stored of an answer, and so what a repeat gets. The app's first answer is whole.
type Kept struct {
	// Headers are the names of the header lines that are stored beside those that say how to read the body; nil: all.
	Headers []string `yaml:"headers"`
	// Fields are JSON pointers into the body, through objects only; what they point at is stored whole. nil: the body is
	// stored as it came.
	Fields []string `yaml:"fields"`
}

// Kinds of lookup.
const (
	KindList   = "list"   // a list that is consistent with writes
	KindGet    = "get"    // the object itself
	KindSearch = "search" // an index that lags: it never proves absence
	KindObject = "object" // the object itself, once its id is known: it never proves absence
)

// Lookup is how a route finds out what became of a call.
type Lookup struct {
	Kind string `yaml:"kind"` // list, get, search, object
	// Target is the request target; {since}, {until}, {reference}, {key} and the names of the route's Params are filled in, escaped.
	Target string `yaml:"target"`
	// SinceFormat is unix (default) or rfc3339; since is the first attempt's start minus Window (default 10m: a clock
	// offset of 5m and 5m to spare), until the time of asking plus Window.
	SinceFormat string   `yaml:"sinceFormat"`
	Window      Duration `yaml:"window"`
	// Object is the request target of the object itself, with {object} for its id: used where the id is known, to read where the
	// money is, and what a refusal pointed at. "": the Target alone.
	Object string `yaml:"object"`
	// ObjectAt points at the object in that answer; "": the answer.
	ObjectAt string `yaml:"objectAt"`
	// Items points at the list in the answer. A get has none.
	Items string `yaml:"items"`
	// Is are conditions that every page (list, search) or the object (get) must meet, else the lookup cannot tell.
	Is []Condition `yaml:"is"`
	// Each are conditions that every matching item of a list or search must meet, else the lookup cannot tell: what would be
	// no answer is no match either.
	Each []Condition `yaml:"each"`
	// ID points at the id in an item; a get compares it with the route's Param named by SameAs.
	ID     string `yaml:"id"`
	SameAs string `yaml:"sameAs"`
	// Reference points at our reference in an item.
	Reference string `yaml:"reference"`
	// Key points at our idempotency key in an item: it is then matched by that, instead of by the reference.
	Key string `yaml:"key"`
	// Amount and Currency point at what is compared with the Params amount and currency, where the call had them.
	Amount   string `yaml:"amount"`
	Currency string `yaml:"currency"`
	// Same are pointers at what must be equal to other Params where the call had them, by their names: a mandate, a customer.
	Same map[string]string `yaml:"same"`
	// Whole points at what the amount must be where the call named none (a capture of the whole charge); "": not compared.
	Whole string `yaml:"whole"`
	// Cases read a match; the first that holds counts, none: could not tell.
	Cases []Case `yaml:"cases"`
	Pages *Pages `yaml:"pages"`
	// NotFound is what a 404 means: "" could not tell, or missed.
	NotFound string `yaml:"notFound"`
	// Proves says that a miss proves absence once the time is right. Not for search.
	Proves  bool     `yaml:"proves"`
	Misses  int      `yaml:"misses"`  // default 2
	MissGap Duration `yaml:"missGap"` // default 30s
	// Answer makes the call's answer from the match; nil: none.
	Answer *FoundAnswer `yaml:"answer"`
}

// What a Case says of a match.
const (
	CaseDone   = "done"
	CaseFailed = "failed"
	CaseMissed = "missed" // a get: the object stands as before the call
	CaseBusy   = "busy"   // could not tell, by name
)

// Case is one line of a lookup's table.
type Case struct {
	When []Condition `yaml:"when"`
	// Call holds texts that the call's own Params must have had, by name; "" stands for one that it did not have.
	Call map[string][]string `yaml:"call"`
	// Reference, for a get: ours (must carry our reference), none (must carry no reference), "" (either).
	Reference string `yaml:"reference"`
	Is        string `yaml:"is"`      // done, failed, missed, busy
	Payment   string `yaml:"payment"` // "": the route's Payment decides
}

// Pages says how to read on.
type Pages struct {
	More  string `yaml:"more"`  // pointer to a boolean: there are more
	Next  string `yaml:"next"`  // instead of More: pointer to the cursor of the next page; null there: the last one
	Param string `yaml:"param"` // query parameter that takes the last item's id, or the cursor
	Max   int    `yaml:"max"`   // default 50; a list that goes on: could not tell
}

// FoundAnswer is the answer that a lookup makes.
type FoundAnswer struct {
	At          string `yaml:"at"`          // pointer into the item; "": the item
	Wrap        string `yaml:"wrap"`        // member that the item becomes in the answer's body; "": it is the body
	Status      int    `yaml:"status"`      // default 200
	ContentType string `yaml:"contentType"` // default application/json
}

// Policy is what the sender must know of a route.
type Policy struct {
	AttemptTimeout time.Duration
	Probe          bool // a repeat is the question
	FreshDial      bool // the route cannot prove absence: no reused connection
	// AllowCloseFramed takes an answer that ends with its connection for complete.
	AllowCloseFramed bool
	Undo             bool // the effect is undo
	BodyLimit        int64
	AnswerLimit      int64
}

// Policy returns what the sender must know of the matched route.
func (m Match) Policy() Policy { return m.Gateway.policy(m.Route) }

// RoutePolicy is Policy by a route's name, as a record keeps it; false: no such route.
func (g *Gateway) RoutePolicy(route string) (Policy, bool) {
	r := g.route(route)
	if r == nil {
		return Policy{}, false
	}
	return g.policy(r), true
}

func (g *Gateway) policy(r *Route) Policy {
	return Policy{
		AttemptTimeout:   first(r.AttemptTimeout, g.AttemptTimeout),
		Probe:            r.Probe,
		FreshDial:        !g.provesAbsence(r),
		AllowCloseFramed: r.AllowCloseFramed,
		Undo:             r.Effect == EffectUndo,
		BodyLimit:        first(r.BodyLimit, g.BodyLimit),
		AnswerLimit:      first(r.AnswerLimit, g.AnswerLimit),
	}
}

// LookupRules says what the route's lookup is worth. An unknown route's is worth nothing.
func (g *Gateway) LookupRules(route string) claims.LookupRules {
	r := g.route(route)
	if r == nil {
		return claims.LookupRules{}
	}
	rules := claims.LookupRules{
		Keyed: g.key(r) != nil, Misses: defaultMisses, MissGap: defaultMissGap, SettleAfter: first(r.SettleAfter, g.SettleAfter),
	}
	rules.FirstStored, rules.RollsForward = rules.Keyed && g.Family == FamilyA, g.RollsForward
	rules.NoWay = r.Lookup == nil && !r.Probe
	if l := r.Lookup; l != nil {
		rules.Proves = l.Proves && l.Kind != KindSearch
		rules.Misses, rules.MissGap = first(l.Misses, rules.Misses), first(l.MissGap, rules.MissGap)
	}
	return rules
}

func (g *Gateway) provesAbsence(r *Route) bool {
	return r.Lookup != nil && r.Lookup.Proves && r.Lookup.Kind != KindSearch && g.key(r) != nil
}

func (g *Gateway) route(name string) *Route {
	for _, r := range g.Routes {
		if r.Name == name {
			return r
		}
	}
	return nil
}

func (g *Gateway) key(r *Route) *KeyPlace {
	switch {
	case r.Keyless:
		return nil
	case r.Key != nil:
		return r.Key
	}
	return g.Key
}

func (g *Gateway) reference(r *Route) *RefPlace {
	switch {
	case r.NoReference || r.Signed:
		return nil
	case r.Reference != nil:
		return r.Reference
	}
	return g.Reference
}

// object points at the id of what a call made.
func (r *Route) object() string {
	if r.Object == "" && r.Lookup != nil {
		return r.Lookup.ID
	}
	return r.Object
}

func (g *Gateway) payment(r *Route) *Payment {
	if r != nil && r.Payment != nil {
		return r.Payment
	}
	return g.Payment
}

func (g *Gateway) now() time.Time {
	if g.Now != nil {
		return g.Now()
	}
	return time.Now()
}

// first is the first value that is not zero.
func first[T comparable](vs ...T) (zero T) {
	for _, v := range vs {
		if v != zero {
			return v
		}
	}
	return zero
}
