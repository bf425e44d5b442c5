package claims

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// maxTwins bounds what a process remembers of its calls in doubt.
const maxTwins = 10_000

// twins knows the requests of this process whose calls are in doubt, so that the very same request under another call key is
// noticed: an application, or its SDK, that names one charge by two keys is charged twice, and nothing here can prevent it.
type twins struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]Key
}

// twin is what makes two requests of one tenant the same but for their call keys.
func (c *Call) twin() [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(len(c.Key.Tenant)))
	b = append(append(b, c.Key.Tenant...), c.Undoes+"\x00"+c.Part+"\x00"...)
	return sha256.Sum256(append(b, c.Canonical...))
}

// other is the key of a call in doubt whose request is the same, if there is one.
func (t *twins) other(c *Call) (Key, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.all[c.twin()]
	return k, ok && k != c.Key
}

// forget drops what is remembered of a request.
func (t *twins) forget(c *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, c.twin())
}

// note remembers a call in doubt, and forgets it when it is no longer.
func (t *twins) note(c *Call, doubt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := c.twin()
	switch {
	case doubt && t.all == nil:
		t.all = map[[sha256.Size]byte]Key{id: c.Key}
	case doubt:
		for old := range t.all { // any one: it is a hint only
			if len(t.all) < maxTwins {
				break
			}
			delete(t.all, old)
		}
		t.all[id] = c.Key
	case !doubt && t.all[id] == c.Key:
		delete(t.all, id)
	}
}
