// Nonces, which keep a form from being used twice.

package session

import (
	"crypto/rand"
	"sync"
)

// NewNonce returns a random text for a form that may be sent once.
func NewNonce() string { return rand.Text() }

// maxNonces is how many nonces each generation has at most.
const maxNonces = 10_000

// Nonces remembers at least the last maxNonces nonces of forms that were sent. The
// zero value is ready to use.
type Nonces struct {
	mu   sync.Mutex             // guards used
	used [2]map[string]struct{} // the current and the previous generation
}

// Take remembers nonce and reports whether it is used for the first time. It returns
// false for a text that cannot be a nonce.
func (n *Nonces) Take(nonce string) bool {
	if len(nonce) != len(NewNonce()) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, used := range n.used {
		if _, ok := used[nonce]; ok {
			return false
		}
	}
	if n.used[0] == nil || len(n.used[0]) == maxNonces {
		n.used[0], n.used[1] = make(map[string]struct{}), n.used[0]
	}
	n.used[0][nonce] = struct{}{}
	return true
}
