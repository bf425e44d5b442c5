package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoServer says in one line what to install.
var ErrNoServer = errors.New("no PostgreSQL server programs (initdb, postgres, pg_basebackup, pg_rewind) in $PGBIN, PATH or " +
	"the usual folders: install postgresql (Debian, Ubuntu, Alpine), postgresql-server and postgresql-contrib (Fedora) or brew install postgresql@17 (Homebrew)")

// folders are where distributions put the programs that they keep out of PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/lib/postgresql*/bin",
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/usr/local/pgsql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// BinDir is the folder of the server programs: $PGBIN, PATH, what pg_config tells, or the newest in the folders that
// distributions use. A $PGBIN without them is ErrNoServer too: nobody wants to test another server than the one named.
func BinDir() (string, error) {
	if dir := os.Getenv("PGBIN"); dir != "" {
		if !complete(dir) {
			return "", ErrNoServer
		}
		return dir, nil
	}
	for _, dir := range candidates() {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", ErrNoServer
}

// candidates are the folders to look into, the best first.
func candidates() []string {
	var dirs []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	var known []string
	for _, pattern := range folders {
		found, _ := filepath.Glob(pattern) //nolint:errcheck // the patterns are well-formed
		known = append(known, found...)
	}
	// Debian's pg_config tells the newest version even if only its client is installed: complete sorts that out.
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return append(dirs, newestFirst(known)...)
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres", "pg_basebackup", "pg_rewind"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

var digits = regexp.MustCompile(`[0-9]+`)

// newestFirst sorts folders by the version in their names, so that 17 comes before 9.6.
func newestFirst(dirs []string) []string {
	major := func(dir string) int {
		n, _ := strconv.Atoi(digits.FindString(dir)) //nolint:errcheck // no number: the oldest
		return n
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return major(b) - major(a) })
	return dirs
}
