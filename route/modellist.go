// The models that a Backend lists, cached, and which targets list a model.

package route

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

// A modelList caches the models of a Backend.
type modelList struct {
	backend llmhttp.Backend
	target  string // the name of the first target with this Backend, for logs
	opts    *Options

	ready     chan struct{} // closed after the first fetch, or when it has taken too long
	markReady func()        // closes ready; may be called several times

	mu         sync.Mutex     // guards the fields below
	models     []llm.Model    // never modified
	byID       map[string]int // indices in models; never modified; nil until the Backend has returned a list
	known      bool           // the Backend has returned a list, or does not support lists
	fetched    time.Time      // the end of the last fetch
	expires    time.Time
	refreshing bool
}

func newModelList(b llmhttp.Backend, target string, opts *Options) *modelList {
	ready := make(chan struct{})
	return &modelList{backend: b, target: target, opts: opts, ready: ready, markReady: sync.OnceFunc(func() { close(ready) })}
}

// refresh starts to fetch the list if it has expired and is not being fetched.
func (l *modelList) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.refreshing && !time.Now().Before(l.expires) {
		l.refreshing = true
		go l.fetch()
	}
}

// refreshForRequest is like refresh, but waits for [listRetry] at least after a fetch, even
// if lists are not kept.
func (l *modelList) refreshForRequest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !l.refreshing && !now.Before(l.expires) && now.Sub(l.fetched) >= listRetry {
		l.refreshing = true
		go l.fetch()
	}
}

func (l *modelList) fetch() {
	defer l.markReady()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	models, err := l.listModels(ctx)
	if err != nil && !unsupported.Is(err) {
		l.opts.Logger.Warn("listing models failed", "target", l.target, "error", summarize(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshing = false
	ttl := l.opts.ModelsTTL
	l.known = l.known || err == nil || unsupported.Is(err)
	if err == nil {
		l.models = slices.DeleteFunc(slices.Clone(models), func(m llm.Model) bool { return m.ID == "" })
		l.byID = indexModels(l.models)
	} else {
		ttl = min(ttl, listRetry)
	}
	l.fetched = time.Now()
	l.expires = l.fetched.Add(ttl)
}

// indexModels returns the index of each model by its ID. Of several with the same ID it
// is that of the first.
func indexModels(models []llm.Model) map[string]int {
	byID := make(map[string]int, len(models))
	for i := range models {
		if _, ok := byID[models[i].ID]; !ok {
			byID[models[i].ID] = i
		}
	}
	return byID
}

// listModels calls the Backend. It returns a panic as an error, because it does
// not run on the goroutine of a request.
func (l *modelList) listModels(ctx context.Context) (models []llm.Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return ability.ListModels(ctx, l.backend)
}

func (l *modelList) isKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// cachedModels returns the list that was fetched last. It returns nil if there is none
// or l is nil.
func (l *modelList) cachedModels() []llm.Model {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}

// A listing tells whether a Backend lists a model.
type listing int

const (
	notKnown listing = iota // there is no list
	listed
	notListed
)

// find returns the model with an ID from the list that was fetched last. The model is zero
// unless it is listed. l may be nil.
func (l *modelList) find(id string) (llm.Model, listing) {
	if l == nil {
		return llm.Model{}, notKnown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		return llm.Model{}, notKnown
	}
	if i, ok := l.byID[id]; ok {
		return l.models[i], listed
	}
	return llm.Model{}, notListed
}
