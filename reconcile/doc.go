// Package reconcile finds out what became of calls in doubt, and where the money is of those that succeeded: it asks the gateway,
// makes a verdict of the answer and lets the record's version decide whether it still counts. Its lookups are reads with a client
// of their own; it never sends a call. It also delivers the events that tell of what was found.
package reconcile
