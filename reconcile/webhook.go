package reconcile

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Headers, signature and secrets are those of Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"

	secretPrefix = "whsec_"
)

// Types of events.
const (
	EventSettled = "call.settled" // a doubt came to rest
	EventReview  = "call.review"  // a person is needed
	EventPayment = "call.payment" // the money of a call that succeeded moved
)

// EventType names what an event says.
func EventType(e claims.Event) string {
	switch {
	case e.State == claims.StateReview:
		return EventReview
	case e.From == claims.StateSucceeded && e.State == claims.StateSucceeded:
		return EventPayment
	}
	return EventSettled
}

// payload is an event's body: the same bytes at every delivery.
func payload(e claims.Event) []byte {
	type data struct {
		Event    string    `json:"event"`
		Tenant   string    `json:"tenant"`
		Call     string    `json:"call"`
		Revision int       `json:"revision"`
		Attempt  int       `json:"attempt"`
		From     string    `json:"from"`
		State    string    `json:"state"`
		Outcome  string    `json:"outcome"`
		Payment  string    `json:"payment"`
		At       time.Time `json:"at"`
	}
	at := e.At.Wall.UTC()
	b, err := json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      data      `json:"data"`
	}{EventType(e), at, data{
		e.ID, e.Key.Tenant, e.Key.Call, e.Revision, e.Attempt, string(e.From), string(e.State), e.Outcome.String(), e.Payment, at,
	}})
	if err != nil {
		panic("reconcile: " + err.Error()) // texts, numbers and a time of this era
	}
	return b
}

// deliveryID is the webhook-id: the same at every delivery of an event, of letters and digits, whatever a store's ids look like.
func deliveryID(realm, event string) string {
	sum := sha256.Sum256([]byte(realm + "\x00" + event))
	return "evt_" + hex.EncodeToString(sum[:16])
}

// CheckWebhookSecret refuses what is no secret of Standard Webhooks: whsec_ and the base64 of 24 to 64 bytes.
func CheckWebhookSecret(s gateways.Secret) error {
	_, err := webhookKey(s)
	return err
}

// webhookKey reads a secret. Its errors do not show it.
func webhookKey(s gateways.Secret) ([]byte, error) {
	v, err := s.Value()
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutPrefix(v, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("secret %s%s is not %s and the base64 of 24 to 64 bytes", s.Env, s.File, secretPrefix)
	}
	return key, nil
}

// sign signs with every secret that can be read, so that a receiver may know the old one or the new one while they are changed;
// "" where none can. The error names those that cannot.
func sign(secrets []gateways.Secret, id string, at time.Time, body []byte) (signatures string, unread error) {
	var all []string
	for _, s := range secrets {
		key, err := webhookKey(s)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		h.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(all, " "), unread
}
