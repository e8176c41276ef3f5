// Package claims remembers in memory which tasks are claimed and which are done, so that each
// is normally done once.
package claims

import (
	"slices"
	"sync"
	"time"
)

// A Set has the claims of tasks. Its zero value is empty. Its methods may be called concurrently.
//
// It keeps at most 65536 tasks. Of more, it forgets those first that need not be kept any longer,
// and then those that must be kept for the shortest time, until three quarters are left.
type Set struct {
	mu    sync.Mutex // guards the field below
	tasks map[string]task
}

type task struct {
	done  bool
	until time.Time // when the last claim lapses, unless the task is done
	keep  time.Time // until when the task is kept; zero means for ever
}

const maxTasks = 1 << 16

// Claim claims a task from now on for the time of lease. It reports false if the task is done or
// claimed by another. Then wait is the time until that claim lapses, and zero if the task is done.
// The task is kept until keep, or for ever if that is zero.
func (s *Set) Claim(id string, now time.Time, lease time.Duration, keep time.Time) (claimed bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	switch {
	case t.done:
		return false, 0
	case t.until.After(now):
		return false, t.until.Sub(now)
	}
	if s.tasks == nil {
		s.tasks = make(map[string]task)
	}
	s.tasks[id] = task{until: now.Add(lease), keep: keep}
	if len(s.tasks) > maxTasks {
		s.forget(now)
	}
	return true, 0
}

// End ends the claim of a task, which is done or can be claimed again.
func (s *Set) End(id string, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tasks[id]; ok {
		s.tasks[id] = task{done: done || t.done, keep: t.keep}
	}
}

// forget reduces the tasks to three quarters of maxTasks. The caller holds mu.
func (s *Set) forget(now time.Time) {
	var ends []time.Time
	for id, t := range s.tasks {
		switch {
		case t.keep.IsZero():
		case t.keep.Before(now):
			delete(s.tasks, id)
		default:
			ends = append(ends, t.keep)
		}
	}
	excess := len(s.tasks) - maxTasks/4*3
	if excess <= 0 {
		return
	}
	slices.SortFunc(ends, time.Time.Compare)
	var last time.Time // of those that are forgotten; zero if some of those that are kept for ever are, too
	if excess <= len(ends) {
		last = ends[excess-1]
	}
	for id, t := range s.tasks {
		if excess > 0 && (last.IsZero() || !t.keep.IsZero() && !t.keep.After(last)) {
			delete(s.tasks, id)
			excess--
		}
	}
}
