// Package e2e holds the tests of the built program: processes on one SQLite file or one PostgreSQL schema, a gateway that counts at its socket, and
// signals. What they share is one invariant, counted at the gateway: a call is executed at most once, and every call ends
// settled or with a person.
package e2e
