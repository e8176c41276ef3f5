// The names of models, and the accounts, that may become attributes.

package otelllm

import "sync"

const (
	maxModels   = 100   // names of models that become attributes without Options.Models
	maxAccounts = 1_000 // accounts that become attributes with Options.Accounts
)

// A nameSet is the set of names that may become the value of an attribute.
type nameSet struct {
	max int // how many names there may be; none is added if there are as many

	mu    sync.RWMutex // guards names
	names map[string]bool
}

// newModelNames returns the set for [Options.Models].
func newModelNames(list []string) *nameSet {
	if list == nil {
		return newNameSet(maxModels)
	}
	s := newNameSet(0)
	for _, name := range list {
		s.names[name] = true
	}
	return s
}

// newNameSet returns a set that learns the first names, max of them.
func newNameSet(max int) *nameSet {
	return &nameSet{max: max, names: make(map[string]bool)}
}

// has reports whether name may become an attribute.
func (s *nameSet) has(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[name]
}

// label returns the attribute's value for name: name if it is empty or in the set, and
// otherwise otherName. If learn is true, it first adds name to the set, unless the set
// is full.
func (s *nameSet) label(name string, learn bool) string {
	if name == "" || s.has(name) || learn && s.max > 0 && s.add(name) {
		return name
	}
	return otherName
}

// add adds name unless the set is full. It reports whether name is in the set.
func (s *nameSet) add(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.names) < s.max {
		s.names[name] = true
	}
	return s.names[name]
}
