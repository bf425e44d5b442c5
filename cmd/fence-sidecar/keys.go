package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

// maxKeyFile bounds what is read of a file of keys.
const maxKeyFile = 1 << 20

type keysCmd struct {
	New    keysNewCmd    `cmd:"" help:"Make a key set. With --config it begins with the store's own keys, for sidecars that already serve without a configured set."`
	Rotate keysRotateCmd `cmd:"" help:"Take the next step of a rotation: add keys that only read; the next time let them write."`
	Show   keysShowCmd   `cmd:"" help:"Print the ids of a key set, no secrets."`
}

type keysNewCmd struct {
	Out    string `placeholder:"FILE" help:"Where to write it; a file that is there is not overwritten. Without it: standard output."`
	Config string `short:"c" placeholder:"FILE" help:"Configuration file of a store whose own keys the set begins with: it writes as before, and can read one key more."`
}

// Run makes a key set.
func (n keysNewCmd) Run(ctx context.Context) error {
	s, err := n.set(ctx)
	if err != nil {
		return err
	}
	b, err := s.JSON()
	if err != nil {
		return err
	}
	if n.Out == "" {
		_, err := os.Stdout.Write(b)
		return err
	}
	f, err := os.OpenFile(n.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: a key set that is lost cannot be made again, so it is not overwritten", n.Out)
	}
	if err != nil {
		return err
	}
	if err := writeSynced(f, b); err != nil {
		return err
	}
	if err := syncDir(n.Out); err != nil {
		return err
	}
	printKeys(s)
	return nil
}

func (n keysNewCmd) set(ctx context.Context) (*keys.Set, error) {
	if n.Config == "" {
		return keys.New()
	}
	c, b, err := configFlag{n.Config}.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if !c.Keys.IsZero() { // its sidecars write with that set, which the made one would lack
		return nil, c.errorf("keys: %s%s is configured: `keys rotate` adds to that set; --config is for sidecars that serve with the store's own",
			c.Keys.Env, c.Keys.File)
	}
	s, err := keys.Parse(b.Keyset())
	if err != nil {
		return nil, fmt.Errorf("store: its own keys: %w", err)
	}
	return s.Add()
}

type keysRotateCmd struct {
	File   string `required:"" placeholder:"FILE" help:"The key set; it is replaced in one step, with the same owner and mode."`
	Config string `short:"c" env:"FENCE_CONFIG" placeholder:"FILE" help:"Configuration file of the store whose sidecars must be able to read the added keys. Needed for the second step."`
}

// Run adds keys where none are waiting, else lets those write that are.
func (r keysRotateCmd) Run(ctx context.Context) error {
	s, err := readKeys(r.File)
	if err != nil {
		return err
	}
	if len(s.Pending()) == 0 {
		next, err := s.Add()
		if err == nil {
			err = replaceKeys(r.File, next)
		}
		if err != nil {
			return err
		}
		printKeys(next)
		fmt.Printf("Added %s; they only read. Next: give this file to every sidecar, restart each, then run this again.\n", strings.Join(next.Pending(), " and "))
		return nil
	}
	if err := r.readable(ctx, s.Pending()); err != nil {
		return err
	}
	next, err := s.Promote()
	if err == nil {
		err = replaceKeys(r.File, next)
	}
	if err != nil {
		return err
	}
	printKeys(next)
	fmt.Println("The youngest keys write now. Next: give this file to every sidecar and restart each, one by one. Keep the old keys in it: records name them.")
	return nil
}

// readable refuses the second step until every sidecar that lives has said that it can read the keys.
func (r keysRotateCmd) readable(ctx context.Context, ids []string) error {
	if r.Config == "" {
		return fmt.Errorf("%s only read so far; to let them write, --config must name the store, whose sidecars are asked first", strings.Join(ids, " and "))
	}
	_, b, err := configFlag{r.Config}.open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	members, err := b.Members(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := readByAll(ctx, b, ids, "", members); err != nil {
		return fmt.Errorf("%w; the file is as it was", err)
	}
	fmt.Printf("%d live sidecars can read %s.\n", len(members), strings.Join(ids, " and "))
	return nil
}

type keysShowCmd struct {
	File string `required:"" placeholder:"FILE" help:"The key set."`
}

// Run prints ids.
func (k keysShowCmd) Run() error {
	s, err := readKeys(k.File)
	if err != nil {
		return err
	}
	printKeys(s)
	return nil
}

func printKeys(s *keys.Set) {
	pending := s.Pending()
	for _, k := range s.Keys() {
		what := "reads"
		switch {
		case k.Primary:
			what = "writes and reads"
		case len(pending) > 0 && (k.ID == pending[0] || k.ID == pending[len(pending)-1]):
			what = "reads; writes after the next step"
		}
		fmt.Printf("%s  %-12s  %s\n", k.ID, k.Use, what)
	}
}

func readKeys(path string) (*keys.Set, error) {
	st, err := os.Stat(path)
	if err == nil && st.Size() > maxKeyFile {
		err = fmt.Errorf("%s has %d bytes: that is no key set", path, st.Size())
	}
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := keys.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// replaceKeys replaces the file in one step: whoever reads it meanwhile, or after a power cut, gets the one or the other whole.
func replaceKeys(path string, s *keys.Set) (err error) {
	b, err := s.JSON()
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil { // the link stays one
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := keepOwner(f, st, f.Chown); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(st.Mode().Perm()); err != nil { // after the owner: meanwhile nobody else can read it
		f.Close()
		return err
	}
	if err := writeSynced(f, b); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(path)
}

// writeSynced writes, flushes to the disk and closes.
func writeSynced(f *os.File, b []byte) error {
	_, err := f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a file's name as lasting as its bytes.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
