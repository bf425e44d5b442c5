// Package claims decides whether a call that moves money may be sent, and remembers what became of it.
//
// A call is claimed by compare-and-set before any attempt leaves, in the same store transaction that finds the caller's
// lease live. What may happen to a record is decided by pure functions over (record, request, guard, store time); a Store
// only compares, swaps and tells the time. Fence puts both around one call.
//
// The zero value of an outcome is Unknown: what nobody proved has perhaps happened.
package claims
