// The state of a target for one model: its breaker, and until when it rests.

package route

import "time"

// A modelState is the state of a target for one model. A nil modelState is that
// of a model without failures.
type modelState struct {
	breaker   breaker
	restUntil time.Time // from the target's RetryAfter
	used      time.Time // when a result was last recorded
}

// resting reports whether the target asked for no requests with a RetryAfter.
func (m *modelState) resting(now time.Time) bool { return m != nil && now.Before(m.restUntil) }

// ready reports whether the breaker lets a request of an account through.
func (m *modelState) ready(account string, now time.Time) bool {
	return m == nil || m.breaker.ready(account, now)
}

// findModel returns the state of target i for the model of info, or nil if it has
// none. The caller holds mu.
func (p *pool) findModel(i int, info *requestInfo) *modelState {
	st := p.states[i]
	if len(st.models) == 0 {
		return nil
	}
	return st.models[p.targets[i].backendModel(info.Model)]
}

const (
	maxModels    = 256  // for each target; clients choose the names of models
	maxModelName = 1024 // in bytes; a model with a longer name has no state
)

// findOrAddModel is like findModel, but adds a missing state. It returns nil if the name
// of the model is too long.
func (p *pool) findOrAddModel(i int, info *requestInfo, now time.Time) *modelState {
	st, name := p.states[i], p.targets[i].backendModel(info.Model)
	m := st.models[name]
	if m != nil || len(name) > maxModelName {
		return m
	}
	if st.models == nil {
		st.models = make(map[string]*modelState)
	}
	if len(st.models) >= maxModels {
		st.evictModel(now)
	}
	m = &modelState{used: now}
	st.models[name] = m
	return m
}

// evictModel removes the least recently used model. Those whose breaker is closed
// are removed first.
func (st *targetState) evictModel(now time.Time) {
	var oldest string
	var age time.Duration = -1
	for name, m := range st.models {
		d := now.Sub(m.used)
		if m.breaker.currentState() == StateClosed {
			d += forever
		}
		if d > age {
			oldest, age = name, d
		}
	}
	delete(st.models, oldest)
}
