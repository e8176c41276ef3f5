package otelllm

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxModels is how many names of models become attributes without
// Options.Models.
const maxModels = 100

// modelNames is the set of names of models that may become attributes.
type modelNames struct {
	names atomic.Pointer[map[string]bool] // replaced by a copy with another name

	mu    sync.Mutex // guards replacing names
	fixed bool       // no name is added
}

func newModelNames(list []string) *modelNames {
	m := &modelNames{fixed: list != nil}
	names := make(map[string]bool, len(list))
	for _, name := range list {
		names[name] = true
	}
	m.names.Store(&names)
	return m
}

// has reports whether name may become an attribute.
func (m *modelNames) has(name string) bool { return (*m.names.Load())[name] }

// label returns the attribute's value for name, which may be empty. If learn is
// true, the name becomes an attribute, unless there is a list or there are too
// many.
func (m *modelNames) label(name string, learn bool) string {
	if name == "" || m.has(name) || learn && m.add(name) {
		return name
	}
	return other
}

// add adds a name and reports whether it did.
func (m *modelNames) add(name string) bool {
	if m.fixed || len(*m.names.Load()) >= maxModels {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	names := *m.names.Load()
	if len(names) >= maxModels {
		return names[name]
	}
	names = maps.Clone(names)
	names[name] = true
	m.names.Store(&names)
	return true
}
