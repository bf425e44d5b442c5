// Package gateways says what a payment gateway is: where the idempotency key goes, where our reference is written, what an
// answer proves, and how to find out what became of a call.
//
// A gateway is one Gateway value, built in or read from a YAML file of the same struct. Nothing here opens a connection:
// a lookup gets its answers from the caller's Asker. What no rule lists is unknown, never a guess.
//
//go:generate go run ../cmd/fence-sidecar gateway docs --out ../docs/gateways.md
package gateways
