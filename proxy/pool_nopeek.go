//go:build !linux && !darwin && !freebsd

package proxy

import "net"

// quiet is never true here: without a look at the socket no connection is used twice.
func quiet(net.Conn) bool { return false }
