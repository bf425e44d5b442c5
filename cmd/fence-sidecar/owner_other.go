//go:build !unix

package main

import (
	"io/fs"
	"os"
)

// keepOwner has nothing to keep: such a system's files have no user and group as Unix's.
func keepOwner(*os.File, fs.FileInfo, func(uid, gid int) error) error { return nil }
