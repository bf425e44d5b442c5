package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestCacheKnowsTheSources looks at every file that the program under test is built from: it is built by a command of its own, of which
// go test knows nothing, and a result of before a change would be taken from the cache.
func TestCacheKnowsTheSources(t *testing.T) {
	n := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "bin", "out", "tools"}, d.Name()) {
			return filepath.SkipDir
		}
		if !slices.Contains([]string{".go", ".sql", ".yaml", ".mod", ".sum"}, filepath.Ext(path)) {
			return nil
		}
		n++
		_, err = os.Stat(path)
		return err
	})
	if err != nil || n < 200 {
		t.Errorf("%d files were found: %v", n, err)
	}
}
