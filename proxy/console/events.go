package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

const (
	maxStreams = 32
	eventPage  = 200
	heartbeat  = 15 * time.Second // so that neither side takes a quiet stream for a dead one
	pollEvery  = time.Second
	// fromStart is the id of before the first event. A store's own name for it is the empty one, which no header carries.
	fromStart = "start"
)

// newsroom wakes the streams when the store has a new event. One goroutine asks the store for all of them, while there are any.
type newsroom struct {
	mu    sync.Mutex
	wakes map[chan struct{}]bool // each of capacity 1
	stop  context.CancelFunc
}

// Nudge says that this process wrote an event, so that its streams tell it at once.
func (c *Console) Nudge() { c.streams.wake() }

func (n *newsroom) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.wakes {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// join adds a stream; nil: there are too many.
func (c *Console) join() chan struct{} {
	n := &c.streams
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wakes) >= maxStreams {
		return nil
	}
	if len(n.wakes) == 0 {
		n.wakes = map[chan struct{}]bool{}
		ctx, stop := context.WithCancel(context.Background())
		n.stop = stop
		go c.poll(ctx)
	}
	w := make(chan struct{}, 1)
	n.wakes[w] = true
	c.Metrics.streaming(1)
	return w
}

func (c *Console) leave(w chan struct{}) {
	n := &c.streams
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wakes, w)
	if len(n.wakes) == 0 {
		n.stop()
	}
	c.Metrics.streaming(-1)
}

// poll wakes the streams whenever the newest event is another one, and once after it could not be known: each then asks for itself.
func (c *Console) poll(ctx context.Context) {
	last, known := "", false
	for tick := time.NewTicker(pollEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		id, err := c.Journal.LastEvent(asking)
		cancel()
		if err == nil && (!known || id != last) {
			c.streams.wake()
		}
		last, known = id, err == nil
	}
}

// eventData is an event's data: what a delivery of the event holds as data, too.
type eventData struct {
	Event    string       `json:"event"`
	Tenant   string       `json:"tenant"`
	Call     string       `json:"call"`
	Revision int          `json:"revision"`
	Attempt  int          `json:"attempt"`
	From     claims.State `json:"from"`
	State    claims.State `json:"state"`
	Outcome  string       `json:"outcome"`
	Payment  string       `json:"payment"`
	At       time.Time    `json:"at"`
}

// events serves a stream of what comes to rest, goes to a person, or has its money moved.
func (c *Console) events(x *exchange) error {
	tenants, after, err := x.eventQuery()
	if err != nil {
		return err
	}
	if c.Draining() || c.isClosed() {
		return refusal(claims.Draining, "the sidecar is shutting down: no stream is opened")
	}
	wake := c.join() // before the store is asked: nothing is missed
	if wake == nil {
		x.w.Header().Set("Retry-After", "10")
		return &httpError{http.StatusTooManyRequests, "too many streams are open"}
	}
	defer c.leave(wake)
	ctx, cancel := x.store()
	defer cancel()
	s := &newsStream{c: c, tenants: tenants, wake: wake, rc: http.NewResponseController(x.w), out: x.w}
	if after == nil {
		s.cursor, err = c.Journal.LastEvent(ctx)
	} else {
		s.cursor = *after
		s.page, err = c.Journal.Events(ctx, s.cursor, eventPage)
	}
	if err != nil {
		return err
	}
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.WriteHeader(http.StatusOK)
	s.run(x.r.Context())
	return nil
}

// eventQuery reads whose events, and from where on. What a browser's or a library's reconnect says wins over the address.
func (x *exchange) eventQuery() (tenants []string, after *string, err error) {
	if err := fenceHeaders(x.r.Header, false); err != nil {
		return nil, nil, err
	}
	q, err := x.query("tenant", "after")
	if err != nil {
		return nil, nil, err
	}
	tenants = x.c.Tenants
	if t := q["tenant"]; t != nil {
		if err := x.c.serves(*t); err != nil {
			return nil, nil, err
		}
		tenants = []string{*t}
	}
	after = q["after"]
	if last := x.r.Header.Values("Last-Event-ID"); len(last) > 0 {
		after = &last[0]
	}
	if after == nil {
		return tenants, nil, nil
	}
	id := *after
	if err := checkText("the id of an event", id, 1); err != nil {
		return nil, nil, err
	}
	if id == fromStart {
		id = ""
	}
	return tenants, &id, nil
}

// newsStream is one stream of events. It goes through the store's events by itself, so that none is missed or told twice.
type newsStream struct {
	c       *Console
	tenants []string
	wake    chan struct{}
	rc      *http.ResponseController
	out     http.ResponseWriter

	cursor string         // all up to this one are told
	page   []claims.Event // read, and not told yet
	err    error
}

// run writes until the client is gone or does not read, or the process shuts down.
func (s *newsStream) run(ctx context.Context) {
	s.write("retry: 1000\n")
	s.beat()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for s.err == nil {
		if s.tell(ctx) {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
			return
		case <-s.c.closed:
			s.write("event: draining\ndata: {}\n\n")
			return
		case <-s.wake:
		case <-beat.C:
			s.beat() // and ask again: the store may not have answered before
		}
	}
}

// beat writes where the stream is without an event, so that a client whose filter lets little through resumes from there.
func (s *newsStream) beat() {
	id := s.cursor
	if id == "" {
		id = fromStart
	}
	s.write(":\nid: " + id + "\n\n")
}

// tell writes what there is and reads on. It reports whether it found anything.
func (s *newsStream) tell(ctx context.Context) bool {
	found := len(s.page) > 0
	for i := range s.page {
		e := &s.page[i]
		s.cursor = e.ID
		if slices.Contains(s.tenants, e.Key.Tenant) {
			s.event(e)
		}
		if s.err != nil || s.c.isClosed() {
			return false
		}
	}
	asking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	page, err := s.c.Journal.Events(asking, s.cursor, eventPage)
	if err != nil && ctx.Err() == nil {
		s.c.Log.LogAttrs(ctx, slog.LevelWarn, "events cannot be read", slog.Any("error", err))
		if errors.Is(err, claims.ErrBadEvent) { // the store is another one by now
			s.err = err
		}
	}
	s.page = page
	return found || len(page) > 0
}

func (s *newsStream) event(e *claims.Event) {
	data, err := json.Marshal(eventData{
		e.ID, e.Key.Tenant, e.Key.Call, e.Revision, e.Attempt, e.From, e.State, e.Outcome.String(), e.Payment, utc(e.At.Wall),
	})
	if err != nil { // our own struct
		panic(err)
	}
	var b bytes.Buffer
	b.WriteString("id: " + e.ID + "\nevent: " + strings.TrimPrefix(reconcile.EventType(*e), "call.") + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	s.write(b.String())
}

// write writes at once. A client that does not read ends the stream when the deadline passes; it resumes by the last id.
func (s *newsStream) write(text string) {
	if s.err != nil {
		return
	}
	s.rc.SetWriteDeadline(time.Now().Add(ioTimeout))
	if _, s.err = strings.NewReader(text).WriteTo(s.out); s.err == nil {
		s.err = s.rc.Flush()
	}
}
