// Package sandbox is a misbehaving payment gateway: Stripe's paths, objects, idempotency and errors over HTTP and HTTPS,
// with a ledger of what it really executed and faults that can be switched on one by one.
//
// It counts every request at its socket, as soon as the head was read, so that a test about sends needs nobody's word.
// Stripe is a trademark of its owner; nothing here is endorsed by it.
package sandbox
