package llmhttp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// A requestObserver collects what the Observer of a request gets, and calls its
// functions. Goroutines of the Backend may call addChunk, startTry and the function
// that startTry returns. Its other methods are called by the goroutine of ServeHTTP.
type requestObserver struct {
	q         *request
	observed  *observedRequest // nil if there is no Observer
	stepClass ErrorClass       // the class of a 5xx at the present step
	refusedBy string           // the limit that refused the request
	recordErr error

	// The fields below are guarded by q.res.mu.
	chunks int
	timing Timing
}

// An observedRequest is what is only collected for an Observer.
type observedRequest struct {
	hooks      Observation
	info       *RequestInfo // requestInfo; nil until the Backend is called
	transcript *transcript  // nil unless one was asked for
	replyModel string       // of embeddings

	// tries is guarded by the response's mu.
	tries []Try

	// Storage of what the Observer gets (budget: whole 0.5 KB with otelllm; BenchmarkObserve).
	requestInfo RequestInfo
	summary     RequestSummary
	finish      [1]FinishReason
}

var errNotRecorded = errors.New("llmhttp: UsageStore.Record panicked")

// maxTries is how many tries a RequestSummary has.
const maxTries = 100

// observe calls the Observer. The context that it returns is the one that the
// stores and the Backend get.
func (ro *requestObserver) observe() {
	q := ro.q
	observe := q.h.opts.Observe
	if observe == nil {
		return
	}
	o := new(observedRequest)
	ro.observed = o
	var ctx context.Context
	if ctx, o.hooks = observe(q.life.ctx, q.r); ctx != nil {
		q.life.derive(ctx)
	}
}

// A describer is a request that a Backend gets.
type describer interface {
	// describe sets the fields of info that the request knows.
	describe(info *RequestInfo)
}

// start notes that the Backend is about to be called with req. The context that
// Started returns is the Backend's.
func (ro *requestObserver) start(req describer) {
	o := ro.observed
	if o == nil {
		return
	}
	q := ro.q
	used := q.accounting.record
	info := &o.requestInfo
	info.ID, info.Account, info.KeyID, info.Model = used.ID, used.Account, used.KeyID, used.Model
	info.Protocol, info.Operation, info.Arrived = used.Protocol, q.route.operation, q.arrived.Round(0)
	info.Params.Choices = 1
	req.describe(info)
	o.info = info
	q.res.mu.Lock()
	ro.timing.Admitted = time.Since(q.arrived)
	q.res.mu.Unlock()
	if o.hooks.Started == nil {
		return
	}
	if ctx := o.hooks.Started(q.life.ctx, o.info); ctx != nil {
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
	q, o := ro.q, ro.observed
	start := time.Now()
	try := Try{Target: target, Start: start.Sub(q.arrived)}
	q.res.mu.Lock()
	n := len(o.tries)
	if n < maxTries {
		o.tries = append(o.tries, try)
	}
	q.res.mu.Unlock()
	var ended func(Try)
	if o.hooks.Try != nil {
		next, end := o.hooks.Try(ctx, target)
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
				try.Err, try.ErrorClass = q.cred.redactor().err(err), ro.classifyTry(err)
			}
			q.res.mu.Lock()
			if n < maxTries {
				o.tries[n] = try
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

// setReplyModel notes which model a Backend says that it used for embeddings.
func (ro *requestObserver) setReplyModel(model string) {
	if ro.observed != nil {
		ro.observed.replyModel = model
	}
}

// end calls the functions for the end of the request.
func (ro *requestObserver) end() {
	o := ro.observed
	if o == nil || o.hooks.Ended == nil && o.hooks.Transcript == nil {
		return
	}
	s := ro.summary()
	if o.transcript != nil {
		ro.q.log.guard("observer panicked", func() error {
			o.hooks.Transcript(o.transcript.finish(&ro.q.chat.order, ro.q.cred.redactor()))
			return nil
		})
	}
	if o.hooks.Ended != nil {
		ro.q.log.guard("observer panicked", func() error { o.hooks.Ended(s); return nil })
	}
}

func (ro *requestObserver) summary() *RequestSummary {
	q, o := ro.q, ro.observed
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	s := &o.summary
	s.UsageRecord, s.Timing = *q.accounting.record, ro.timing
	s.Request, s.Reply, s.Tries = o.info, ro.reply(), slices.Clone(o.tries)
	s.Status, s.Err, s.ErrorClass = q.res.status, q.res.err, ro.class()
	s.Limit, s.RecordErr = ro.refusedBy, ro.recordErr
	s.Streamed, s.Chunks = q.chat.stream != nil, ro.chunks
	if q.route != nil {
		s.Route, s.Operation = q.route.pattern, q.route.operation
	}
	for _, err := range []*error{&s.Err, &s.RecordErr} {
		if *err != nil {
			*err = q.cred.redactor().err(*err)
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

// class returns the class of the error that the request failed with. q.res.mu is
// held.
func (ro *requestObserver) class() ErrorClass {
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

// reply describes what the Backend replied. q.res.mu is held.
func (ro *requestObserver) reply() ReplySummary {
	o := &ro.q.chat.order
	s := ReplySummary{ID: o.start.ID, Model: o.model}
	if ro.observed.replyModel != "" {
		s.Model = ro.observed.replyModel
	}
	if len(o.choices) == 1 {
		s.FinishReasons = ro.observed.finish[:0]
	}
	for i := range o.choices {
		s.FinishReasons = append(s.FinishReasons, o.choices[i].reason)
	}
	return s
}

// A Transcript has the texts of a chat, for an [Observer] that asks for them. It
// contains no images, no audio, no files, no encrypted reasoning and no members of
// Extra: of parts of a message other than text it has only the Type. The API key
// of the request is redacted.
type Transcript struct {
	Messages  []Message // of the request, up to the one at which the limit was reached
	Tools     []Tool
	Choices   []Choice // of the reply, as far as the Backend yielded it
	Truncated bool     // texts are missing, because the limit was reached
}

const (
	defaultTranscriptLimit = 16 << 10

	// transcriptOverhead is how many bytes a message, a part, a tool or a call
	// counts besides its texts, so that their number is bounded too.
	transcriptOverhead = 16
)

func (o *Observation) transcriptLimit() int {
	if o.TranscriptLimit <= 0 {
		return defaultTranscriptLimit
	}
	return o.TranscriptLimit
}

// A transcript collects a Transcript. After addRequest it is a chunkSink that
// passes chunks on to next, and it is guarded by the response's mu.
type transcript struct {
	out       Transcript
	bytesLeft int // that may still be added
	reply     joiner
	next      chunkSink
}

// transcribe collects the texts of req and of the reply, if the Observer asked
// for them.
func (ro *requestObserver) transcribe(req *ChatRequest, order *orderer) {
	if ro.observed == nil || ro.observed.hooks.Transcript == nil {
		return
	}
	limit := ro.observed.hooks.transcriptLimit()
	t := &transcript{bytesLeft: limit, next: order.sink}
	t.addRequest(req)
	t.bytesLeft = limit
	ro.observed.transcript, order.sink = t, t
}

func (t *transcript) addRequest(r *ChatRequest) {
	for i := range r.Messages {
		if !t.enter() {
			return
		}
		t.out.Messages = append(t.out.Messages, t.message(&r.Messages[i]))
	}
	for i := range r.Tools {
		if !t.enter() {
			return
		}
		t.out.Tools = append(t.out.Tools, t.tool(&r.Tools[i]))
	}
}

func (t *transcript) message(m *Message) Message {
	out := Message{Role: m.Role, Name: t.text(m.Name), ToolCallID: t.text(m.ToolCallID), IsError: m.IsError,
		Reasoning: t.text(m.Reasoning), Refusal: t.text(m.Refusal)}
	for i := range m.Content {
		if !t.enter() {
			return out
		}
		out.Content = append(out.Content, Part{Type: t.text(m.Content[i].Type), Text: t.text(m.Content[i].Text)})
	}
	for i := range m.ToolCalls {
		if !t.enter() {
			return out
		}
		c := &m.ToolCalls[i]
		out.ToolCalls = append(out.ToolCalls, ToolCall{ID: t.text(c.ID), Type: t.text(c.Type), Function: t.call(&c.Function)})
	}
	return out
}

func (t *transcript) call(f *FunctionCall) FunctionCall {
	return FunctionCall{Name: t.text(f.Name), Arguments: t.text(f.Arguments)}
}

// tool returns a copy of a tool. The schema of its parameters is kept whole or
// left out.
func (t *transcript) tool(from *Tool) Tool {
	out := Tool{Type: t.text(from.Type)}
	if f := from.Function; f != nil {
		out.Function = &Function{Name: t.text(f.Name), Description: t.text(f.Description)}
		if len(f.Parameters) > t.bytesLeft {
			t.bytesLeft, t.out.Truncated = 0, true
		} else if f.Parameters != nil {
			out.Function.Parameters = []byte(t.text(string(f.Parameters)))
		}
	}
	return out
}

// add is called by the orderer.
func (t *transcript) add(c *ChatChunk) {
	t.addReply(&c.Choices[0])
	t.next.add(c)
}

// addReply joins a part of the reply. When there is no room left, nothing more is
// joined, because the joiner must get the first part of each choice and call.
func (t *transcript) addReply(c *ChunkChoice) {
	d := &c.Delta
	switch {
	case c.FinishReason != "":
		return
	case t.bytesLeft <= 0, d.Role != "" && !t.enter():
		t.out.Truncated = t.out.Truncated || !isEmptyDelta(d)
		return
	}
	part := Delta{Role: d.Role, Content: t.text(d.Content), Reasoning: t.text(d.Reasoning), Refusal: t.text(d.Refusal)}
	for i := range d.ToolCalls {
		call := &d.ToolCalls[i]
		if t.bytesLeft <= 0 || call.ID != "" && !t.enter() {
			t.out.Truncated = true
			break
		}
		part.ToolCalls = append(part.ToolCalls, ToolCallDelta{Index: call.Index, ID: t.text(call.ID), Type: t.text(call.Type), Function: t.call(&call.Function)})
	}
	t.reply.add(&ChatChunk{Choices: []ChunkChoice{{Index: c.Index, Delta: part}}})
}

// enter takes the room for a message, a part, a tool or a call.
func (t *transcript) enter() bool {
	if t.bytesLeft <= 0 {
		t.out.Truncated = true
		return false
	}
	t.bytesLeft -= transcriptOverhead
	return true
}

// text takes the room for s and returns it, or as much of it as there is room
// for.
func (t *transcript) text(s string) string {
	room := min(max(t.bytesLeft, 0), redact.MaxText)
	if len(s) <= room {
		t.bytesLeft -= len(s)
		return s
	}
	t.out.Truncated = true
	t.bytesLeft -= room
	return s[:room-incompleteSuffix(s[:room])] + jsonwire.ClipMark
}

// finish returns what was collected, without the API key of the request.
func (t *transcript) finish(o *orderer, r redactor) *Transcript {
	slices.SortFunc(t.reply.choices, func(a, b joinedChoice) int { return a.index - b.index })
	for i := range t.reply.choices {
		c := &t.reply.choices[i]
		m := c.joinMessage(make(Content, 1))
		r.message(&m)
		t.out.Choices = append(t.out.Choices, Choice{Index: c.index, Message: m, FinishReason: o.choices[c.index].reason})
	}
	for i := range t.out.Messages {
		r.message(&t.out.Messages[i])
	}
	for i := range t.out.Tools {
		r.tool(&t.out.Tools[i])
	}
	return &t.out
}

// message redacts the texts of m in place.
func (r redactor) message(m *Message) {
	r.texts(&m.Name, &m.ToolCallID, &m.Reasoning, &m.Refusal)
	for i := range m.Content {
		r.texts(&m.Content[i].Type, &m.Content[i].Text)
	}
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		r.texts(&c.ID, &c.Type, &c.Function.Name, &c.Function.Arguments)
	}
}

// tool redacts the texts of t in place.
func (r redactor) tool(t *Tool) {
	r.texts(&t.Type)
	if f := t.Function; f != nil {
		r.texts(&f.Name, &f.Description)
		if f.Parameters != nil {
			f.Parameters = []byte(r.text(string(f.Parameters)))
		}
	}
}

func (r redactor) texts(texts ...*string) {
	for _, s := range texts {
		*s = r.text(*s)
	}
}
