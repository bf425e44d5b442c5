package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// keyed is a world whose sidecars have a file of keys each, as on machines of their own, and the operator's copy.
type keyed struct {
	*world
	s       settings
	gateway *sandbox.Server
	charged []string // call keys
}

const operators = "operator.json"

func newKeyed(t *testing.T, d database) *keyed {
	t.Helper()
	gateway, u := newSandbox(t, sandbox.Config{})
	s := settings{store: d, lease: "3s", gateway: []use{u}}
	return &keyed{world: newWorld(t, s), s: s, gateway: gateway}
}

// with makes the configuration of a sidecar with its own file of keys; "": without.
func (k *keyed) with(name string) {
	k.t.Helper()
	s := k.s
	if name != "" {
		s.extra += fmt.Sprintf("keys: {file: %q}\n", k.path(name))
	}
	k.config = k.write("fence-"+name+".yaml", s.yaml(k.dir))
}

func (k *keyed) path(name string) string { return filepath.Join(k.dir, name+".json") }

// hand gives the operator's file to a sidecar.
func (k *keyed) hand(name string) {
	k.t.Helper()
	b, err := os.ReadFile(filepath.Join(k.dir, operators))
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(name+".json", string(b))
}

// fresh makes the operator's file.
func (k *keyed) fresh(args ...string) {
	k.t.Helper()
	if out, err := k.command(append([]string{"keys", "new", "--out", operators}, args...)...).CombinedOutput(); err != nil {
		k.t.Fatalf("keys new: %v\n%s", err, out)
	}
}

// rotate takes the next step on the operator's file; what it is refused for is in refused, and the file is as it was.
func (k *keyed) rotate(refused string) {
	k.t.Helper()
	file := filepath.Join(k.dir, operators)
	before, _ := os.ReadFile(file)
	out, errs, ok := k.cli("keys", "rotate", "--file", file)
	after, _ := os.ReadFile(file)
	switch {
	case refused == "" && (!ok || bytes.Equal(before, after)):
		k.t.Fatalf("rotate: %s%s", out, errs)
	case refused != "" && (ok || !strings.Contains(errs, refused) || strings.Count(errs, "\n") != 1 || !bytes.Equal(before, after)):
		k.t.Fatalf("rotate: want it refused for %q in one line, got %v %s%s", refused, ok, out, errs)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		k.t.Errorf("mode of the file: %v, %v", st.Mode(), err)
	}
}

// restart ends a sidecar and starts it with the file that it was given.
func (k *keyed) restart(s *sidecar, file string) *sidecar {
	k.t.Helper()
	if code := s.term(); code != 0 {
		k.t.Fatalf("sidecar %s ended with %d", s.name, code)
	}
	k.with(file)
	return k.start(s.name)
}

// charge charges once through one sidecar.
func (k *keyed) charge(key string, through *sidecar) {
	k.t.Helper()
	send(through.at("stripe"), named(key)).wantResult(k.t, "succeeded", "sent")
	k.charged = append(k.charged, key)
}

// agree wants every charge so far to be replayed by each sidecar, another request of its key to be a conflict, and nothing of
// all that to have been sent.
func (k *keyed) agree(through ...*sidecar) {
	k.t.Helper()
	for _, s := range through {
		for _, key := range k.charged {
			send(s.at("stripe"), named(key)).wantResult(k.t, "succeeded", "replayed")
			other := named(key)
			other.body = strings.Replace(other.body, "4990", "4991", 1)
			send(s.at("stripe"), other).want(k.t, 422, "key-conflict")
		}
	}
	sends := sendsOf(k.gateway)
	for _, key := range k.charged {
		if sends[key] != 1 {
			k.t.Errorf("the gateway got %d sends of %s", sends[key], key)
		}
	}
	if n := k.gateway.Moved(); n != len(k.charged) {
		k.t.Errorf("the gateway moved money %d times for %d charges", n, len(k.charged))
	}
}

// TestKeys_rotation rotates under two sidecars, which charge between all steps: no step is taken before everybody is ready for
// it, everything of before is replayed, nothing conflicts.
func TestKeys_rotation(t *testing.T) {
	onBoth(t, func(t *testing.T, d database) {
		k := newKeyed(t, d)
		k.fresh()
		k.hand("a")
		k.hand("b")
		k.with("a")
		a := k.start("A")
		k.with("b")
		b := k.start("B")
		k.charge("one", a)
		k.agree(a, b)

		k.rotate("") // adds
		k.rotate("cannot be read by")
		k.hand("a")
		a = k.restart(a, "a")
		k.charge("two", a)
		k.agree(a, b)
		k.rotate("cannot be read by") // B cannot

		k.hand("b")
		b = k.restart(b, "b")
		k.charge("three", b)
		k.rotate("") // now it writes
		k.hand("a")
		a = k.restart(a, "a")
		k.charge("four", a) // with the new key
		k.charge("five", b) // with the old one
		k.agree(a, b)

		k.hand("b")
		b = k.restart(b, "b")
		k.charge("six", b)
		k.agree(a, b)
		if log := a.logs() + b.logs(); strings.Contains(log, "cannot be read here") {
			t.Error("a sidecar complains of keys that it lacks")
		}
	})
}

// set reads the operator's file.
func (k *keyed) set() *keys.Set {
	k.t.Helper()
	b, err := os.ReadFile(filepath.Join(k.dir, operators))
	if err != nil {
		k.t.Fatal(err)
	}
	s, err := keys.Parse(b)
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// hasty gives a sidecar a set whose youngest keys write, without asking anybody.
func (k *keyed) hasty(name string) {
	k.t.Helper()
	s, err := k.set().Add()
	if err == nil {
		s, err = s.Promote()
	}
	var b []byte
	if err == nil {
		b, err = s.JSON()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(name+".json", string(b))
}

// half takes the answer keys of a sidecar's file back to the operator's, so that only fingerprints are made with younger ones.
func (k *keyed) half(name string) {
	k.t.Helper()
	parts := func(file string) (m map[string]json.RawMessage) {
		b, err := os.ReadFile(filepath.Join(k.dir, file))
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			k.t.Fatal(err)
		}
		return m
	}
	m := parts(name + ".json")
	m[keys.Answers] = parts(operators)[keys.Answers]
	b, err := json.Marshal(m)
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(name+".json", string(b))
}

// refusedStart runs a sidecar that must not start, and returns what it says.
func (k *keyed) refusedStart() string {
	k.t.Helper()
	s := k.spawn("refused")
	s.killed = true // its exit code is looked at here
	if code := s.wait(); code == 0 || s.ready() != "" {
		k.t.Errorf("it started, and ended with %d: %s", code, s.logs())
	}
	return s.logs()
}

// TestKeys_refused: a sidecar that writes with keys which another one cannot read does not start, however its file was made.
// Without the other one it does.
func TestKeys_refused(t *testing.T) {
	onBoth(t, func(t *testing.T, d database) {
		k := newKeyed(t, d)
		k.fresh()
		k.hand("a")
		k.hasty("b")
		k.with("a")
		a := k.start("A")
		k.charge("one", a)
		k.with("b")
		host, _ := os.Hostname()
		said := k.refusedStart()
		if want := fmt.Sprintf("writes here and cannot be read by %s/%d ", host, a.cmd.Process.Pid); !strings.Contains(said, want) {
			t.Errorf("want it refused with %q: %s", want, said)
		}
		k.agree(a)
		a.term()
		b := k.start("B") // no lease of the refused one is in the way
		k.charge("two", b)
		k.agree(b)
	})
}

// TestKeys_unreadable: a sidecar whose ring lacks the key of a record answers 503, sends nothing and calls it no conflict; its
// own calls work, for everybody.
func TestKeys_unreadable(t *testing.T) {
	onBoth(t, func(t *testing.T, d database) {
		k := newKeyed(t, d)
		k.fresh()
		k.hand("a")
		k.hasty("b")
		k.with("b")
		b := k.start("B")
		k.charge("one", b)
		k.with("a")
		a := k.start("A")
		if !strings.Contains(a.logs(), "a key that another sidecar writes with cannot be read here") {
			t.Error("A does not say what it lacks")
		}
		other := named("one")
		other.body = strings.Replace(other.body, "4990", "4991", 1)
		for _, r := range []request{named("one"), other, named("one").with("Fence-Revision: 2")} {
			p := send(a.at("stripe"), r)
			p.want(t, 503, "unreadable")
			if p.retryAfter() < 1 {
				t.Errorf("no Retry-After: %s", p)
			}
		}
		k.agree(b)
		k.charge("two", a)
		k.agree(b)
		// B goes on when it has lost its lease for a while: A's old file is no reason to stop it
		b.stop()
		b.leaseOver()
		b.resume()
		eventually(t, "B serves again", func() bool { code, _ := b.get("/readyz"); return code == 200 })
		k.charge("three", b)
		k.agree(b)
		if n := a.metric(`fence_refusals_total{gateway="stripe",reason="unreadable"}`); n != "3" {
			t.Errorf("%s refusals are counted, want 3", n)
		}
	})
}

// TestKeys_unreadableFingerprint: the same of a record of which all but the fingerprint can be read.
func TestKeys_unreadableFingerprint(t *testing.T) {
	k := newKeyed(t, database{})
	k.fresh()
	k.hand("a")
	k.hasty("b")
	k.half("b")
	k.with("b")
	b := k.start("B")
	k.charge("one", b)
	k.with("a")
	a := k.start("A")
	other := named("one")
	other.body = strings.Replace(other.body, "4990", "4991", 1)
	for _, r := range []request{named("one"), other} {
		send(a.at("stripe"), r).want(t, 503, "unreadable")
	}
	k.agree(b)
}

// TestKeys_configuredLater: sidecars that have served with the store's own keys get a configured set without a pause: it begins
// with the store's. One that has nothing of the store's must wait until nobody uses the store's own alone.
func TestKeys_configuredLater(t *testing.T) {
	onBoth(t, func(t *testing.T, d database) {
		k := newKeyed(t, d)
		k.with("")
		a, b := k.pair()
		if !strings.Contains(a.logs(), "no keys are configured") {
			t.Error("A does not say that its keys lie in the store")
		}
		k.charge("one", a)
		k.fresh()
		k.hand("stranger")
		k.with("stranger")
		k.refusedStart()
		os.Remove(filepath.Join(k.dir, operators))

		k.with("")
		k.fresh("--config", k.config)
		k.hand("a")
		a = k.restart(a, "a")
		k.charge("two", a)
		k.agree(a, b)
		k.rotate("cannot be read by")
		k.hand("b")
		b = k.restart(b, "b")
		k.rotate("")
		k.hand("a")
		a = k.restart(a, "a")
		k.charge("three", a)
		k.hand("b")
		b = k.restart(b, "b")
		k.agree(a, b)

		// with a set of its own a lone sidecar reads what was written by the store's keys, and what only the file had is gone
		b.term()
		a.term()
		k.with("stranger")
		c := k.start("C")
		for _, key := range []string{"one", "two"} {
			send(c.at("stripe"), named(key)).wantResult(t, "succeeded", "replayed")
		}
		send(c.at("stripe"), named("three")).want(t, 503, "unreadable")
		k.charge("four", c)
		if n := k.gateway.Moved(); n != 4 {
			t.Errorf("the gateway moved money %d times for 4 charges", n)
		}
	})
}
