//go:build !unix

package pgtest

import (
	"context"
	"errors"
	"os"
	"syscall"
)

var errSystem = errors.New("tests with a real PostgreSQL server need Linux, macOS or another Unix")

type account struct{ uid, gid int }

func unprivileged() (*account, error)               { return nil, errSystem }
func (a *account) attributes() *syscall.SysProcAttr { return nil }
func suspend(int) error                             { return errSystem }
func resume(int) error                              { return errSystem }
func slay(_ context.Context, _ *process) error      { return errSystem }

func descendants(int) ([]int, error) { return nil, errSystem }
func state(int) byte                 { return 0 }
func dead(byte) bool                 { return true }

var signals = map[Mode]os.Signal{}
