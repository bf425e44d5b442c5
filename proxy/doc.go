// Package proxy takes one fenced request in and lets at most one send out.
//
// A request comes in on loopback, its gateway is found by the listener's port, the path's first segment or the Host
// header; its body is read whole, a claim is made through claims.Fence, and Egress, the only place that sends a call,
// writes it once. Whatever is refused gets a problem answer (RFC 9457) that is also an error in the gateway's own shape.
package proxy
