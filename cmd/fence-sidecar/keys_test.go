package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/claims/sqlite"
)

// made is a file with a fresh key set.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := (keysNewCmd{Out: path}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode()
}

func TestKeysNew(t *testing.T) {
	path := made(t)
	if m := mode(t, path); m != 0o600 {
		t.Errorf("mode %v", m)
	}
	before := contents(t, path)
	if err := (keysNewCmd{Out: path}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not overwritten") {
		t.Errorf("over a key set: %v", err)
	}
	if contents(t, path) != before || before == contents(t, made(t)) {
		t.Error("overwritten, or two sets are equal")
	}
	if err := (keysShowCmd{File: path}).Run(); err != nil {
		t.Error(err)
	}
}

// TestKeysNewOfAStore begins with the store's own keys, and is refused where the configuration has a set: sidecars write with that.
func TestKeysNewOfAStore(t *testing.T) {
	store := filepath.Join(t.TempDir(), "fence.db")
	if _, err := sqlite.Migrate(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("store: {path: %q, allowTmpfs: true}\n", store) + okGateway
	out := filepath.Join(t.TempDir(), "keys.json")
	configured := write(t, text+fmt.Sprintf("keys: {file: %q}\n", made(t)))
	if err := (keysNewCmd{Out: out, Config: configured}).Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), configured+": keys: ") {
		t.Errorf("beside a configured set: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("refused, and a file is there: %v", err)
	}
	if err := (keysNewCmd{Out: out, Config: write(t, text)}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := readKeys(out); err != nil || len(s.Pending()) != 2 {
		t.Errorf("%v, %v", s, err)
	}
}

// TestKeysRotate: the file is replaced in one step, and is what it was in every other way.
func TestKeysRotate(t *testing.T) {
	path := made(t)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	rotate := keysRotateCmd{File: link}
	if err := rotate.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := readKeys(path)
	if err != nil || len(s.Pending()) != 2 || mode(t, path) != 0o640 || mode(t, link)&fs.ModeSymlink == 0 {
		t.Errorf("after the first step: %v, pending %v, modes %v, %v", err, s.Pending(), mode(t, path), mode(t, link))
	}
	before := contents(t, path)
	if err := rotate.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--config must name the store") {
		t.Errorf("the second step without a store: %v", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); contents(t, path) != before || len(files) != 1 {
		t.Errorf("a refused step left %v", files)
	}
	for name, text := range map[string]string{"broken": "{", "empty": "", "large": strings.Repeat(" ", maxKeyFile+1)} {
		bad := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (keysRotateCmd{File: bad}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), bad) || contents(t, bad) != text {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConfiguredRing: the configured set writes, the store's own reads; every mistake is one line that names its place.
func TestConfiguredRing(t *testing.T) {
	b := memory.New(memory.Config{})
	own, err := keys.Parse(b.Keyset())
	if err != nil {
		t.Fatal(err)
	}
	alone, err := (&Config{}).ring(b)
	if err != nil || alone.Primaries()[0] != own.Keys()[0].ID {
		t.Fatalf("without a configured set: %v", err)
	}
	f, err := alone.Sign(1, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	path := made(t)
	c := &Config{file: "fence.yaml"}
	c.Keys.File = path
	r, err := c.ring(b)
	if err != nil {
		t.Fatal(err)
	}
	set, err := readKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{set.Keys()[0].ID, set.Keys()[1].ID}, r.Primaries()); d != "" {
		t.Error(d)
	}
	if same, err := r.Match(f, 1, []byte("x")); !same || err != nil {
		t.Errorf("a fingerprint by the store's own set: %v, %v", same, err)
	}
	t.Setenv("TEST_FENCE_KEYS", contents(t, path))
	inEnv := &Config{file: "fence.yaml"}
	inEnv.Keys.Env = "TEST_FENCE_KEYS"
	if r, err := inEnv.ring(b); err != nil || r.Primaries()[0] != set.Keys()[0].ID {
		t.Errorf("in the environment: %v", err)
	}
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		broken:                "fence.yaml: keys: " + broken + ": key set: fingerprints is missing",
		broken + ".not-there": "fence.yaml: keys: secret file " + broken + ".not-there",
	} {
		c.Keys.File = file
		if _, err := c.ring(b); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c.Keys.Env = "TEST_FENCE_KEYS"
	if err := c.checkKeys(); err == nil || !strings.Contains(err.Error(), "either env or file") {
		t.Errorf("both: %v", err)
	}
}

// TestCommandThatWritesChecksItsRing: a command is no member, and must not write what a live sidecar cannot read either.
func TestCommandThatWritesChecksItsRing(t *testing.T) {
	b := memory.New(memory.Config{})
	c := &Config{}
	if err := c.checkRing(t.Context(), b); err != nil {
		t.Errorf("with nobody: %v", err)
	}
	l, err := b.Acquire(t.Context(), claims.InstancePrefix+"a", "host/1 x", 10_000_000_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.checkRing(t.Context(), b); err == nil || !strings.Contains(err.Error(), "has not said yet") {
		t.Errorf("with a silent one: %v", err)
	}
	say := func(ids ...string) {
		if err := b.Announce(t.Context(), claims.Member{Guard: l.Guard, Keys: ids}); err != nil {
			t.Fatal(err)
		}
	}
	say("00000001")
	if err := c.checkRing(t.Context(), b); err == nil || !strings.Contains(err.Error(), "cannot be read by host/1 x") {
		t.Errorf("with one that has other keys: %v", err)
	}
	r, err := c.ring(b)
	if err != nil {
		t.Fatal(err)
	}
	say(r.IDs()...)
	if err := c.checkRing(t.Context(), b); err != nil {
		t.Errorf("with one that can read: %v", err)
	}
}
