package checklist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// stateVersion is the form of the file.
const stateVersion = 1

// State is what a later run goes on from. It holds no credential; Names are ids of what Setup and Charge made.
type State struct {
	Version  int               `json:"version"`
	Gateway  string            `json:"gateway"`
	Host     string            `json:"host"`
	Seed     string            `json:"seed"` // keys, references and unique values derive from it
	Started  time.Time         `json:"started"`
	Series   int               `json:"series"`
	Call     string            `json:"call,omitempty"`        // of the first charge
	Names    map[string]string `json:"names,omitempty"`       // that it used
	Body     string            `json:"body_sha256,omitempty"` // of it
	Earlier  []Created         `json:"earlier,omitempty"`     // what steps made that were broken off and replaced
	Evidence Evidence          `json:"evidence"`

	file string
}

// openState reads the file, or starts anew where there is none. "": nothing is kept.
func openState(file, gateway, host string, now time.Time) (*State, error) {
	fresh := &State{Version: stateVersion, Gateway: gateway, Host: host, Seed: newSeed(), Started: now.UTC(), file: file}
	if file == "" {
		return fresh, nil
	}
	s, err := readState(file, gateway, host)
	if s != nil || err != nil {
		return s, err
	}
	return fresh, fresh.write() // a file that cannot be written is told before anything is charged
}

// readState reads the file; nil: there is none.
func readState(file, gateway, host string) (*State, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{file: file}
	if err := json.Unmarshal(b, s); err != nil || !s.whole() {
		return nil, fmt.Errorf("%s is no state file of this version", file)
	}
	if s.Gateway != gateway || s.Host != host {
		return nil, fmt.Errorf("%s is of gateway %s at %s: use another file for %s at %s", file, s.Gateway, s.Host, gateway, host)
	}
	return s, nil
}

// whole reports whether a state has what later steps rely on, and drops what is no step.
func (s *State) whole() bool {
	s.Evidence.Steps = slices.DeleteFunc(s.Evidence.Steps, func(x *Step) bool { return x == nil })
	success := s.Evidence.step(StepSuccess)
	return s.Version == stateVersion && s.Seed != "" && (success == nil || !success.Done || success.role(RoleFirst) != nil)
}

// put replaces a step, or adds it. What the replaced one made stays on the list.
func (s *State) put(step *Step) {
	before := s.created()
	s.Evidence.put(step)
	after := s.created()
	for _, c := range before {
		if !slices.ContainsFunc(after, c.same) {
			s.Earlier = append(s.Earlier, c)
		}
	}
}

// write replaces the file whole, readable by its owner only.
func (s *State) write() error {
	if s.file == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.file), filepath.Base(s.file)+".*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// remember keeps what repeats the first charge.
func (s *State) remember(sl *sale) {
	s.Call, s.Names, s.Body = sl.call, sl.saved, digest(sl.body)
}

// remembered are the values that the first charge was filled in with.
func (r *run) remembered() map[string]string {
	vs := r.values(r.state.Call)
	maps.Copy(vs, r.state.Names)
	return vs
}
