package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func wantSettingError(t *testing.T, cfg Config, setting string) {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err == nil {
		s.Close()
	}
	e, ok := errors.AsType[*SettingError](err)
	if !ok || !errors.Is(err, ErrSetting) || !strings.HasPrefix(e.Setting, setting) {
		t.Errorf("%+v: %v, want %s refused", cfg.Pragmas, err, setting)
	}
}

func TestUnsafeSettingsAreRefused(t *testing.T) {
	path := migrated(t)
	for _, p := range []string{"", ":memory:", "file::memory:", "file:" + path, "a\x00b"} {
		wantSettingError(t, Config{Path: p}, "path")
	}
	for name, value := range map[string]string{
		"synchronous":              "NORMAL",
		"locking_mode":             "EXCLUSIVE",
		"ignore_check_constraints": "1",
		"read_uncommitted":         "1",
		"writable_schema":          "1",
		"mmap_size":                "1000",
		"cache_size":               "1; PRAGMA synchronous=OFF",
		"wal_autocheckpoint":       "",
	} {
		wantSettingError(t, Config{Path: path, Pragmas: map[string]string{name: value}}, name)
	}
	wantSettingError(t, Config{Path: path, Pragmas: map[string]string{"synchronous": "OFF"}}, "synchronous")
	wantSettingError(t, Config{Path: path, Pragmas: map[string]string{"synchronous": "EXTRA"}}, "synchronous")
	open(t, Config{Path: path, Pragmas: map[string]string{"cache_size": "-4000", "synchronous": "FULL"}}).Close()
	alter(t, path, `PRAGMA journal_mode = DELETE`)
	wantSettingError(t, Config{Path: path}, "journal_mode")
}

func TestFileSystems(t *testing.T) {
	path := migrated(t)
	on := func(dir, file int64) func(string) (int64, error) {
		return func(p string) (int64, error) {
			if p == path {
				return file, nil
			}
			return dir, nil
		}
	}
	const ext4, nfs, cifs, fuse, unknown = 0xef53, 0x6969, 0xff534d42, 0x65735546, 0x1234
	for _, magic := range []int64{nfs, cifs, fuse, unknown, magicTmpfs} {
		wantSettingError(t, Config{Path: path, magic: on(magic, ext4)}, "file system of "+filepath.Dir(path))
		wantSettingError(t, Config{Path: path, magic: on(ext4, magic)}, "file system of "+path)
	}
	wantSettingError(t, Config{Path: path, magic: on(nfs, nfs), AllowTmpfs: true}, "file system")
	for magic := range safe {
		open(t, Config{Path: path, magic: on(magic, magic)}).Close()
	}
	open(t, Config{Path: path, magic: on(magicTmpfs, magicTmpfs), AllowTmpfs: true}).Close()
}

// TestLinkIsFollowed: the file system that counts is that of the file itself.
func TestLinkIsFollowed(t *testing.T) {
	path := migrated(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	var asked []string
	magic := func(p string) (int64, error) { asked = append(asked, p); return 0xef53, nil }
	open(t, Config{Path: link, magic: magic}).Close()
	if len(asked) != 2 || asked[1] != path {
		t.Errorf("asked about %q, want %q", asked, path)
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "a?mode=memory.db", "a#b.db", "100%25.db", "ü.db"} {
		path := filepath.Join(t.TempDir(), name)
		if _, err := Migrate(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		open(t, Config{Path: path}).Close()
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
