package sandbox

import (
	"fmt"
	"slices"
)

// processing is the outcome of a payment that is under way.
const processing = "processing"

// pend makes a charge one whose money is under way.
func (o *object) pend() {
	o.fields["status"], o.fields["paid"] = "pending", false
}

// moves are the statuses that an object under way has, and comes to, by kind.
var moves = map[string]struct {
	from []string
	to   map[string]string
}{
	"payment_intent": {[]string{"processing", "requires_action", "requires_capture"},
		map[string]string{"done": "succeeded", "failed": "requires_payment_method", "reversed": "canceled"}},
	"charge": {[]string{"pending"}, map[string]string{"done": "succeeded", "failed": "failed"}},
	"refund": {[]string{"pending"}, map[string]string{"done": "succeeded", "failed": "failed", "reversed": "canceled"}},
	"payout": {[]string{"pending"}, map[string]string{"done": "paid", "failed": "failed", "reversed": "canceled"}},
	"topup":  {[]string{"pending"}, map[string]string{"done": "succeeded", "failed": "failed", "reversed": "canceled"}},
}

// Move moves a payment that is under way on, as a bank does days after the call: to done, failed or reversed, and tells the
// webhooks. No operation is booked: the call was executed when it was made.
func (s *Server) Move(id, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[id]
	if o == nil {
		return fmt.Errorf("no object %q", id)
	}
	if s.p.move == nil {
		return fmt.Errorf("nothing is ever under way at %s", s.p.title)
	}
	for _, f := range s.faults {
		if f.Name == "no-outcome" {
			return nil
		}
	}
	if err := s.p.move(s, o, to); err != nil {
		return err
	}
	s.tell(o, to, 0)
	s.wake()
	return nil
}

func moveStripe(s *Server, o *object, to string) error {
	m := moves[o.kind]
	status, from := m.to[to], o.str("status")
	if status == "" {
		return fmt.Errorf("a %s cannot be moved to %q: done, failed, reversed", o.kind, to)
	}
	if !slices.Contains(m.from, from) {
		return fmt.Errorf("%s %s has a status of %s: it is not under way", o.kind, o.id, from)
	}
	o.fields["status"] = status
	if o.kind == "charge" {
		o.fields["paid"] = to == "done"
	}
	if o.kind == "payment_intent" {
		s.moveIntent(o, to)
	}
	return nil
}

func (s *Server) moveIntent(pi *object, to string) {
	pi.fields["amount_capturable"], pi.fields["next_action"] = int64(0), nil
	ch := s.objects[pi.str("latest_charge")]
	switch to {
	case "done":
		pi.fields["amount_received"] = pi.num("amount")
		if ch != nil {
			ch.fields["status"], ch.fields["paid"], ch.fields["captured"], ch.fields["amount_captured"] = "succeeded", true, true, pi.num("amount")
		}
	case "failed":
		pi.fields["payment_method"] = nil
		pi.fields["last_payment_error"] = map[string]any{"type": "invalid_request_error", "code": "payment_method_provider_decline"}
		if ch != nil {
			ch.fields["status"], ch.fields["paid"] = "failed", false
		}
	case "reversed":
		pi.fields["canceled_at"] = s.now().Unix()
	}
}
