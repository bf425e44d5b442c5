package gateways

// Webhook is how a gateway's notices of late outcomes are verified and read.
type Webhook struct {
	// Signature is how a notice is signed; nil: it is not. An unsigned one, or one whose signature does not cover what it says,
	// only has the gateway asked.
	Signature *Signature `yaml:"signature"`
	// Form says that the notice is a form (application/x-www-form-urlencoded); its fields are read as members of one object.
	Form bool `yaml:"form"`
	// Events points at the list of events in the body; "": the body is one event.
	Events string `yaml:"events"`
	// Item points at the event proper in each; "": the list's item.
	Item string `yaml:"item"`
	// ID points at the event's own id; "": a digest of the event stands for it.
	ID string `yaml:"id"`
	// References point at our references in an event: each names the call that it was given to.
	References []string `yaml:"references"`
	// Object points at the gateway's own id of the object that the event is about.
	Object string `yaml:"object"`
	// Amount and Currency point at what must be the call's for the notice to count.
	Amount   string `yaml:"amount"`
	Currency string `yaml:"currency"`
	// Cases read an event; the first that holds for the call's route counts. Where none holds the gateway is asked.
	Cases []NoticeCase `yaml:"cases"`
	// Answer makes the call's answer from an event that says succeeded; nil: none.
	Answer *FoundAnswer `yaml:"answer"`
	// Accept is the body of our answer to a notice that was taken, with status 200; Refuse the status for one with a wrong
	// signature, default 401.
	Accept string `yaml:"accept"`
	Refuse int    `yaml:"refuse"`
}

// NoticeCase is one line of how events are read.
type NoticeCase struct {
	When []Condition `yaml:"when"`
	// Routes are the names of the routes whose calls it speaks of; none: of all.
	Routes []string `yaml:"routes"`
	// Call holds texts that the call's own Params must have had, by name; "" stands for one that it did not have.
	Call map[string][]string `yaml:"call"`
	// Outcome of the call: succeeded, declined, not-executed; "": the event tells only where the money is.
	Outcome string `yaml:"outcome"`
	// Payment is where the money is: pending, done, failed, reversed; "": unsaid.
	Payment string `yaml:"payment"`
}

// Signature schemes.
const (
	SchemeHMAC        = "hmac"
	SchemeCertificate = "certificate"
)

// Signature is how a notice is signed.
type Signature struct {
	Scheme string `yaml:"scheme"` // hmac (default), certificate
	// Header carries the signature; At points at it in each event instead.
	Header string `yaml:"header"`
	At     string `yaml:"at"`
	// Part names the signature among parts such as t=…,v1=…; Separator parts them (default ","). "": the whole value.
	Part      string `yaml:"part"`
	Separator string `yaml:"separator"`
	Prefix    string `yaml:"prefix"`   // that stands before the signature, such as sha256=; a part without it is none
	Hash      string `yaml:"hash"`     // sha256 (default), sha512
	Encoding  string `yaml:"encoding"` // hex (default), base64
	// Secret says how the secret is written: raw (default), hex, base64, whsec (Standard Webhooks).
	Secret string `yaml:"secret"`
	// Signed is what the signature is over: {body}, {timestamp}, {url}, {header:Name}, {query:name}, {query-lower:name} in lower
	// case, {crc32} of the body in decimal, {webhook-id} (scheme certificate: what webhookSecrets name), or {/pointer} of an event
	// for At. Default {body}.
	Signed string `yaml:"signed"`
	// TimestampHeader, or TimestampPart of Header, carries the time of signing, in seconds since 1970 or RFC 3339; Tolerance
	// is how old it may be (default 5m). Without both a notice never gets too old.
	TimestampHeader string   `yaml:"timestampHeader"`
	TimestampPart   string   `yaml:"timestampPart"`
	TimestampMillis bool     `yaml:"timestampMillis"`
	Tolerance       Duration `yaml:"tolerance"`
	// CertHeader carries the address of the certificate (scheme certificate), CertHosts are the hosts that it may be on.
	CertHeader string   `yaml:"certHeader"`
	CertHosts  []string `yaml:"certHosts"`
}
