package proxy

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// ProblemBase precedes a refusal's slug in a problem's type.
const ProblemBase = "https://fence-sidecar.dev/problems/"

// problem is a refusal's place in the one map from refusal to status.
type problem struct {
	status int
	title  string
	// retry: a client may repeat the call by itself.
	retry bool
}

var problems = map[claims.Reason]problem{
	claims.BadRequest:       {400, "The request cannot be fenced", false},
	claims.NoKey:            {400, "The request has no call key", false},
	claims.Untagged:         {403, "An unsafe request without a call key is not sent", false},
	claims.WrongTenant:      {403, "The tenant is not served here", false},
	claims.UnknownGateway:   {421, "No such gateway", false},
	claims.KeyConflict:      {422, "Another request was made under this call key", false},
	claims.Fenced:           {409, "The fence token is not live", false},
	claims.SupersededRev:    {409, "A later revision was made", false},
	claims.RevisionBlocked:  {409, "The revision cannot be made", false},
	claims.AlreadyUndone:    {409, "Another call undoes it", false},
	claims.NothingToUndo:    {409, "There is nothing to undo", false},
	claims.AttemptsUsed:     {409, "No attempt is left", false},
	claims.AnswerGone:       {409, "The answer is not kept", false},
	claims.InFlight:         {409, "The call is in flight", true},
	claims.NeedsReview:      {409, "A person must decide", false},
	claims.ScopeFinished:    {410, "The scope is finished", false},
	claims.CallCancelled:    {410, "The call was cancelled", false},
	claims.RetentionPassed:  {410, "The gateway's key is too old to be used again", false},
	claims.TooLarge:         {413, "The body is too large", false},
	claims.NotSent:          {502, "The gateway could not be reached", false},
	claims.StoreUnavailable: {503, "The store cannot be reached", true},
	claims.LeaseLost:        {503, "The sidecar lost its own lease", true},
	claims.Draining:         {503, "The sidecar is shutting down", true},
	claims.BreakerOpen:      {503, "The gateway's circuit breaker is open", false},
	claims.Quarantine:       {503, "The store is in quarantine", false},
	claims.Unreadable:       {503, "The record cannot be read", false},
	claims.InDoubt:          {504, "The outcome is not known yet", false},

	claims.UnknownWatch:  {404, "No such watch in this process", false},
	claims.ScopeHeld:     {409, "The scope is held", true},
	claims.CallsInFlight: {409, "Calls of the scope are in flight", true},
	claims.StalePing:     {409, "A newer ping was sent", false},

	claims.Unauthorized:   {401, "The token is no operator's", false},
	claims.NoOperators:    {403, "No operator is configured", false},
	claims.NoSuchCall:     {404, "No such call", true},
	claims.RecordChanged:  {409, "The call has changed", false},
	claims.NotResolvable:  {409, "The call cannot be resolved so", false},
	claims.NoticeEarly:    {409, "The notice came too early", true},
	claims.NoticeConflict: {409, "The notice contradicts what is known", false},
	claims.NoticeRefused:  {409, "The notice cannot be taken", false},
}

// StatusOf is a refusal's status; g, if known, may have its own for a call in doubt.
func StatusOf(r claims.Reason, g *gateways.Gateway) int {
	if r == claims.InDoubt && g != nil && g.UnknownStatus != 0 {
		return g.UnknownStatus
	}
	if p, ok := problems[r]; ok {
		return p.status
	}
	return http.StatusServiceUnavailable
}

// WriteProblem answers with a refusal: a problem document with the gateway's own error shape beside it, because an SDK
// that meets neither may take the answer for a payment.
func WriteProblem(w http.ResponseWriter, ref *claims.Refusal, g *gateways.Gateway) {
	p := problems[ref.Reason]
	status := StatusOf(ref.Reason, g)
	body := map[string]any{}
	if g != nil {
		members, header := g.Error.Render(string(ref.Reason), ref.Detail, p.retry)
		maps.Copy(body, members)
		for _, f := range header {
			w.Header().Set(f.Name, f.Value)
		}
	}
	body["outcome"] = ref.Outcome.String()
	send(w, ref, status, body)
}

// WriteLeaseProblem answers with a refusal about a lease: no call is spoken of, so that there is no outcome. more are the
// members that the reason has beside the usual ones.
func WriteLeaseProblem(w http.ResponseWriter, ref *claims.Refusal, more map[string]any) {
	body := map[string]any{}
	maps.Copy(body, more)
	send(w, ref, StatusOf(ref.Reason, nil), body)
}

// send completes the members and answers.
func send(w http.ResponseWriter, ref *claims.Refusal, status int, body map[string]any) {
	body["type"] = ProblemBase + string(ref.Reason)
	body["title"] = problems[ref.Reason].title
	body["status"] = status
	body["detail"] = ref.Detail
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if after := retryAfter(ref); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	b, err := json.Marshal(body)
	if err != nil { // a gateway file's shape that JSON cannot write
		b = []byte(`{"type":"` + ProblemBase + string(ref.Reason) + `","status":` + strconv.Itoa(status) + `}`)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

// retryAfter is in whole seconds, at least 1 where the status calls for one.
func retryAfter(ref *claims.Refusal) int {
	after := ref.RetryAfter
	if p := problems[ref.Reason]; after <= 0 && (p.status == 503 || p.status == 409 && p.retry) {
		after = time.Second
	}
	return int(math.Ceil(after.Seconds()))
}
