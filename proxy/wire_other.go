//go:build !linux

package proxy

import (
	"net"
	"time"
)

// limitDelivery does nothing here: only Linux has TCP_USER_TIMEOUT. A process that is stopped in the middle of a send may
// have its bytes delivered late.
func limitDelivery(net.Conn, time.Duration) error { return nil }
