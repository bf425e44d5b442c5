package pgtest

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestBinDir(t *testing.T) {
	dir, err := BinDir()
	must(t, err)
	t.Setenv("PGBIN", dir)
	if got, err := BinDir(); got != dir || err != nil {
		t.Errorf("with $PGBIN: %s (%v)", got, err)
	}
	t.Setenv("PGBIN", t.TempDir())
	if got, err := BinDir(); !errors.Is(err, ErrNoServer) || strings.Contains(err.Error(), "\n") {
		t.Errorf("with a wrong $PGBIN: %s (%v)", got, err)
	}
}

func TestNewestFirst(t *testing.T) {
	got := newestFirst([]string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/17/bin", "/opt/homebrew/opt/postgresql@15/bin"})
	want := []string{"/usr/lib/postgresql/17/bin", "/opt/homebrew/opt/postgresql@15/bin", "/usr/lib/postgresql/9.6/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
