//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the user and group of the one that it will replace: a sidecar that runs as that user must be able to
// read it.
func keepOwner(f *os.File, was fs.FileInfo, chown func(uid, gid int) error) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	got, ok := st.Sys().(*syscall.Stat_t)
	want, ok2 := was.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || got.Uid == want.Uid && got.Gid == want.Gid {
		return nil
	}
	if err := chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("%s belongs to user %d and group %d, and its replacement would to %d and %d; run this as that user, the file is as it was: %w",
			was.Name(), want.Uid, want.Gid, got.Uid, got.Gid, err)
	}
	return nil
}
