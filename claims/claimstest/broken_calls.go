package claimstest

import (
	"context"
	"errors"
	"net/textproto"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenReads = []Broken{
	{"no record reads as an empty one", "get/no-record", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			v.Record.Key = key
			return v, err
		}
	}},
	{"nobody looks at the sender", "get/snapshot", func(d *double) {
		d.onView(func(v *claims.View) { v.Sender = claims.GuardView{} })
	}},
	{"stale time", "get/time-moves", func(d *double) {
		var first claims.Now
		d.onView(func(v *claims.View) {
			if first.IsZero() {
				first = v.Now
			}
			v.Now = first
		})
	}},
	{"an unknown state reads as open", "get/unreadable", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			if errors.Is(err, claims.ErrUnreadable) {
				v.Record, err = claims.Record{Key: key, Version: 1, State: claims.StateOpen}, nil
			}
			return v, err
		}
	}},
	{"a list ends at what it cannot read", "get/unreadable", func(d *double) {
		d.list = func(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
			list, err := d.Store.List(ctx, tenant, states, limit)
			if err != nil {
				list = nil
			}
			return list, err
		}
	}},
	{"a cancelled write counts as refused", "get/cancelled-is-no-refusal", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			if ctx.Err() != nil {
				err = claims.ErrLost
			}
			return s, err
		}
	}},
}

var brokenSwaps = []Broken{
	{"the last writer wins", "swap/expected-version", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Version = d.version(w.Next.Key) })
	}},
	{"a lost swap does not say to whom", "swap/lost-returns-the-winner", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			if err != nil {
				s.Records = nil
			}
			return s, err
		}
	}},
	{"the guard is not checked", "swap/guard-live", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) { c.Guard = claims.Guard{} })
	}},
	{"a finisher is fenced", "swap/finisher", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) { c.Finisher = false })
	}},
	{"every finisher passes", "swap/finisher", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) { c.Finisher = true })
	}},
	{"a get does not tell the finisher", "swap/finisher", func(d *double) {
		d.onView(func(v *claims.View) { v.Guard.Finisher = false })
	}},
	{"a swap does not tell the finisher", "swap/finisher", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			s.Guard.Finisher = false
			return s, err
		}
	}},
	{"every token of a finished scope is its finisher", "swap/finisher", func(d *double) {
		d.whereFinished(func(c *claims.Condition, token uint64) { c.Guard.Token = token })
	}},
	{"who released counts as the finisher", "swap/finisher", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) {
			if l, err := d.Store.State(context.Background(), c.Guard.Scope); err == nil && c.Finisher && l.Status == claims.LeaseReleased {
				c.Guard = claims.Guard{}
			}
		})
	}},
	{"the own instance is not checked", "swap/sender-live", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) { c.Sender = claims.Guard{} })
	}},
	{"a refused sender is told as the guard", "swap/sender-live", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			if e, ok := errors.AsType[*claims.FencedError](err); ok {
				e.Sender = false
			}
			return s, err
		}
	}},
	{"a live sender is overtaken", "swap/dead-sender", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) { c.Dead = claims.Guard{} })
	}},
	{"a verdict needs the record's lease", "swap/no-condition", func(d *double) {
		d.onWrites(func(c *claims.Condition, w *claims.Write) {
			if c.Sender.IsZero() && w.Version > 0 {
				c.Sender = w.Next.Sender
			}
		})
	}},
	{"versions are checked first", "swap/order-of-refusals", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			if w[0].Version != d.version(w[0].Next.Key) {
				return claims.Swapped{}, claims.ErrLost
			}
			return d.Store.Swap(ctx, c, w...)
		}
	}},
	{"what the last read said of a lease counts", "swap/judged-at-the-write", func(d *double) {
		live := map[claims.Guard]bool{}
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			live[g] = v.Guard.Live()
			return v, err
		}
		d.onWrites(func(c *claims.Condition, _ *claims.Write) {
			if live[c.Guard] {
				c.Guard = claims.Guard{}
			}
		})
	}},
	{"refused, and written all the same", "swap/refused-writes-nothing", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			if claims.Refused(err) {
				d.Store.Swap(ctx, claims.Condition{}, w...)
			}
			return s, err
		}
	}},
	{"a swap tells nothing of its leases", "swap/returns-standings", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			s.Guard, s.Sender = claims.GuardView{}, claims.GuardView{}
			return s, err
		}
	}},
	{"the second record is forgotten", "swap/two-records-both", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			return d.Store.Swap(ctx, c, w[0])
		}
	}},
	{"two records are written one by one", "swap/two-records-none", swapOneByOne},
	{"what cannot be read is overwritten", "swap/unreadable", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			d.calls(func(c *memory.Call, _ claims.Now) {
				if !c.Record.State.Readable() {
					c.Record.State = claims.StateOpen
				}
			})
			return d.Store.Swap(ctx, c, w...)
		}
	}},
	{"every write makes the record new", "swap/stamps-every-write", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Next.Created = claims.Now{} })
	}},
	{"a claim is not stamped", "swap/stamps-a-claim", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Claim = false })
	}},
	{"the key's age counts from the last claim", "swap/stamps-a-claim", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Next.FirstStarted = claims.Now{} })
	}},
}

var brokenContents = []Broken{
	{"a field is forgotten", "record/every-field-kept", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Next.Facts.Route = "" })
	}},
	{"keys without case", "record/keys-are-bytes", func(d *double) { d.onKeys(strings.ToLower) }},
	{"keys without trailing space", "record/keys-are-bytes", func(d *double) {
		d.onKeys(func(s string) string { return strings.TrimRight(s, " ") })
	}},
	{"keys without accents", "record/keys-are-bytes", func(d *double) {
		d.onKeys(func(s string) string { return strings.ReplaceAll(s, "e\u0301", "é") })
	}},
	{"tenant and key run together", "record/keys-are-bytes", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Next.Key = joined(w.Next.Key) })
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, joined(key), g)
			v.Record.Key = key
			return v, err
		}
	}},
	{"hands out what it keeps", "record/handed-out-as-copies", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			d.Edit(func(data *memory.Data, _ claims.Now) {
				if c, ok := data.Calls[key]; ok && err == nil {
					v.Record = c.Record
				}
			})
			return v, err
		}
	}},
	{"keeps what it was given", "record/taken-in-as-copies", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			s, err := d.Store.Swap(ctx, c, w...)
			d.Edit(func(data *memory.Data, _ claims.Now) {
				if c, ok := data.Calls[w[0].Next.Key]; ok && err == nil {
					c.Record.Answer = w[0].Next.Answer
				}
			})
			return s, err
		}
	}},
	{"no bytes and no body are one", "record/no-body-and-empty-body", func(d *double) {
		d.onAnswers(func(a *claims.Answer) {
			if len(a.Body) == 0 {
				a.Body = nil
			}
		})
	}},
	{"header names are made canonical", "record/header-lines", func(d *double) {
		d.onAnswers(func(a *claims.Answer) {
			for i := range a.Header {
				a.Header[i].Name = textproto.CanonicalMIMEHeaderKey(a.Header[i].Name)
			}
		})
	}},
	{"header lines are sorted", "record/header-lines", func(d *double) {
		d.onAnswers(func(a *claims.Answer) {
			slices.SortFunc(a.Header, func(a, b claims.Field) int { return strings.Compare(a.Value, b.Value) })
		})
	}},
	{"header bytes are made UTF-8", "record/header-bytes", func(d *double) {
		d.onAnswers(func(a *claims.Answer) {
			for i := range a.Header {
				a.Header[i].Value = strings.ToValidUTF8(a.Header[i].Value, "\ufffd")
			}
		})
	}},
	{"an answer cannot be taken away", "record/answer-replaced", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) {
			d.calls(func(c *memory.Call, _ claims.Now) {
				if c.Record.Key == w.Next.Key && w.Next.Answer == nil {
					w.Next.Answer = c.Record.Answer.Clone()
				}
			})
		})
	}},
	{"age by store time alone", "record/age", func(d *double) {
		d.now = func() claims.Now { n := d.clock.Now(); return claims.Now{Store: n.Store, Wall: n.Store} }
	}},
	{"the oldest is listed first", "list/newest-first", func(d *double) {
		d.list = func(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
			list, err := d.Store.List(ctx, tenant, states, limit)
			slices.Reverse(list)
			return list, err
		}
	}},
	{"every tenant's calls are listed", "list/of-tenant-and-states", func(d *double) {
		d.list = func(ctx context.Context, _ string, states []claims.State, limit int) ([]claims.Record, error) {
			return d.Store.List(ctx, "", states, limit)
		}
	}},
	{"calls of every state are listed", "list/of-tenant-and-states", func(d *double) {
		d.list = func(ctx context.Context, tenant string, _ []claims.State, limit int) ([]claims.Record, error) {
			return d.Store.List(ctx, tenant, nil, limit)
		}
	}},
	{"no realm", "store/realm-and-keys", func(d *double) { d.realm = func() string { return "" } }},
	{"keys of an unknown kind", "store/realm-and-keys", func(d *double) { d.keyset = func() []byte { return []byte("0123456789abcdef") } }},
	{"hands out its keys themselves", "store/realm-and-keys", func(d *double) {
		kept := d.Store.Keyset()
		d.keyset = func() []byte { return kept }
	}},
	{"confirming asks nobody", "store/confirm", func(d *double) { d.confirm = func(context.Context) error { return nil } }},
	{"closing does nothing", "store/close", func(d *double) { d.close = func() error { return nil } }},
}

func (d *double) whereFinished(f func(c *claims.Condition, token uint64)) {
	d.onWrites(func(c *claims.Condition, _ *claims.Write) {
		d.edit(c.Guard.Scope, func(l *memory.Lease, _ claims.Now) {
			if c.Finisher && l.End == claims.LeaseFinished {
				f(c, l.Token)
			}
		})
	})
}

func (d *double) version(key claims.Key) (v int64) {
	d.Edit(func(data *memory.Data, _ claims.Now) {
		if c, ok := data.Calls[key]; ok {
			v = c.Record.Version
		}
	})
	return v
}

// swapOneByOne writes two records in two transactions.
func swapOneByOne(d *double) {
	d.swap = func(ctx context.Context, c claims.Condition, writes []claims.Write) (claims.Swapped, error) {
		var all claims.Swapped
		var lost error
		for _, w := range writes {
			s, err := d.Store.Swap(ctx, c, w)
			s.Records = append(all.Records, s.Records...)
			all = s
			if err != nil && !errors.Is(err, claims.ErrLost) {
				return all, err
			}
			lost = errors.Join(lost, err)
			gap()
		}
		return all, lost
	}
}

// onKeys folds call keys, and tenants too.
func (d *double) onKeys(fold func(string) string) {
	folded := func(k claims.Key) claims.Key { return claims.Key{Tenant: fold(k.Tenant), Call: fold(k.Call)} }
	d.onWrites(func(_ *claims.Condition, w *claims.Write) { w.Next.Key = folded(w.Next.Key) })
	d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
		return d.Store.Get(ctx, folded(key), g)
	}
}

func joined(k claims.Key) claims.Key { return claims.Key{Call: k.Tenant + k.Call} }

// onAnswers changes the answers that a Get returns.
func (d *double) onAnswers(f func(*claims.Answer)) {
	d.onView(func(v *claims.View) {
		if v.Record.Answer != nil {
			f(v.Record.Answer)
		}
	})
}
