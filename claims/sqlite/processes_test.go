package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	childPath = "FENCE_TEST_STORE" // a process with it set is a racer on that file
	childWins = 60                 // what a racer wants to win before it ends
	hotScope  = "shop:hot"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		if err := racer(context.Background(), path, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// racer takes the hot scope and swaps the hot key, and tells what it won once that was acknowledged.
func racer(ctx context.Context, path string, out io.Writer) error {
	s, err := Open(ctx, Config{Path: path, BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer s.Close()
	for wins := 0; wins < childWins; {
		l, err := s.Acquire(ctx, hotScope, fmt.Sprint(os.Getpid()), 2*time.Millisecond)
		if err == nil {
			fmt.Fprintf(out, "token %d\n", l.Token)
		} else if !errors.Is(err, claims.ErrHeld) {
			return err
		}
		v, err := s.Get(ctx, key("hot"), claims.Guard{})
		if err != nil {
			return err
		}
		r := record("hot")
		won := &claims.Event{Key: r.Key, Revision: int(v.Record.Version) + 1, State: r.State}
		got, err := s.Swap(ctx, claims.Condition{}, claims.Write{Version: v.Record.Version, Next: r, Event: won})
		if err == nil {
			fmt.Fprintf(out, "version %d\n", got.Records[0].Version)
			wins++
		} else if !errors.Is(err, claims.ErrLost) {
			return err
		}
	}
	return nil
}

// TestProcessesOnOneFile: several processes race, one of them is killed in the middle. Nothing is won twice, nothing that
// was acknowledged is lost.
func TestProcessesOnOneFile(t *testing.T) {
	path := migrated(t)
	type child struct {
		cmd   *exec.Cmd
		lines *bufio.Reader
	}
	var children []child
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childPath+"="+path)
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		children = append(children, child{cmd, bufio.NewReader(pipe)})
	}
	s := open(t, Config{Path: path})
	ended := make(chan struct{})
	var reader sync.WaitGroup
	var events []claims.Event
	reader.Go(func() { events = readOn(t, s, ended) })
	won := map[string]int{}
	read := func(c child, atMost int) (n int) {
		for ; n < atMost; n++ {
			line, err := c.lines.ReadString('\n')
			if err != nil {
				break // also a half line of the killed one
			}
			won[strings.TrimSpace(line)]++
		}
		return n
	}
	victim := children[0]
	if n := read(victim, 20); n < 20 {
		t.Fatalf("the first process won %d times only", n)
	}
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, c := range children {
		read(c, 1<<20)
		if err := c.cmd.Wait(); (err != nil) != (i == 0) {
			t.Errorf("process %d: %v", i, err)
		}
	}
	close(ended)
	reader.Wait()
	checkWon(t, s, won)
	checkEvents(t, s, events)
	var integrity string
	if err := s.read(t.Context(), func(t *tx) error { return t.row("PRAGMA integrity_check").Scan(&integrity) }); err != nil || integrity != "ok" {
		t.Errorf("integrity: %s, %v", integrity, err)
	}
}

// readOn reads the events of all processes from the last one that it got, until none came after they ended.
func readOn(t *testing.T, s *Store, ended <-chan struct{}) (seen []claims.Event) {
	cursor := ""
	for {
		over := false
		select {
		case <-ended:
			over = true
		default:
		}
		list, err := s.Events(t.Context(), cursor, 5)
		if err != nil {
			t.Errorf("events after %q: %v", cursor, err)
			return seen
		}
		if len(list) == 0 && over {
			return seen
		}
		if len(list) == 0 {
			time.Sleep(time.Millisecond) // the processes need the cores
			continue
		}
		seen, cursor = append(seen, list...), list[len(list)-1].ID
	}
}

// checkEvents: every version of the hot key has one event, that of the process that won it, read in their order.
func checkEvents(t *testing.T, s *Store, seen []claims.Event) {
	t.Helper()
	for i, e := range seen {
		if e.Revision != i+1 {
			t.Fatalf("event %d (%s) tells of version %d", i+1, e.ID, e.Revision)
		}
	}
	r := get(t, s, key("hot"))
	if len(seen) != int(r.Version) {
		t.Errorf("%d events of %d versions", len(seen), r.Version)
	}
}

func checkWon(t *testing.T, s *Store, won map[string]int) {
	t.Helper()
	tokens, versions := 0, 0
	for what, n := range won {
		if n != 1 {
			t.Errorf("%s was won %d times", what, n)
		}
		if strings.HasPrefix(what, "token") {
			tokens++
		} else {
			versions++
		}
	}
	log, err := s.Log(t.Context(), hotScope)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range log {
		if e.Token != uint64(i+1) {
			t.Errorf("line %d of the log has token %d", i+1, e.Token)
		}
	}
	// The killed one may have had one write acknowledged that it did not tell any more.
	version := int(get(t, s, key("hot")).Version)
	if version < versions || version > versions+1 || len(log) < tokens || len(log) > tokens+1 {
		t.Errorf("version %d after %d wins, %d takes after %d", version, versions, len(log), tokens)
	}
	if versions < 3*childWins {
		t.Errorf("%d swaps won", versions)
	}
}
