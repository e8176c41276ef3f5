package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A requestObserver collects what the Observer of a request gets, and calls its
// functions. Goroutines of the Backend may call addChunk, startTry and the function
// that startTry returns. Its other methods are called by the goroutine of ServeHTTP.
type requestObserver struct {
	q         *request
	data      *observerData // nil if there is no Observer
	stepClass ErrorClass    // the ErrorClass of the request if the current step fails with a 5xx
	refusedBy string        // the limit that refused the request
	recordErr error         // of UsageStore.Record
	model     string        // as the Backend set it in the reply to a request for embeddings

	// The fields below are guarded by q.res.mu.
	chunks int
	timing Timing
}

// An observerData has what is collected only if there is an Observer.
type observerData struct {
	hooks      Observation
	started    bool        // info is complete: the Backend is about to be called or was called
	transcript *transcript // nil unless one was asked for

	// tries is guarded by the response's mu.
	tries []Try

	// Storage of what the Observer gets (budget: whole 0.5 KB with otelllm; BenchmarkObserve).
	info          RequestInfo
	summary       RequestSummary
	finishReasons [1]FinishReason
}

var errNotRecorded = errors.New("llmhttp: UsageStore.Record panicked")

// maxTries is how many tries a RequestSummary has.
const maxTries = 100

// start calls the Observer. The context that it returns is the one that the
// stores and the Backend get.
func (ro *requestObserver) start() {
	q := ro.q
	observe := q.h.opts.Observe
	if observe == nil {
		return
	}
	ro.data = new(observerData)
	var ctx context.Context
	if ctx, ro.data.hooks = observe(q.life.ctx, q.r); ctx != nil {
		q.life.setContext(ctx)
	}
}

// A describer is a decoded request for a chat, images or embeddings.
type describer interface {
	// describe sets the fields of info that the request knows.
	describe(info *RequestInfo)
}

// notifyStarted is called before the Backend is called with req. It completes the RequestInfo
// and calls Observation.Started, whose context the Backend gets.
func (ro *requestObserver) notifyStarted(req describer) {
	d := ro.data
	if d == nil {
		return
	}
	q := ro.q
	record := q.accounting.record
	info := &d.info
	info.ID, info.Account, info.KeyID, info.Model = record.ID, record.Account, record.KeyID, record.Model
	info.Protocol, info.Operation, info.Arrived = record.Protocol, q.route.operation, q.arrived.Round(0)
	info.Params.Choices = 1
	req.describe(info)
	d.started = true
	q.res.mu.Lock()
	ro.timing.Admitted = time.Since(q.arrived)
	q.res.mu.Unlock()
	if d.hooks.Started == nil {
		return
	}
	if ctx := d.hooks.Started(q.life.ctx, info); ctx != nil {
		q.life.backendCtx = ctx
	}
}

// addChunk notes that the Backend yielded c. q.res.mu is held.
func (ro *requestObserver) addChunk(c *ChatChunk, now time.Time) {
	t := &ro.timing
	since := now.Sub(ro.q.arrived)
	if ro.chunks++; ro.chunks == 1 {
		t.FirstChunk = since
	}
	if c.hasToken() {
		t.LastToken = since
		if t.FirstToken == 0 {
			t.FirstToken = since
		}
	}
}

// startTry implements StartTry for this request.
func (ro *requestObserver) startTry(ctx context.Context, target string) (context.Context, func(error)) {
	q, d := ro.q, ro.data
	start := time.Now()
	try := Try{Target: target, Start: start.Sub(q.arrived)}
	q.res.mu.Lock()
	n := len(d.tries)
	if n < maxTries {
		d.tries = append(d.tries, try)
	}
	q.res.mu.Unlock()
	var ended func(Try)
	if d.hooks.Try != nil {
		next, end := d.hooks.Try(ctx, target)
		if next != nil {
			ctx = next
		}
		ended = end
	}
	var once sync.Once
	return ctx, func(err error) {
		once.Do(func() {
			try.Duration = max(time.Since(start), 1)
			if err != nil {
				try.Err, try.ErrorClass = q.cred.redactor().error(err), ro.classifyTry(err)
			}
			q.res.mu.Lock()
			if n < maxTries {
				d.tries[n] = try
			}
			q.res.mu.Unlock()
			if ended != nil {
				ended(try)
			}
		})
	}
}

// classifyTry returns the class of the error of a try, which may end after the
// request, on a goroutine of the Backend.
func (ro *requestObserver) classifyTry(err error) (class ErrorClass) {
	defer func() {
		if recover() != nil { // a method of err, such as Unwrap, panicked
			class = ClassBackend
		}
	}()
	if ctx := ro.q.life.ctx; ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == errShutdown:
		return ClassShutdown
	case errors.Is(err, context.Canceled):
		return ClassCanceled
	}
	return classifyStatus(completeError(ro.q.r, err).Status, ClassBackend)
}

// notifyEnded calls the functions for the end of the request.
func (ro *requestObserver) notifyEnded() {
	d := ro.data
	if d == nil || d.hooks.Ended == nil && d.hooks.Transcript == nil {
		return
	}
	s := ro.summary()
	if d.transcript != nil {
		ro.q.log.callAndLog("observer panicked", func() error {
			d.hooks.Transcript(d.transcript.finish(&ro.q.chat.order, ro.q.cred.redactor()))
			return nil
		})
	}
	if d.hooks.Ended != nil {
		ro.q.log.callAndLog("observer panicked", func() error { d.hooks.Ended(s); return nil })
	}
}

func (ro *requestObserver) summary() *RequestSummary {
	q, d := ro.q, ro.data
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	s := &d.summary
	s.UsageRecord, s.Timing = *q.accounting.record, ro.timing
	s.Reply, s.Tries = ro.replySummary(), slices.Clone(d.tries)
	if d.started {
		s.Request = &d.info
	}
	s.Status, s.Err, s.ErrorClass = q.res.status, q.res.err, ro.errorClass()
	s.Limit, s.RecordErr = ro.refusedBy, ro.recordErr
	s.Streamed, s.Chunks = q.chat.stream != nil, ro.chunks
	if q.route != nil {
		s.Route, s.Operation = q.route.pattern, q.route.operation
	}
	for _, err := range []*error{&s.Err, &s.RecordErr} {
		if *err != nil {
			*err = q.cred.redactor().error(*err)
		}
	}
	if !q.res.firstWrite.IsZero() {
		s.FirstWrite = q.res.firstWrite.Sub(q.arrived)
	}
	s.Duration = time.Since(q.arrived)
	for i := range s.Tries {
		if t := &s.Tries[i]; t.Duration == 0 {
			t.Duration = s.Duration - t.Start
		}
	}
	return s
}

// errorClass returns the class of the error that the request failed with. q.res.mu is
// held.
func (ro *requestObserver) errorClass() ErrorClass {
	q := ro.q
	switch {
	case q.res.err == nil:
		return ""
	case q.res.clientLeft:
		return ClassCanceled
	case q.res.err == errShutdown:
		return ClassShutdown
	}
	return classifyStatus(completeError(q.r, q.res.err).Status, ro.stepClass)
}

// replySummary describes what the Backend replied. q.res.mu is held.
func (ro *requestObserver) replySummary() ReplySummary {
	o := &ro.q.chat.order
	s := ReplySummary{ID: o.start.ID, Model: cmp.Or(ro.model, o.model)}
	if len(o.choices) == 1 {
		s.FinishReasons = ro.data.finishReasons[:0]
	}
	for i := range o.choices {
		s.FinishReasons = append(s.FinishReasons, o.choices[i].reason)
	}
	return s
}
