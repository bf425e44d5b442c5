package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// newsBubble is a bubble of two tenants.
func newsBubble(t *testing.T, f func(*bubbled)) {
	t.Helper()
	bubble(t, func(b *bubbled) {
		b.Tenants = []string{"default", "eu"}
		f(b)
	})
}

// happen writes an event, as another process of the store does: call n of a tenant comes to rest.
func (b *bubbled) happen(tenant string, n int, edit ...func(*claims.Event)) {
	b.Helper()
	k := claims.Key{Tenant: tenant, Call: fmt.Sprint("call-", n)}
	v, err := b.store.Backend.Get(context.Background(), k, claims.Guard{})
	if err != nil {
		b.Fatal(err)
	}
	e := claims.Event{Key: k, Revision: 1, Attempt: 1, From: claims.StateUnknown, State: claims.StateSucceeded, Outcome: claims.Succeeded}
	for _, f := range edit {
		f(&e)
	}
	next := claims.Record{Key: k, State: e.State, Revision: 1}
	if _, err := b.store.Backend.Swap(context.Background(), claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next, Event: &e}); err != nil {
		b.Fatal(err)
	}
}

// told is one event of a stream.
type told struct {
	id, name, call string
	at             time.Duration // since the stream was opened
}

// listener reads one stream of events.
type listener struct {
	b      *bubbled
	events chan told
	last   atomic.Pointer[string] // what a client would resume with
	beats  atomic.Int64
	close  context.CancelFunc
}

func (b *bubbled) openEvents(ctx context.Context, params, last string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events"+params, nil)
	if err != nil {
		b.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode != 200 {
		got.raw, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		json.Unmarshal(got.raw, &got.body)
	}
	if err := described(b.T).check(request("GET", "/v1/events"+params, "", ""), nil, got); err != nil {
		b.Errorf("%s: %d %s is not as described: %v", params, resp.StatusCode, got.raw, err)
	}
	return resp
}

// listen opens a stream and reads it as WHATWG HTML section 9.2.6 says.
func (b *bubbled) listen(params, last string) *listener {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	began := time.Now()
	resp := b.openEvents(ctx, params, last)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	l := &listener{b: b, events: make(chan told, 1000), close: cancel}
	go func() {
		defer close(l.events)
		defer resp.Body.Close()
		var e told
		data, id := "", ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case lines.Text() == "":
				l.last.Store(&id)
				if data == "" {
					e = told{}
					continue
				}
				if err := described(b.T).event("/v1/events", e.name, []byte(data)); err != nil {
					b.Errorf("%s %s is not as described: %v", e.name, data, err)
				}
				var d eventData
				json.Unmarshal([]byte(data), &d)
				if d.Event != e.id {
					b.Errorf("event %q has the id %q in its data", e.id, d.Event)
				}
				e.call, e.at = d.Call, time.Since(began)
				l.events <- e
				e, data = told{}, ""
			case field == "id":
				id, e.id = value, value
			case field == "event":
				e.name = value
			case field == "data":
				data += value
			case field == "":
				l.beats.Add(1)
			}
		}
	}()
	synctest.Wait()
	return l
}

func (l *listener) next(want string) told {
	l.b.Helper()
	select {
	case e := <-l.events:
		if e.call != want {
			l.b.Fatalf("event %+v, want one of %q", e, want)
		}
		return e
	case <-time.After(time.Hour):
		l.b.Fatalf("no event, want one of %q", want)
	}
	return told{}
}

func (l *listener) quiet() {
	l.b.Helper()
	time.Sleep(3 * time.Second)
	synctest.Wait()
	select {
	case e, ok := <-l.events:
		l.b.Fatalf("event %+v, stream open %v; want none", e, ok)
	default:
	}
}

func TestEvents(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		b.happen("default", 0) // before
		l := b.listen("", "")
		time.Sleep(100 * time.Millisecond)
		b.happen("default", 1)
		if e := l.next("call-1"); e.name != "settled" || e.at > 1100*time.Millisecond {
			t.Errorf("%+v", e)
		}
		b.happen("eu", 2, func(e *claims.Event) { e.State, e.Outcome = claims.StateReview, claims.Unknown })
		b.Nudge()
		at := time.Now()
		if e := l.next("call-2"); e.name != "review" || !time.Now().Equal(at) {
			t.Errorf("%+v, %s after the nudge", e, time.Since(at))
		}
		b.happen("elsewhere", 3)
		b.happen("default", 4, func(e *claims.Event) { e.From, e.Payment = claims.StateSucceeded, claims.PaymentDone })
		if e := l.next("call-4"); e.name != "payment" {
			t.Errorf("%+v", e)
		}
		l.quiet()
		l.close()
		b.silent()
	})
}

// silent says whether no stream is left, and nothing is asked of the store any more.
func (b *bubbled) silent() {
	b.Helper()
	synctest.Wait()
	asked := atomic.Int64{}
	b.store.breaks(func(string) error { asked.Add(1); return nil }, nil)
	time.Sleep(time.Minute)
	if n := metric(b.T, b.reg, "fence_event_streams"); n != "0" || asked.Load() != 0 {
		b.Errorf("%s streams, the store was asked %d times", n, asked.Load())
	}
}

// A client that comes back misses nothing and is told nothing twice, wherever it was cut off.
func TestEvents_resume(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		l := b.listen("", "") // there was no event yet
		l.close()
		b.happen("default", 0)
		l = b.listen("", *l.last.Load())
		l.next("call-0")
		for i := 1; i < 2*eventPage+7; i++ {
			b.happen("default", i)
		}
		b.Nudge()
		for i := 1; i < 100; i++ {
			l.next(fmt.Sprint("call-", i))
		}
		l.close()
		l = b.listen("?after=start", "100") // the header is newer than the address
		for i := 100; i < 2*eventPage+7; i++ {
			l.next(fmt.Sprint("call-", i))
		}
		l.quiet()
		l.close()
		l = b.listen("?after=start", "")
		for i := range 2*eventPage + 7 {
			l.next(fmt.Sprint("call-", i))
		}
		l.close()
	})
}

// A filter lets only its tenant's through, and the stream's id moves on with what it keeps back.
func TestEvents_tenant(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		l := b.listen("?tenant=eu", "")
		b.happen("default", 0)
		b.happen("eu", 1)
		b.happen("default", 2)
		l.next("call-1")
		l.quiet()
		time.Sleep(heartbeat)
		synctest.Wait()
		if id := *l.last.Load(); id != "3" {
			t.Errorf("a client would resume after %q, want 3", id)
		}
		l.close()
		for params, status := range map[string]int{"?tenant=elsewhere": 403, "?tenant=": 403, "?after=x": 400, "?after=": 400, "?after=1%0Adata:x": 400, "?more=1": 400} {
			if resp := b.openEvents(b.Context(), params, ""); resp.StatusCode != status {
				t.Errorf("%s: %d, want %d", params, resp.StatusCode, status)
			}
		}
		b.silent()
	})
}

func TestEvents_heartbeat(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		l := b.listen("", "")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if n := l.beats.Load(); n != 5 { // at once, and four
			t.Errorf("%d heartbeats in a minute", n)
		}
		l.close()
	})
}

// However many streams there are, one poller asks the store; there is a limit, and it is given back.
func TestEvents_many(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		var ls []*listener
		for range maxStreams {
			ls = append(ls, b.listen("", ""))
		}
		resp := b.openEvents(b.Context(), "", "")
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("one too many: %d %v", resp.StatusCode, resp.Header)
		}
		time.Sleep(1500 * time.Millisecond)
		var polls, reads atomic.Int64
		b.store.breaks(func(op string) error {
			if op == "last-event" {
				polls.Add(1)
			} else {
				reads.Add(1)
			}
			return nil
		}, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if polls.Load() != 10 || reads.Load() != 0 {
			t.Errorf("in ten quiet seconds: %d polls, %d reads", polls.Load(), reads.Load())
		}
		b.happen("default", 0)
		for _, l := range ls {
			l.next("call-0")
			l.close()
		}
		b.silent()
		b.store.breaks(nil, nil)
		l := b.listen("", "")
		l.close()
	})
}

// A store that does not answer is asked again; nothing is missed.
func TestEvents_outage(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		l := b.listen("", "")
		b.store.breaks(fail(errCut, "events", "last-event"), nil)
		b.happen("default", 0)
		l.quiet()
		b.store.breaks(fail(errCut, "events"), nil)
		l.quiet()
		b.store.breaks(nil, nil)
		l.next("call-0")
		l.close()
		b.store.breaks(fail(errCut, "last-event"), nil)
		if resp := b.openEvents(b.Context(), "", ""); resp.StatusCode != 503 {
			t.Errorf("%d", resp.StatusCode)
		}
	})
}

func TestEvents_draining(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		l := b.listen("", "")
		b.Close()
		if e := <-l.events; e.name != "draining" {
			t.Errorf("%+v", e)
		}
		if _, open := <-l.events; open {
			t.Error("the stream goes on")
		}
		if resp := b.openEvents(b.Context(), "", ""); resp.StatusCode != 503 {
			t.Errorf("%d", resp.StatusCode)
		}
	})
}

// A client that does not read is cut off, and holds up nobody.
func TestEvents_readerStops(t *testing.T) {
	newsBubble(t, func(b *bubbled) {
		c := b.dial()
		defer c.Close()
		fmt.Fprintf(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		l := b.listen("", "")
		for i := range 10 {
			b.happen("default", i)
		}
		b.Nudge()
		for i := range 10 {
			l.next(fmt.Sprint("call-", i))
		}
		time.Sleep(ioTimeout + time.Second)
		synctest.Wait()
		if n := metric(t, b.reg, "fence_event_streams"); n != "1" {
			t.Errorf("%s streams are open, want 1", n)
		}
		l.close()
	})
}
