package otelllm

import "sync"

// maxModels is how many names of models become attributes without
// Options.Models.
const maxModels = 100

// modelNames is the set of names of models that may become attributes.
type modelNames struct {
	fixed bool // no name is added

	mu    sync.RWMutex // guards names
	names map[string]bool
}

func newModelNames(list []string) *modelNames {
	m := &modelNames{fixed: list != nil, names: make(map[string]bool)}
	for _, name := range list {
		m.names[name] = true
	}
	return m
}

// has reports whether name may become an attribute.
func (m *modelNames) has(name string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.names[name]
}

// label returns the attribute's value for name: name if it is empty or in the set, and
// otherwise otherModel. If learn is true, it first adds name to the set, unless the set
// is fixed or full.
func (m *modelNames) label(name string, learn bool) string {
	if name == "" || m.has(name) || learn && !m.fixed && m.add(name) {
		return name
	}
	return otherModel
}

// add adds name unless the set is full. It reports whether name is in the set.
func (m *modelNames) add(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.names) < maxModels {
		m.names[name] = true
	}
	return m.names[name]
}
