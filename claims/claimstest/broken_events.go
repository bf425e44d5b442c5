package claimstest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenEvents = []Broken{
	{"an event is forgotten", "event/every-field-kept", func(d *double) { d.onEvents(func(w *claims.Write) { w.Event = nil }) }},
	{"an event's attempt is forgotten", "event/every-field-kept", func(d *double) {
		d.onEvents(func(w *claims.Write) { w.Event.Attempt = 0 })
	}},
	{"the writer says when", "event/every-field-kept", func(d *double) {
		d.afterSwap(func(data *memory.Data, w []claims.Write, _ claims.Now, _ error) {
			if e := w[0].Event; e != nil {
				data.Events[len(data.Events)-1].At = e.At
			}
		})
	}},
	{"every write is an event", "event/every-field-kept", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) {
			if w.Event == nil {
				w.Event = fullEvent(w.Next.Key)
			}
		})
	}},
	{"what was refused is an event", "event/none-without-its-record", func(d *double) {
		d.afterSwap(func(data *memory.Data, w []claims.Write, now claims.Now, err error) {
			if claims.Refused(err) {
				data.LastEvent++
				data.Events = append(data.Events, stored(*w[0].Event, data.LastEvent, now))
			}
		})
	}},
	{"one event a write", "event/of-two-records-both", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			w = slices.Clone(w)
			for i := range w[1:] {
				w[i+1].Event = nil
			}
			return d.Store.Swap(ctx, c, w...)
		}
	}},
	{"two records are written one by one", "event/of-two-records-none", swapOneByOne},
	{"the event of the cursor is read again", "event/oldest-first-after-the-cursor", func(d *double) {
		d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
			if n, err := strconv.Atoi(after); err == nil && n > 1 {
				after = strconv.Itoa(n - 1)
			}
			return d.Store.Events(ctx, after, limit)
		}
	}},
	{"ids are compared as text", "event/oldest-first-after-the-cursor", func(d *double) {
		d.onListed(func(list []claims.Event, after string) []claims.Event {
			return slices.DeleteFunc(list, func(e claims.Event) bool { return e.ID <= after })
		})
	}},
	{"events by call", "event/oldest-first-after-the-cursor", func(d *double) {
		d.onListed(func(list []claims.Event, _ string) []claims.Event {
			slices.SortFunc(list, func(a, b claims.Event) int { return cmp.Compare(a.Key.Call, b.Key.Call) })
			return list
		})
	}},
	{"no limit", "event/oldest-first-after-the-cursor", func(d *double) {
		d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
			return d.Store.Events(ctx, after, 1000)
		}
	}},
	{"nobody knows the last event", "event/last", func(d *double) {
		d.lastEvent = func(context.Context) (string, error) { return "", nil }
	}},
	{"the last event is the one before", "event/last", func(d *double) {
		d.lastEvent = func(ctx context.Context) (string, error) {
			id, err := d.Store.LastEvent(ctx)
			if n, _ := strconv.Atoi(id); n > 1 {
				id = strconv.Itoa(n - 1)
			}
			return id, err
		}
	}},
	{"ids start anew when all were dropped", "event/last", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			n, err := d.Store.Prune(ctx, before, limit)
			d.Edit(func(data *memory.Data, _ claims.Now) {
				if len(data.Events) == 0 {
					data.LastEvent = 0
				}
			})
			return n, err
		}
		last := ""
		d.lastEvent = func(ctx context.Context) (string, error) {
			if id, err := d.Store.LastEvent(ctx); err != nil || id != "" {
				last = id
				return id, err
			}
			return last, nil
		}
	}},
	{"from an unknown id all is read", "event/unknown-id", func(d *double) {
		d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
			list, err := d.Store.Events(ctx, after, limit)
			if errors.Is(err, claims.ErrBadEvent) {
				return d.Store.Events(ctx, "", limit)
			}
			return list, err
		}
	}},
	{"from an id to come nothing is read", "event/unknown-id", func(d *double) {
		d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
			list, err := d.Store.Events(ctx, after, limit)
			if n, e := strconv.ParseUint(after, 10, 63); e == nil && n > 1 {
				return nil, nil
			}
			return list, err
		}
	}},
	{"ids are given before the commit", "event/reading-on-misses-none", idsBeforeCommit},
	{"a page loses its first event", "event/reading-on-misses-none", func(d *double) {
		d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
			list, err := d.Store.Events(ctx, after, limit)
			if limit < 1000 && len(list) > 1 {
				list = list[1:]
			}
			return list, err
		}
	}},
	{"events are kept for good", "prune/events-only-before", func(d *double) { d.onPrune(func(time.Time, *int, *memory.Data) {}) }},
	{"pruning does not look at an event's time", "prune/events-only-before", func(d *double) {
		d.onPrune(func(_ time.Time, n *int, data *memory.Data) {
			*n += len(data.Events)
			data.Events = nil
		})
	}},
	{"pruning events knows no limit", "prune/events-limit", func(d *double) {
		d.onPrune(func(before time.Time, n *int, data *memory.Data) {
			data.Events = slices.DeleteFunc(data.Events, func(e *memory.Event) bool {
				old := e.At.Store.Before(before)
				if old {
					*n++
				}
				return old
			})
		})
	}},
	{"dropped events do not count", "prune/events-limit", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			events := func() (n int) {
				d.Edit(func(data *memory.Data, _ claims.Now) { n = len(data.Events) })
				return n
			}
			had := events()
			n, err := d.Store.Prune(ctx, before, limit)
			return n - had + events(), err
		}
	}},
}

func stored(e claims.Event, id int, now claims.Now) *memory.Event {
	e.ID, e.At = strconv.Itoa(id), now
	return &memory.Event{Event: e}
}

// onEvents changes the writes that have an event.
func (d *double) onEvents(f func(w *claims.Write)) {
	d.onWrites(func(_ *claims.Condition, w *claims.Write) {
		if w.Event != nil {
			e := *w.Event
			w.Event = &e
			f(w)
		}
	})
}

// afterSwap changes what is stored after a Swap.
func (d *double) afterSwap(f func(data *memory.Data, w []claims.Write, now claims.Now, err error)) {
	d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
		s, err := d.Store.Swap(ctx, c, w...)
		d.Edit(func(data *memory.Data, now claims.Now) { f(data, w, now, err) })
		return s, err
	}
}

// onListed changes what Events returns.
func (d *double) onListed(f func(list []claims.Event, after string) []claims.Event) {
	d.events = func(ctx context.Context, after string, limit int) ([]claims.Event, error) {
		list, err := d.Store.Events(ctx, after, limit)
		return f(list, after), err
	}
}

// onPrune lets f alone drop events.
func (d *double) onPrune(f func(before time.Time, n *int, data *memory.Data)) {
	d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
		var kept []*memory.Event
		d.Edit(func(data *memory.Data, _ claims.Now) { kept, data.Events = data.Events, nil })
		n, err := d.Store.Prune(ctx, before, limit)
		d.Edit(func(data *memory.Data, _ claims.Now) {
			data.Events = kept
			f(before, &n, data)
		})
		return n, err
	}
}

// idsBeforeCommit is a sequence: ids are drawn in order, but not shown in order. The first writer is late: it commits when
// somebody has read what others wrote.
func idsBeforeCommit(d *double) {
	var read atomic.Bool
	d.onListed(func(list []claims.Event, _ string) []claims.Event {
		if len(list) > 0 {
			read.Store(true)
		}
		return list
	})
	d.swap = func(ctx context.Context, c claims.Condition, writes []claims.Write) (claims.Swapped, error) {
		writes = slices.Clone(writes)
		var drawn []*memory.Event
		d.Edit(func(data *memory.Data, now claims.Now) {
			for i := range writes {
				data.LastEvent++
				drawn = append(drawn, stored(*writes[i].Event, data.LastEvent, now))
				writes[i].Event = nil
			}
		})
		for drawn[0].ID == "1" && !read.Load() {
			gap()
		}
		s, err := d.Store.Swap(ctx, c, writes...)
		d.Edit(func(data *memory.Data, _ claims.Now) {
			data.Events = append(data.Events, drawn...)
			slices.SortFunc(data.Events, func(a, b *memory.Event) int { return number(a) - number(b) })
		})
		return s, err
	}
}

func number(e *memory.Event) int {
	n, _ := strconv.Atoi(e.ID)
	return n
}
