//go:build !linux

package sqlite

import "github.com/google/uuid"

var process = "process:" + uuid.NewString()

// systemIdentity is new with every process, as the stand-in for CLOCK_BOOTTIME counts from its start: one process at a
// time can use a file, and a restart waits until the leases of the one before have run out.
func systemIdentity() (string, error) { return process, nil }
