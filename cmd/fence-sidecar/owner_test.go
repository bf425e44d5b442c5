//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ownedBy is a file's info with another user and group.
type ownedBy struct {
	fs.FileInfo
	sys *syscall.Stat_t
}

func (o ownedBy) Sys() any { return o.sys }

func TestKeepOwner(t *testing.T) {
	f, err := os.Open(made(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	own := *st.Sys().(*syscall.Stat_t)
	for name, change := range map[string]func(*syscall.Stat_t){
		"its own":       func(*syscall.Stat_t) {},
		"another user":  func(s *syscall.Stat_t) { s.Uid += 7 },
		"another group": func(s *syscall.Stat_t) { s.Gid += 7 },
	} {
		was := own
		change(&was)
		differs := was != own
		for _, answer := range []error{nil, syscall.EPERM} {
			asked := 0
			err := keepOwner(f, ownedBy{st, &was}, func(uid, gid int) error {
				if uid != int(was.Uid) || gid != int(was.Gid) {
					t.Errorf("%s: given to %d and %d", name, uid, gid)
				}
				asked++
				return answer
			})
			if (asked == 1) != differs || (err != nil) != (differs && answer != nil) || err != nil && !strings.Contains(err.Error(), "keys.json belongs to user") {
				t.Errorf("%s, chown %v: asked %d times, %v", name, answer, asked, err)
			}
		}
	}
}

// TestKeysRotateKeepsTheOwner where the test may give files away, else the file's own.
func TestKeysRotateKeepsTheOwner(t *testing.T) {
	path := made(t)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	owner := func() [2]uint32 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		s := st.Sys().(*syscall.Stat_t)
		return [2]uint32{s.Uid, s.Gid}
	}
	before := owner()
	if err := (keysRotateCmd{File: path}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if owner() != before || mode(t, path) != 0o600 {
		t.Errorf("owner %v, mode %v; before %v", owner(), mode(t, path), before)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("left %v, %v", files, err)
	}
}
