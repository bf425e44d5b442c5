package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

const (
	keptBatch = 100 // kept notices that are taken from the store at once
	keptRound = 10  // batches in one round; the store gives new notices first, then those that waited longest
)

// keep keeps a notice until its call is there, or until it may count. Its name holds the account: two accounts' ids may be equal.
func (in *Intake) keep(ctx context.Context, p place, n *gateways.Notice) error {
	body, err := n.Pack(p.account)
	if err != nil {
		return err
	}
	return in.Inbox.Keep(ctx, claims.Early{Tenant: p.tenant, Gateway: p.g.Name, ID: keptName(p.account, n.ID), Body: body})
}

func keptName(account, id string) string {
	if name := account + "/" + id; len(name) <= claims.MaxKey {
		return name
	}
	sum := sha256.Sum256([]byte(account + "/" + id))
	return account + "/sha256:" + hex.EncodeToString(sum[:])
}

// Retry tries the notices that are kept, each once, a thousand at most. Several processes may: to apply one twice changes nothing.
func (in *Intake) Retry(ctx context.Context) error {
	v, err := in.Store.Get(ctx, claims.Key{Tenant: "-", Call: "-"}, claims.Guard{}) // for the store's time
	if err != nil {
		return err
	}
	type name struct{ tenant, gateway, id string }
	seen := map[name]bool{}
	for range keptRound {
		es, err := in.Inbox.Kept(ctx, in.Reconciler.Tenants, keptBatch)
		if err != nil {
			return err
		}
		for i := range es {
			e := &es[i]
			k := name{e.Tenant, e.Gateway, e.ID}
			if seen[k] {
				return nil
			}
			seen[k] = true
			if err := in.retry(ctx, e, v.Now); err != nil {
				return err
			}
		}
		if len(es) < keptBatch {
			return nil
		}
	}
	return nil
}

// heeded are the results after which a kept notice has nothing more to wait for.
var heeded = []string{NoticeTaken, NoticeKnown, NoticeNoted, NoticeConflict, NoticeRefused, NoticeMismatch, NoticeWoken}

// retry tries one kept notice. It is dropped only once what it tells lasts, or once it has waited too long.
func (in *Intake) retry(ctx context.Context, e *claims.Early, now claims.Now) error {
	ctx, cancel := context.WithTimeout(ctx, in.Timeout+in.Reconciler.LookupTimeout)
	defer cancel()
	result, err := in.early(ctx, e)
	old := now.Age(e.At) >= in.Keep
	switch {
	case errors.Is(err, claims.ErrUnreadable) && !old: // of this one call only
		in.Log.Warn("a kept notice waits", "tenant", e.Tenant, "gateway", e.Gateway, "notice", e.ID, "error", err)
		return nil
	case err != nil && !errors.Is(err, claims.ErrUnreadable):
		return fmt.Errorf("notice %s: %w", e.ID, err)
	case slices.Contains(heeded, result):
		if err := in.Store.Confirm(ctx); err != nil {
			return fmt.Errorf("a notice stays kept, what it told may not last: %w", err)
		}
	case !old:
		return nil
	default:
		result = NoticeOrphan
		in.Log.Warn("a notice waited too long for its call; it is dropped", "tenant", e.Tenant, "gateway", e.Gateway, "notice", e.ID)
	}
	if err := in.Inbox.Drop(ctx, e.Tenant, e.Gateway, e.ID); err != nil {
		return fmt.Errorf("drop notice %s: %w", e.ID, err)
	}
	in.result(e.Gateway, result)
	return nil
}

func (in *Intake) early(ctx context.Context, e *claims.Early) (string, error) {
	account, n, err := gateways.UnpackNotice(e.Body)
	if err != nil {
		in.Log.Warn("a kept notice cannot be read; a newer version may", "tenant", e.Tenant, "gateway", e.Gateway, "notice", e.ID)
		return NoticeKept, nil
	}
	g, ok := in.Reconciler.Gateways.ByName(e.Gateway)
	if !ok { // another process may know it
		return NoticeKept, nil
	}
	return in.apply(ctx, place{e.Tenant, g, account}, &n, true)
}

// maxWakes bounds the calls that wait for being asked about. One that finds no place is left to the sweeper.
const maxWakes = 10_000

// wakes are the calls that a notice wants to be asked about, each once, with a pause between two times.
type wakes struct {
	pause time.Duration
	mu    sync.Mutex
	queue []claims.Key
	state map[claims.Key]waking
	some  chan struct{}
}

type waking int

const (
	waits  waking = iota + 1
	asked         // being asked about, or not long ago
	asking        // as asked, and to be asked about again
)

func (w *wakes) init(pause time.Duration) {
	w.pause, w.state, w.some = pause, map[claims.Key]waking{}, make(chan struct{}, 1)
}

// put never waits.
func (w *wakes) put(k claims.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state[k] == asked:
		w.state[k] = asking
	case w.state[k] == 0 && len(w.state) < maxWakes:
		w.state[k] = waits
		w.queue = append(w.queue, k)
		w.signal()
	}
}

func (w *wakes) signal() {
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *wakes) take() (k claims.Key, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		return k, false
	}
	k, w.queue = w.queue[0], w.queue[1:]
	w.state[k] = asked
	if len(w.queue) > 0 {
		w.signal() // for the next worker
	}
	return k, true
}

// rest lets a call be woken again.
func (w *wakes) rest(k claims.Key) {
	w.mu.Lock()
	again := w.state[k] == asking
	delete(w.state, k)
	w.mu.Unlock()
	if again {
		w.put(k)
	}
}

func (w *wakes) run(ctx context.Context, ask func(context.Context, claims.Key)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.some:
		}
		for k, ok := w.take(); ok && ctx.Err() == nil; k, ok = w.take() {
			ask(ctx, k)
			time.AfterFunc(w.pause, func() { w.rest(k) })
		}
	}
}
