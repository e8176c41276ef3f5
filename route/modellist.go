package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A modelList caches the models of a Backend.
type modelList struct {
	lister llmhttp.ModelLister
	target string // the name of the first target with this Backend, for logs
	opts   *Options

	ready     chan struct{} // closed after the first fetch, or when it has taken too long
	markReady func()        // closes ready; may be called several times

	mu         sync.Mutex      // guards the fields below
	models     []llmhttp.Model // never modified
	known      bool            // the Backend has returned a list, or does not support lists
	expires    time.Time
	refreshing bool
}

func newModelList(lister llmhttp.ModelLister, target string, opts *Options) *modelList {
	ready := make(chan struct{})
	return &modelList{lister: lister, target: target, opts: opts, ready: ready, markReady: sync.OnceFunc(func() { close(ready) })}
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

func (l *modelList) fetch() {
	defer l.markReady()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	models, err := l.listModels(ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		l.opts.Logger.Warn("listing models failed", "target", l.target, "error", summarize(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshing = false
	ttl := l.opts.ModelsTTL
	l.known = l.known || err == nil || errors.Is(err, errors.ErrUnsupported)
	if err == nil {
		l.models = slices.DeleteFunc(slices.Clone(models), func(m llmhttp.Model) bool { return m.ID == "" })
	} else {
		ttl = min(ttl, listRetry)
	}
	l.expires = time.Now().Add(ttl)
}

// listModels calls the Backend. It returns a panic as an error, because it does
// not run on the goroutine of a request.
func (l *modelList) listModels(ctx context.Context) (models []llmhttp.Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.lister.ListModels(ctx)
}

func (l *modelList) isKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// cachedModels returns the list that was fetched last. It returns nil if there is none
// or l is nil.
func (l *modelList) cachedModels() []llmhttp.Model {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}
