// Package testnet tests the egress against a network that swallows packets: two namespaces joined by a veth pair. It needs
// Linux, root, iproute2 and nftables, and runs with
//
//	go test -tags net ./proxy/testnet
//
// What it shows: bytes that were written into a black hole are not delivered when the hole heals, neither after the sender
// gave up, nor after it was killed, nor while it is stopped. The first two are SO_LINGER's work, the third
// TCP_USER_TIMEOUT's; without them the same bytes arrive.
package testnet
