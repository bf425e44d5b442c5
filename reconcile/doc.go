// Package reconcile finds out what became of calls in doubt: it asks the gateway, makes a verdict of the answer and lets
// the record's version decide whether it still counts. Its lookups are reads with a client of their own; it never sends a
// call.
package reconcile
