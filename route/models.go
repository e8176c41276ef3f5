package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/pattern"
)

const (
	listTimeout = 10 * time.Second // for a Backend to list its models
	listRetry   = 5 * time.Second  // until it is asked again if it failed to, at most
)

// ListModels implements [llmhttp.ModelLister]. It lists the models that the
// Router has a route for, in the order of the routes: those with a name of
// their own always, and of a pattern those that its targets list and whose
// names match it. If a target has a Model with a *, they have the names that
// clients use; if it has one without, no names are known.
//
// Targets are asked together, each at most once at a time, for at most 10 s,
// and with a context that is not the request's: what they say must not depend
// on who asks. Until a target's new list is there the old one counts, so that
// only the first call waits, and one that is down is still listed.
func (r *Router) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	if err := r.awaitLists(ctx); err != nil {
		return nil, err
	}
	var list []llmhttp.Model
	seen := make(map[string]bool)
	for _, rt := range r.routes {
		if rt.stars == 0 {
			list = append(list, rt.describe())
			continue
		}
		for _, t := range rt.targets {
			if t.list == nil {
				continue
			}
			for _, m := range t.list.known() {
				name, ok := t.nameFor(m.ID)
				if !ok || seen[name] || r.find(name) != rt {
					continue
				}
				seen[name] = true
				m.Extra = pattern.RenameMembers(m.Extra, m.ID, name)
				m.ID = name
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// describe returns the model of a route that is no pattern, as the first
// target has it that lists it.
func (rt *route) describe() llmhttp.Model {
	for _, t := range rt.targets {
		if t.list == nil {
			continue
		}
		models, id := t.list.known(), t.modelFor(rt.model)
		if i := slices.IndexFunc(models, func(m llmhttp.Model) bool { return m.ID == id }); i >= 0 {
			m := models[i]
			m.Extra = pattern.RenameMembers(m.Extra, m.ID, rt.model)
			m.ID = rt.model
			return m
		}
	}
	return llmhttp.Model{ID: rt.model}
}

// awaitLists has the lists that are old made anew, and waits for those that
// have never been there.
func (r *Router) awaitLists(ctx context.Context) error {
	var first []*modelList
	for _, l := range r.lists {
		if l.refresh() {
			first = append(first, l)
		}
	}
	if len(first) == 0 {
		return nil
	}
	timer := time.NewTimer(listTimeout)
	defer timer.Stop()
	for _, l := range first {
		select {
		case <-l.first:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			// They are deaf to their contexts.
			for _, l := range first {
				l.giveUp()
			}
			return nil
		}
	}
	return nil
}

// A modelList is what a Backend has said of its models.
type modelList struct {
	router *Router
	lister llmhttp.ModelLister
	target string // the first that has it, for logs

	first chan struct{} // closed when nobody is to wait for it any more

	mu     sync.Mutex
	models []llmhttp.Model // never written to
	due    time.Time       // when it is to be asked again
	asking bool
	over   bool // first is closed
}

// refresh asks the Backend if it is time to. It reports whether to wait.
func (l *modelList) refresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asking && !time.Now().Before(l.due) {
		l.asking = true
		go l.ask()
	}
	return !l.over
}

func (l *modelList) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	models, err := l.call(ctx)
	ttl := l.router.opts.ModelsTTL
	l.mu.Lock()
	l.asking = false
	if err == nil {
		l.models = slices.DeleteFunc(slices.Clone(models), func(m llmhttp.Model) bool { return m.ID == "" })
	} else {
		ttl = min(ttl, listRetry)
	}
	l.due = time.Now().Add(ttl)
	l.mu.Unlock()
	l.giveUp()
	if err == nil {
		return
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		l.router.opts.Logger.Warn("models not listed", "target", l.target, "error", brief(err))
	}
}

func (l *modelList) call(ctx context.Context) (models []llmhttp.Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.lister.ListModels(ctx)
}

// giveUp ends the wait for the first answer.
func (l *modelList) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		close(l.first)
	}
}

func (l *modelList) known() []llmhttp.Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}
