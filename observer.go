// Collects what an Observer gets, and calls the functions of its Observation.

package llmhttp

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/llm"
)

// A requestObserver calls the functions of the Observation of a request. The zero
// requestObserver calls none. Goroutines of the Backend may call startTry and the function
// that startTry returns. Its other methods are called by the goroutine of ServeHTTP.
type requestObserver struct {
	data *observerData // nil if there is no Observer
}

// An observedRequest is what an observer knows of its request from the beginning.
type observedRequest struct {
	arrived time.Time
	cred    *credential // is removed from the texts that the Observer gets
	log     *requestLog
}

// An observerData has what is collected only if there is an Observer.
type observerData struct {
	observedRequest
	observation Observation
	ctx         context.Context // of the request
	transcript  *transcript     // nil unless one was asked for

	mu    sync.Mutex // guards the field below
	tries []TargetTry

	// Storage of what the Observer gets (budget: whole 0.5 KB with otelllm; BenchmarkObserve).
	info          observedInfo
	summary       RequestSummary
	finishReasons [1]llm.FinishReason
}

// maxTries is how many tries a RequestSummary has.
const maxTries = 100

// start calls observe, which may be nil, and returns the context in which to serve the
// request.
func (ro *requestObserver) start(ctx context.Context, observe Observer, of observedRequest) context.Context {
	if observe == nil {
		return ctx
	}
	d := &observerData{observedRequest: of, ctx: ctx}
	ro.data = d
	next, observation := observe(ctx, of.cred.r)
	d.observation = observation
	if next != nil {
		d.ctx = next
	}
	return d.ctx
}

// keep sets the Observation of a request whose Observer panics: what the Observers before
// the one that panics have returned. Observers that call each other keep theirs in turn,
// the innermost first.
func (ro *requestObserver) keep(all observations) {
	if d := ro.data; d != nil {
		d.observation = append(all, d.observation).join()
	}
}

// infoStorage returns where the RequestInfo that notifyStarted gets is to be, or nil if there is
// no Observer.
func (ro *requestObserver) infoStorage() *observedInfo {
	if ro.data == nil {
		return nil
	}
	return &ro.data.info
}

// notifyStarted calls Observation.Started, and returns the context for the Backend.
func (ro *requestObserver) notifyStarted(ctx context.Context) context.Context {
	if ro.data == nil || ro.data.observation.Started == nil {
		return ctx
	}
	if next := ro.data.observation.Started(ctx, &ro.data.info.info); next != nil {
		return next
	}
	return ctx
}

// startTranscript collects the texts of req, and makes order pass the reply through the
// transcript, if the Observer wants one. ctx is what notifyStarted has returned.
func (ro *requestObserver) startTranscript(ctx context.Context, req *llm.ChatRequest, order *order.Orderer) {
	if ro.data == nil || !ro.data.observation.wantsTranscript(ctx, &ro.data.info.info) {
		return
	}
	ro.data.transcript = newTranscript(req, int(min(ro.data.observation.transcriptLimit(), math.MaxInt)), order.Sink)
	order.Sink = ro.data.transcript
}

// startTry implements StartTry for this request.
func (ro *requestObserver) startTry(ctx context.Context, target string) (context.Context, func(error)) {
	d, start := ro.data, time.Now()
	if d == nil {
		return ctx, func(error) {}
	}
	try := TargetTry{Target: target, Start: start.Sub(ro.data.arrived)}
	n := d.addTry(try)
	var ended func(TargetTry)
	if d.observation.Try != nil {
		next, end := d.observation.Try(ctx, target)
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
				try.Err, try.ErrorClass = ro.data.cred.redactor().error(err), ro.classifyTry(err)
			}
			d.setTry(n, try)
			if ended != nil {
				ended(try)
			}
		})
	}
}

// addTry adds a try, and returns its number.
func (d *observerData) addTry(t TargetTry) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.tries)
	if n < maxTries {
		d.tries = append(d.tries, t)
	}
	return n
}

// setTry replaces the try of that number, if there is room for it.
func (d *observerData) setTry(n int, t TargetTry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n < maxTries {
		d.tries[n] = t
	}
}

// copyTries returns the tries. Those that have not ended last until the request ends, after
// the given duration.
func (d *observerData) copyTries(duration time.Duration) []TargetTry {
	d.mu.Lock()
	defer d.mu.Unlock()
	tries := slices.Clone(d.tries)
	for i := range tries {
		if t := &tries[i]; t.Duration == 0 {
			t.Duration = duration - t.Start
		}
	}
	return tries
}

// classifyTry returns the class of the error of a try, which may end after the
// request, on a goroutine of the Backend.
func (ro *requestObserver) classifyTry(err error) (class ErrorClass) {
	defer func() {
		if recover() != nil { // a method of err, such as Unwrap, panicked
			class = ClassBackend
		}
	}()
	if ctx := ro.data.ctx; ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == errShutdown:
		return ClassShutdown
	case errors.Is(err, context.Canceled):
		return ClassCanceled
	}
	return classifyStatus(completeError(ro.data.cred.r, err).Status, ClassBackend)
}

// An endedRequest is what an observer is told when a request has ended.
type endedRequest struct {
	outcome    *outcome
	record     *UsageRecord
	info       *RequestInfo // nil if the Backend was not called for an operation that calls a model
	route      string
	scope      Scope        // that the route needs; empty if the key was not found
	requested  string       // the model that the client asked for; any text
	refused    LimitRefusal // the limit that refused the request; zero if none did
	status     int          // zero if nothing was written
	admitted   time.Time    // when the Backend was called; zero if it was not
	firstWrite time.Time    // zero if nothing was written
	streamed   bool         // the client asked for a stream
	quotas     []QuotaUse
	priceErr   error
	recordErr  error
	saveErr    error
	reply      ReplySummary // its FinishReasons are copied
}

// wantsEnd reports whether notifyEnded calls any function.
func (ro *requestObserver) wantsEnd() bool {
	return ro.data != nil && (ro.data.observation.Ended != nil || ro.data.observation.Transcript != nil)
}

// notifyEnded calls the functions for the end of the request.
func (ro *requestObserver) notifyEnded(e *endedRequest) {
	d := ro.data
	s := ro.summary(e)
	if d.transcript != nil {
		ro.data.log.callAndLog("observer panicked", func() error {
			d.observation.Transcript(d.transcript.finish(e.reply.FinishReasons, ro.data.cred.redactor()))
			return nil
		})
	}
	if d.observation.Ended != nil {
		ro.data.log.callAndLog("observer panicked", func() error { d.observation.Ended(s); return nil })
	}
}

func (ro *requestObserver) summary(e *endedRequest) *RequestSummary {
	d, o := ro.data, e.outcome
	s := &d.summary
	s.Record, s.Request, s.Reply = *e.record, e.info, e.reply
	s.Timing = Timing{
		Admitted: ro.since(e.admitted), FirstChunk: o.chunks.first, FirstToken: o.chunks.firstToken,
		LastToken: o.chunks.lastToken, FirstWrite: ro.since(e.firstWrite), Duration: time.Since(ro.data.arrived),
	}
	s.Tries = d.copyTries(s.Duration)
	s.Route, s.Scope, s.Streamed, s.Chunks = e.route, e.scope, e.streamed, o.chunks.count
	s.Status, s.Err, s.ErrorClass, s.Refused = e.status, o.err, o.class, e.refused
	s.Quotas, s.PriceErr, s.RecordErr, s.SaveErr = e.quotas, e.priceErr, e.recordErr, e.saveErr
	if s.Record.Model == "" && e.requested != "" {
		s.Requested = jsonwire.Clip(d.cred.redactor().text(e.requested), 128)
	}
	if reasons := e.reply.FinishReasons; len(reasons) == 1 {
		d.finishReasons[0] = reasons[0]
		s.Reply.FinishReasons = d.finishReasons[:]
	}
	for _, err := range []*error{&s.Err, &s.PriceErr, &s.RecordErr, &s.SaveErr} {
		if *err != nil {
			*err = d.cred.redactor().error(*err)
		}
	}
	return s
}

// since returns how long after its arrival the request was at t, or zero if t is zero.
func (ro *requestObserver) since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(ro.data.arrived)
}
