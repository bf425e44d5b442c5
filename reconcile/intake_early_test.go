package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// newSecond is another process on the desk's store.
func newSecond(t *testing.T, d *desk) *desk {
	o := &desk{world: d.world, store: d.store}
	o.in = d.intake()
	o.srv = httptest.NewServer(o.in)
	t.Cleanup(o.srv.Close)
	return o
}

func (d *desk) retry() {
	d.t.Helper()
	if err := d.in.Retry(context.Background()); err != nil {
		d.t.Error(err)
	}
}

// A notice that came before its call waits for it, without anything of the event but what finds the call, and counts once.
func TestEarlyNotice(t *testing.T) {
	d := newDesk(t, nil)
	for range 3 {
		d.tell(paid(key).json(), 200)
	}
	es := d.kept()
	if len(es) != 1 || es[0].ID != "shop/evt_"+key || strings.Contains(string(es[0].Body), "ada@") || strings.Contains(string(es[0].Body), "receipt") {
		t.Fatalf("kept %+v", es)
	}
	d.wantTold("kept kept kept")
	d.retry()
	if len(d.kept()) != 1 {
		t.Error("it was dropped before its call came")
	}
	was := d.doubt(key, "charges_create")
	d.store.set(func(f *frail) { f.confirm = errors.New("no standby") })
	if d.in.Retry(t.Context()) == nil || len(d.kept()) != 1 {
		t.Error("it was dropped before what it told could last")
	}
	d.store.set(func(f *frail) { f.confirm = nil })
	other := newSecond(t, d)
	var wg sync.WaitGroup
	wg.Go(d.retry)
	wg.Go(other.retry)
	wg.Wait()
	r := d.record(key)
	if d.want(r, claims.StateSucceeded); r.Version != was.Version+1 || len(r.Evidence) != 1 || len(d.kept()) != 0 {
		t.Errorf("version %d after %d, %d words, %d kept", r.Version, was.Version, len(r.Evidence), len(d.kept()))
	}
	d.tell(paid(key).json(), 200) // and once more from the gateway
	if d.record(key).Version != r.Version {
		t.Error("it counted twice")
	}
	d.noSend()
}

// A kept success has no answer: the gateway is asked first, so that the app gets one.
func TestEarlyNoticeBringsTheAnswer(t *testing.T) {
	d := newDesk(t, nil)
	e := event{id: "evt_1", kind: "payment_intent.succeeded", object: "pi_1", status: "succeeded", call: key}
	d.tell(e.json(), 200)
	d.doubt(key, "payment_intents_create")
	d.charge(key, "4990")
	d.retry()
	r := d.record(key)
	if d.want(r, claims.StateSucceeded); r.Answer == nil || !strings.Contains(string(r.Answer.Body), "payment_intent") || len(d.kept()) != 0 {
		t.Errorf("answer %+v, %d kept", r.Answer, len(d.kept()))
	}
	if n := len(d.events()); n != 1 {
		t.Errorf("%d events", n)
	}
}

// A failure counts only once the gateway can no longer execute the call. Until then it waits, and a success overtakes it.
func TestEarlyFailure(t *testing.T) {
	d := newDesk(t, nil)
	for _, call := range []string{"a", "b"} {
		d.doubt(call, "charges_create")
		d.tell(failed(call).json(), 200)
		d.want(d.record(call), claims.StateUnknown)
	}
	d.wantTold("early early")
	d.retry()
	if len(d.kept()) != 2 {
		t.Errorf("%d kept", len(d.kept()))
	}
	d.tell(paid("b").json(), 200)
	d.advance(11 * time.Minute)
	d.retry()
	d.want(d.record("a"), claims.StateDeclined)
	d.want(d.record("b"), claims.StateReview) // both were said, and only a person knows
	if len(d.kept()) != 0 {
		t.Errorf("%d kept", len(d.kept()))
	}
	d.noSend()
}

// A notice about a call that nobody made is an orphan after three days: counted, logged, gone.
func TestOrphans(t *testing.T) {
	d := newDesk(t, nil)
	for i := range 250 {
		d.tell(paid(fmt.Sprint("x", i)).json(), 200)
	}
	d.told()
	d.advance(71 * time.Hour)
	d.retry()
	if n := len(d.kept()); n != 250 {
		t.Errorf("%d kept", n)
	}
	d.wantTold("")
	d.advance(2 * time.Hour)
	d.retry()
	if got := d.told(); strings.Count(got, "orphan") != 250 || len(d.kept()) != 0 {
		t.Errorf("%s; %d kept", got, len(d.kept()))
	}
	if n := strings.Count(d.log.String(), "waited too long for its call"); n != 250 {
		t.Errorf("%d lines", n)
	}
}

// A store that is away drops nothing, however old it is.
func TestOldNoticeAndNoStore(t *testing.T) {
	d := newDesk(t, nil)
	d.tell(paid(key).json(), 200)
	d.doubt(key, "charges_create")
	d.advance(73 * time.Hour)
	d.store.set(func(f *frail) { f.down = true })
	if d.in.Retry(t.Context()) == nil || len(d.kept()) != 1 {
		t.Error("it was dropped")
	}
	d.store.set(func(f *frail) { f.down = false })
	d.retry()
	d.want(d.record(key), claims.StateSucceeded)
}

// The intake itself tries what is kept, at every interval.
func TestIntakeRuns(t *testing.T) {
	d := newDesk(t, nil)
	d.run(t)
	d.tell(paid(key).json(), 200)
	d.doubt(key, "charges_create")
	soon(t, "the kept notice counts", func() bool { return d.record(key).State == claims.StateSucceeded && len(d.kept()) == 0 })
}

// A round is bounded: of more notices than fit in one, every one has its turn in the next rounds.
func TestRetryIsBounded(t *testing.T) {
	d := newDesk(t, nil)
	const all = 1500
	for i := range all {
		if err := d.store.Keep(t.Context(), claims.Early{Tenant: "t", Gateway: "stripe", ID: fmt.Sprint("shop/", i), Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	d.advance(73 * time.Hour)
	for _, left := range []int{500, 0} {
		d.retry()
		if n := len(d.kept()); n != left {
			t.Errorf("%d are left, want %d", n, left)
		}
	}
}
