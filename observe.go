package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An Observer is called when a request begins. It returns the context in which
// to serve the request, which must derive from ctx, or nil for ctx itself. The
// Observation has the functions to call as the request proceeds; the zero
// Observation has none.
//
// [RequestIDFrom] of ctx is the ID of the request. An Observer must be safe for
// concurrent use and must not read the body of the request.
type Observer func(ctx context.Context, r *http.Request) (context.Context, Observation)

// An Observation is what an [Observer] does for one request. Each function may
// be nil. A function must return soon: the request waits for it.
type Observation struct {
	// Started is called before the Backend is called for a chat, images or
	// embeddings, when the request has been decoded, checked and admitted. It
	// returns the context for the Backend and for the stores that settle the
	// request. That must derive from ctx; nil means ctx itself. Started must not
	// modify info, but may keep it. [RequestInfoFrom] returns the same.
	Started func(ctx context.Context, info *RequestInfo) context.Context

	// Try is called when a Backend begins to call one of several targets: see
	// [StartTry]. It returns the context for the call, which must derive from ctx,
	// or nil for ctx itself, and a function to call when the call has ended, or nil.
	// It may be called concurrently if the Backend calls StartTry concurrently.
	Try func(ctx context.Context, target string) (context.Context, func(Try))

	// Transcript receives the texts of a chat before Ended is called, if the
	// Backend was called. Texts are only collected if this function is set.
	Transcript func(*Transcript)

	// TranscriptLimit is the maximum number of bytes of the texts of the request,
	// and of those of the reply. Zero or negative means 16 KiB. Of a single text at
	// most 64 KiB are kept.
	TranscriptLimit int

	// Ended is called once when the request has ended, whether it succeeded,
	// failed, panicked or was abandoned by its client. It may keep its argument.
	Ended func(*RequestSummary)
}

// Observers returns an Observer that calls each of obs in order. Functions that
// mark an end are called in reverse order; if one panics, the others are still
// called. If an Observer panics, those before it still learn of the end of the
// request, which fails. If several ask for a Transcript, all get the same, which has the
// largest of their limits.
func Observers(obs ...Observer) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, Observation) {
		var all observations
		q, returned := requestFrom(ctx), false
		defer func() {
			if !returned && q != nil {
				q.observer.keep(all)
			}
		}()
		for _, o := range obs {
			if o == nil {
				continue
			}
			next, observation := o(ctx, r)
			if next != nil {
				ctx = next
			}
			all = append(all, observation)
		}
		returned = true
		return ctx, all.join()
	}
}

type observations []Observation

// join returns an Observation with the functions that at least one of all has.
func (all observations) join() Observation {
	var joined Observation
	for _, o := range all {
		if o.Started != nil {
			joined.Started = all.started
		}
		if o.Try != nil {
			joined.Try = all.try
		}
		if o.Transcript != nil {
			joined.Transcript = all.transcript
			joined.TranscriptLimit = max(joined.TranscriptLimit, o.transcriptLimit())
		}
		if o.Ended != nil {
			joined.Ended = all.ended
		}
	}
	return joined
}

func (all observations) started(ctx context.Context, info *RequestInfo) context.Context {
	for _, o := range all {
		if o.Started != nil {
			if next := o.Started(ctx, info); next != nil {
				ctx = next
			}
		}
	}
	return ctx
}

func (all observations) try(ctx context.Context, target string) (context.Context, func(Try)) {
	var ends []func(Try)
	for _, o := range all {
		if o.Try == nil {
			continue
		}
		next, end := o.Try(ctx, target)
		if next != nil {
			ctx = next
		}
		if end != nil {
			ends = append(ends, end)
		}
	}
	return ctx, func(t Try) {
		for _, end := range ends {
			defer end(t)
		}
	}
}

func (all observations) transcript(t *Transcript) {
	for _, o := range all {
		if o.Transcript != nil {
			defer o.Transcript(t)
		}
	}
}

func (all observations) ended(s *RequestSummary) {
	for _, o := range all {
		if o.Ended != nil {
			defer o.Ended(s)
		}
	}
}

// An Operation is what a request asks a model to do. Unlike an [Endpoint], it is the name for
// Observers, and has nothing to do with the scopes of keys.
type Operation string

// The operations. Requests that call no model, such as for the list of models,
// have none.
const (
	OperationChat       Operation = "chat"
	OperationImages     Operation = "images"
	OperationEmbeddings Operation = "embeddings"
)

// A RequestInfo describes a request that is passed to the Backend. It contains no
// secrets and no messages. All its texts but ID, Account, KeyID and Protocol are
// chosen by the client.
type RequestInfo struct {
	ID           string
	Account      string
	KeyID        string
	Protocol     string    // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Operation    Operation // never empty
	Model        string    // the name that the client used; at most 512 bytes
	Conversation string    // the ID that [SetConversation] has set; empty if it was not called
	Stream       bool      // whether the client asked for a stream
	Arrived      time.Time // when the request arrived, by the clock of the system
	Params       RequestParams
}

// RequestParams are the parameters of a request. A nil pointer or a zero means
// that the client did not set the parameter, or that the operation has no such
// parameter.
type RequestParams struct {
	MaxTokens        int // of each choice
	Choices          int // the number of choices or images that the client gets, at least 1
	Messages         int // the number of messages, or of inputs of an embedding
	Tools            int // the number of tools
	Temperature      *float64
	TopP             *float64
	TopK             *float64
	PresencePenalty  *float64
	FrequencyPenalty *float64
	Seed             *int
	Stop             []string
	ReasoningEffort  string // for example "low"; not checked
	ResponseFormat   string // "text", "json_object" or "json_schema"
	EncodingFormat   string // of embeddings
	Dimensions       int    // of embeddings
}

// A RequestSummary describes a request that has ended. It contains no API keys. It
// contains the model and the parameters, but not the rest of the body. The text of Err
// can quote the body: errors of invalid requests do, and errors of a Backend may.
type RequestSummary struct {
	UsageRecord // fields are zero if the request failed before they were known
	Timing
	Requested  string       // the model that the request asks for, if it was refused for that: printable, at most 128 bytes and a mark where it is cut. Any client can choose it: do not make it a label of a metric
	Request    *RequestInfo // nil if the Backend was not called for a chat, images or embeddings
	Reply      ReplySummary
	Route      string // method and pattern of the path, with Options.Prefix, such as "GET /v1/models/{id...}"; empty for unknown paths
	Operation  Operation
	Status     int        // HTTP status; 499 if the client disconnected before one was sent
	Err        error      // why the request failed; nil if it succeeded. If a stream fails, Status is still 200
	ErrorClass ErrorClass // of Err; empty if it is nil
	Limit      string     // the limit that refused the request: the name of a bucket, or LimitConcurrent; empty if none did
	RecordErr  error      // why UsageStore.Record did not store the UsageRecord; nil if it did, or was not called
	SaveErr    error      // why a reply that was sent was not stored: see ReplySaver; otherwise nil
	Streamed   bool       // whether the client asked for a stream; not known if Request is nil
	Chunks     int        // number of chunks that the Backend yielded
	Tries      []Try      // in the order of their start; the first 100 that the Backend reported with [StartTry]
}

// LimitConcurrent is the Limit of a [RequestSummary] that Limits.Concurrent
// refused.
const LimitConcurrent = "concurrent"

// Target returns the target of the last try, or "" if there was none.
func (s *RequestSummary) Target() string {
	if len(s.Tries) == 0 {
		return ""
	}
	return s.Tries[len(s.Tries)-1].Target
}

// Aborted reports whether the reply was a stream that failed after it began.
func (s *RequestSummary) Aborted() bool {
	return s.Err != nil && s.Streamed && s.Status == http.StatusOK
}

// Timing has the times of parts of a request, as durations since its arrival.
// A part that did not happen is zero.
type Timing struct {
	Admitted   time.Duration // the Backend was called for a chat, images or embeddings
	FirstChunk time.Duration // the Backend yielded a chunk
	FirstToken time.Duration // the Backend yielded a chunk with text, reasoning, a refusal or a tool call
	LastToken  time.Duration // the last of those
	FirstWrite time.Duration // the reply began to be written; a comment that keeps a stream alive counts
	Duration   time.Duration // the request ended
}

// A ReplySummary describes what the Backend replied.
type ReplySummary struct {
	ID            string         // as the Backend set it; may be empty
	Model         string         // as the Backend set it; may be empty
	FinishReasons []FinishReason // of the choices of a chat in the order of their indices; empty for one that did not end
}

// A Try is a call of a Backend to one of several targets.
type Try struct {
	Target     string        // the name that the host configured
	Start      time.Duration // from the arrival of the request
	Duration   time.Duration // until the try ended, or if it did not, until the request did
	Err        error         // nil if the try succeeded; may quote the request
	ErrorClass ErrorClass    // of Err; empty if it is nil
}

// StartTry tells the Observer of a request that the Backend is about to call one of several
// targets. ctx is the context that the Backend got for the request. The Backend must use the context that StartTry returns for the call, and must call
// end when the call has ended, with the error or nil. Calls of end after the first
// do nothing.
//
// Use a name that the host has configured and not an address, because summaries
// are logged and counted by target. If ctx does not belong to a request of a
// Handler that has an Observer, StartTry returns ctx, and an end that does nothing. It
// may be called concurrently.
func StartTry(ctx context.Context, target string) (_ context.Context, end func(error)) {
	q := requestFrom(ctx)
	if q == nil || q.observer.data == nil {
		return ctx, func(error) {}
	}
	return q.observer.startTry(ctx, target)
}

// A requestObserver collects what the Observer of a request gets, and calls its
// functions. Goroutines of the Backend may call addChunk, startTry and the function
// that startTry returns. Its other methods are called by the goroutine of ServeHTTP.
type requestObserver struct {
	q         *request
	data      *observerData // nil if there is no Observer
	stepClass ErrorClass    // the ErrorClass of the request if the current step fails with a 5xx
	refusedBy string        // the limit that refused the request
	recordErr error         // of UsageStore.Record
	saveErr   error         // of a ReplySaver whose reply is sent nevertheless
	model     string        // as the Backend set it in the reply to a request for embeddings

	requestedModel string // by the client; it may be any text

	// The fields below are guarded by q.res.mu.
	chunks int
	timing Timing
}

// An observerData has what is collected only if there is an Observer.
type observerData struct {
	observation Observation
	transcript  *transcript // nil unless one was asked for

	// tries is guarded by the response's mu.
	tries []Try

	// Storage of what the Observer gets (budget: whole 0.5 KB with otelllm; BenchmarkObserve).
	description   description
	summary       RequestSummary
	finishReasons [1]FinishReason
}

var errNotRecorded = errors.New("llmhttp: UsageStore.Record did not return")

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
	if ctx, ro.data.observation = observe(q.life.ctx, q.r); ctx != nil {
		q.life.setContext(ctx)
	}
}

// keep sets the Observation of a request whose Observer panics: what the Observers before
// the one that panics have returned. Observers that call each other keep theirs in turn,
// the innermost first.
func (ro *requestObserver) keep(all observations) {
	if d := ro.data; d != nil {
		d.observation = append(all, d.observation).join()
	}
}

// notifyStarted calls Observation.Started, whose context the Backend gets.
func (ro *requestObserver) notifyStarted(info *RequestInfo) {
	d := ro.data
	if d == nil {
		return
	}
	q := ro.q
	q.res.mu.Lock()
	ro.timing.Admitted = q.idle.lastProgress.Sub(q.arrived) // beginBackendCall has just set it
	q.res.mu.Unlock()
	if d.observation.Started == nil {
		return
	}
	if ctx := d.observation.Started(q.life.ctx, info); ctx != nil {
		q.life.backendCtx = ctx
	}
}

// addChunk notes that the Backend yielded c. q.res.mu is held.
func (ro *requestObserver) addChunk(c *ChatChunk, now time.Time) {
	if c == nil {
		return
	}
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
	if d == nil || d.observation.Ended == nil && d.observation.Transcript == nil {
		return
	}
	s := ro.summary()
	if d.transcript != nil {
		ro.q.log.callAndLog("observer panicked", func() error {
			d.observation.Transcript(d.transcript.finish(&ro.q.chat.order, ro.q.cred.redactor()))
			return nil
		})
	}
	if d.observation.Ended != nil {
		ro.q.log.callAndLog("observer panicked", func() error { d.observation.Ended(s); return nil })
	}
}

func (ro *requestObserver) summary() *RequestSummary {
	q, d := ro.q, ro.data
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	s := &d.summary
	s.UsageRecord, s.Timing = *q.accounting.record, ro.timing
	s.Reply, s.Tries = ro.replySummary(), slices.Clone(d.tries)
	s.Request = q.info.load()
	s.Status, s.Err, s.ErrorClass = q.res.status, q.res.err, ro.errorClass()
	s.Limit, s.RecordErr, s.SaveErr = ro.refusedBy, ro.recordErr, ro.saveErr
	if s.Model == "" && ro.requestedModel != "" {
		s.Requested = jsonwire.Clip(q.cred.redactor().text(ro.requestedModel), 128)
	}
	s.Streamed, s.Chunks = q.chat.stream != nil, ro.chunks
	if q.route != nil {
		s.Route, s.Operation = q.route.pattern, q.route.operation
	}
	for _, err := range []*error{&s.Err, &s.RecordErr, &s.SaveErr} {
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
	failing := ro.stepClass
	if isResponseStoreError(q.res.err) {
		failing = ClassResponseStore
	}
	return classifyStatus(completeError(q.r, q.res.err).Status, failing)
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
