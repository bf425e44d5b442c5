package pgtest

import (
	"regexp"
	"strings"
	"sync"
	"time"
)

// Action is what a proxy does with a statement that it was told to catch.
type Action int

// The actions. The connection is always idle but for this statement: answers to earlier ones have reached the client.
const (
	DropRequest Action = iota + 1 // it never reaches the server; both sides are cut, so that the server rolls back
	DropAnswer                    // the server has answered it; the answer never reaches the client, then both sides are cut
	HoldRequest                   // it reaches the server after Release, even if the client is gone by then
	HoldAnswer                    // the server has answered it; the answer reaches the client after Release
)

// Catch is one statement to be caught.
type Catch struct {
	match  func(sql string) bool
	left   int // matches until it is the one
	action Action

	done     chan struct{}
	release  chan struct{}
	released sync.Once
	ended    sync.Once
	answer   string
}

// On catches the n-th next statement (1: the next) that matches. It sees each simple query as one text, which may hold
// several statements, and each execution of a prepared statement with the text that was prepared. What is acted on is the
// whole of what the client sent up to the next Sync, a batch for example.
func (p *Proxy) On(match func(sql string) bool, n int, a Action) *Catch {
	c := &Catch{match: match, left: n, action: a, done: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catches = append(p.catches, c)
	return c
}

// OnCommit catches the n-th next COMMIT. Statements outside of a transaction commit without one: use On for them.
func (p *Proxy) OnCommit(n int, a Action) *Catch { return p.On(IsCommit, n, a) }

// Done is closed when it happened: the cut, or that the request or its answer is held.
func (c *Catch) Done() <-chan struct{} { return c.done }

// Release lets go of what is held; before Done, what would be.
func (c *Catch) Release() { c.released.Do(func() { close(c.release) }) }

// Answer is what the server answered to an action on the answer, once Done: the tags of the commands ("INSERT 0 1",
// "COMMIT") and the messages of errors, with a blank between; "" if the connection to the server broke instead. It waits
// for that, not for ever.
func (c *Catch) Answer() string {
	select {
	case <-c.done:
		return c.answer
	case <-time.After(patience):
		return "nothing was caught within " + patience.String()
	}
}

func (c *Catch) happened(answer string) {
	c.ended.Do(func() {
		c.answer = answer
		close(c.done)
	})
}

// seen counts statements and gives the catch whose turn it is.
func (p *Proxy) seen(statements []string) *Catch {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due *Catch
	for _, sql := range statements {
		if IsCommit(sql) {
			p.commits++
		}
		for i := 0; i < len(p.catches); i++ {
			c := p.catches[i]
			if !c.match(sql) {
				continue
			}
			if c.left--; c.left == 0 && due == nil {
				due = c
				p.catches = append(p.catches[:i:i], p.catches[i+1:]...)
				i--
			}
		}
	}
	return due
}

var (
	commitAlone = regexp.MustCompile(`(?is)^\s*end\b[^;]*;?\s*$`)
	commitFirst = regexp.MustCompile(`(?is)^\s*(/\*.*?\*/\s*|--[^\n]*\n\s*)*commit\b`)
)

// IsCommit says whether a text holds a COMMIT, also behind other statements. (END counts alone only: function bodies are full
// of it.)
func IsCommit(sql string) bool {
	for part := range strings.SplitSeq(sql, ";") {
		if commitFirst.MatchString(part) {
			return true
		}
	}
	return commitAlone.MatchString(sql)
}
