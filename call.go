// A request as the function of its route sees it, and endpoints of hosts. A Call has what all
// operations have in common.

package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/llm"
)

// A Call is one request for an operation, as the function of its route sees it, which reads from
// top to bottom: it decodes the Body, calls Reserve, asks the Backend within Ask, and calls Reply.
// What all operations have in common is in these methods: scopes and limits, timeouts, Observers,
// records and settlement.
//
// The function returns the first error that one of them returns; if it does not, the request fails
// with that of Reserve, Ask or Reply nevertheless. A request whose methods are called in another
// order fails with a 500, and the log tells why. The methods must be called by the function itself,
// on its goroutine, and not after it has returned. See "Endpoints of hosts" in the package documentation.
type Call struct {
	q     *request
	stage callStage
	err   error // of Reserve, Ask, Reply or End, or for a wrong order; nil if there was none

	stream *ReplyStream // nil if the reply is whole

	checked  bool // Check was called
	bodyRead bool
	told     description
	backend  callBackend

	// Of a reply of Generate.
	asked    *Estimate // with a Chat; nil for other replies
	generate func(ctx context.Context, b Backend) llm.ChatStream
}

// A callStage is how far a Call has come.
type callStage uint8

const (
	callBegun    callStage = iota
	callReserved           // Reserve has returned nil
	callAsked              // Ask has returned nil
	callReplied
	callBusy    // the function of Check or Ask runs
	callRefused // Reserve has returned an error
	callFailed  // Ask has returned an error
)

// An Estimate is what a request for a model is expected to use, and what is known of it before the
// Backend is called. See "Endpoints of hosts" in the package documentation.
type Estimate struct {
	Model string // that the client asks for, which the key must allow; must not be empty
	User  string // whom the client names as the end user; empty if it names none
	Units *Units // what else the client asks for, such as images; nil if nothing. Negative numbers count as zero

	// Tokens returns the number of tokens of the prompt, of which at least one is reserved. It is
	// called by Reserve when the key allows the model and the end user, and may call CountText. Nil is
	// like zero.
	Tokens func() int

	Stream bool          // whether the client asks for a stream
	Params RequestParams // for Observers; a number of Choices below 1 is 1

	ImageSize, ImageQuality string // for the record; empty if there are none

	// Chat is the request as a chat, as far as a chat can express it, for a reply of [Call.Generate]; nil for
	// other replies. The Model, the end user, the choices, the limit on their tokens, the service tier and the
	// parameters are those of Chat then, and a [Transcript] has its messages. Of the fields above only Tokens
	// and Params.Messages count, by default those of Chat. It need not be valid. A choice without a limit
	// reserves Options.Estimates.ReserveCompletion. Reserve sets the limit of Chat to that of the key if that is less.
	Chat *llm.ChatRequest

	Attempts  int // how many choices the model makes, of which the reply has those of Chat; not less than these
	EchoBytes int // with how many bytes of the request a choice of Generate may begin; negative is like zero
}

// Used is what a Backend has used for a request, as its reply tells. What it does not tell, and
// [llm.ReportUsage] has not told either, depends on the end of the request: if it succeeds, the tokens are
// estimated, with the Output of the [Endpoint]; if the client has left before there was a reply, those of
// the prompt are, and the Units of the [Estimate] are charged; if it fails otherwise, nothing is.
// See "Endpoints of hosts" in the package documentation.
type Used struct {
	Usage *llm.Usage // nil if it is not known
	Units *Units     // besides tokens; nil if there is nothing else. Negative numbers count as zero
	Model string     // that has served the request; empty if the reply does not tell
	Size  int        // of the reply in bytes, about: it is refused above Options.Bounds.MaxReply
}

var (
	errChatOrder    = errors.New("llmhttp: Generate of a Call was called before Reserve with a Chat, in or after Ask, twice, or with a ReplyStream")
	errReserveOrder = errors.New("llmhttp: Reserve of a Call was called twice, or within Check or Ask")
	errReserveQuery = errors.New("llmhttp: Reserve of a Call was called for an operation without a name, which calls no model")
	errCheckOrder   = errors.New("llmhttp: Check of a Call was called within another, or in or after Ask")
	errAskOrder     = errors.New("llmhttp: Ask of a Call was called before Reserve, twice, or within Check")
	errImageOrder   = errors.New("llmhttp: ImageURL of a Call was called before Ask has returned without an error, or after Reply")
	errReplyUnasked = errors.New("llmhttp: Reply of a Call, or End of its ReplyStream, was called before Ask has returned without an error")
	errReplyTwice   = errors.New("llmhttp: Reply of a Call, or End of its ReplyStream, was called twice")
	errBodyTwice    = errors.New("llmhttp: Body of a Call, or ReadBody, was called twice")
	errBackendOrder = errors.New("llmhttp: the Backend of a Call was used outside of Check and Ask, and of Generate")
	errNoReply      = errors.New("llmhttp: the function of a route has neither replied nor returned an error")
)

// run calls the function of the route.
func (c *Call) run(serve func(*Call) error) error {
	q, returned := c.q, false
	c.backend.next = q.h.backend
	defer func() {
		if !returned {
			q.leftIn = cmp.Or(q.leftIn, c.class())
		}
	}()
	err := serve(c)
	returned = true
	switch {
	case c.err != nil:
		err = c.err
	case c.checkOrder() != nil:
		err = c.checkOrder()
	case err == nil && c.stage != callReplied && c.stream != nil:
		err = errStreamNoEnd
	case err == nil && c.stage != callReplied:
		err = errNoReply
	}
	return classify(c.class(), err)
}

// class returns the class of an error that has none: when Reserve has succeeded the Backend is the
// cause, and from Check on if no model is called.
func (c *Call) class() ErrorClass {
	if c.stage == callRefused || c.stage == callBegun && !(c.checked && c.isQuery()) {
		return ""
	}
	return ClassBackend
}

// isQuery reports whether the operation calls no model.
func (c *Call) isQuery() bool { return c.q.route.binding.op.name == "" }

// keep keeps the first error.
func (c *Call) keep(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}

// Context returns the context of the request, which [KeyFrom] and the like take. It is not the one for
// the Backend, which Check and Ask pass on.
func (c *Call) Context() context.Context { return c.q.client.Context() }

// Time returns the time of the request, as its record has it: see Options.Now.
func (c *Call) Time() time.Time { return c.q.record.Time }

// Request returns the request, whose URL is without Options.Prefix. Its body must not be read, and
// its context is that of net/http: use Context.
func (c *Call) Request() *http.Request { return c.q.routed }

// Body calls decode with the body of the request, which is JSON of at most Options.Bounds.MaxBody bytes and
// only valid during the call. It is empty for GET, HEAD and DELETE. It is called once.
func (c *Call) Body(decode func(body []byte) error) error {
	if c.bodyRead {
		return c.keep(errBodyTwice)
	}
	c.bodyRead = true
	return c.q.withBody(func(_ context.Context, _ *http.Request, body []byte) error { return decode(body) })
}

// ReadBody is Body for requests whose body is not JSON, or is not kept as it is: it calls read with the
// body of the request, of which no more than limit bytes are read. A larger one gets a 413, and one that is
// compressed in an unknown way a 415; its Content-Type is for the caller to check. read reads to the end, or returns an
// error, which fails the request. Files of forms are read by package form.
func (c *Call) ReadBody(limit int64, read func(body io.Reader) error) error {
	if c.bodyRead {
		return c.keep(errBodyTwice)
	}
	c.bodyRead = true
	return c.q.streamBody(limit, read)
}

// Cleanup makes the Handler call f when the request has ended, also if it fails, whatever the reason. Backends
// that have not returned when their time was over may still run then. Functions are called in the reverse
// order, before Observers are told that the request has ended.
func (c *Call) Cleanup(f func()) {
	q, next := c.q, c.q.cleanup
	q.cleanup = func() {
		if next != nil {
			defer next()
		}
		f()
	}
}

// CountText estimates the tokens of a text, with Options.Estimates.TextTokens if that is set. It is for
// Estimate.Tokens: before that, the model is not known.
func (c *Call) CountText(text string) int {
	n := c.q.tokenEstimator()
	return n.Text(text)
}

// TextTokens returns Options.Estimates.TextTokens, which CountText calls. It is nil if the host has set none: then
// CountText counts bytes, for which a function of Estimate.Tokens need not join texts.
func (c *Call) TextTokens() func(model, text string) int { return c.q.h.opts.Estimates.TextTokens }

// Reserve checks that the key allows the model, finds the end user, and takes what the request is
// expected to use from the limits of the key, of its Subjects and of the end user. It is called
// once, before Ask.
func (c *Call) Reserve(e Estimate) error {
	switch {
	case c.isQuery():
		return c.keep(errReserveQuery)
	case c.err != nil || c.stage != callBegun:
		return c.keep(errReserveOrder)
	case e.Chat == nil && e.Model == "", e.Chat != nil && e.Chat.Model == "":
		return c.keep(invalid.Missing("model"))
	}
	var err error
	if e.Chat != nil {
		err = c.reserveChat(e)
	} else {
		c.told = description{stream: e.Stream, params: e.Params.clone()}
		e.Units = notNegative(e.Units)
		err = c.q.reserveEstimate(&e)
	}
	c.told.params.Choices = max(c.told.params.Choices, 1)
	if err != nil {
		c.stage = callRefused
		return c.keep(err)
	}
	c.stage = callReserved
	return nil
}

// reserveChat is Reserve for a reply of Generate.
func (c *Call) reserveChat(e Estimate) error {
	c.asked = &e
	if err := c.q.reserveChat(generation{e.Chat, c}); err != nil {
		return err
	}
	generation{ChatRequest: e.Chat}.describe(&c.told)
	c.told.params = c.told.copyParams()
	c.told.params.Messages = cmp.Or(e.Params.Messages, c.told.params.Messages)
	return nil
}

// notNegative returns a copy of u without negative numbers, or nil for nil.
func notNegative(u *Units) *Units {
	if u == nil {
		return nil
	}
	u = new(*u)
	for _, n := range u.numbers() {
		*n = max(*n, 0)
	}
	return u
}

// Check calls a method of the Backend that uses no model, before Ask: to find out which sizes a model
// allows, for example. Options.Bounds.Timeout applies to it. It is not recorded, and no Observer is told. The
// Backend is there as long as check runs, and [As] finds its methods.
func (c *Call) Check(check func(ctx context.Context, b Backend) error) error {
	if c.err != nil || c.stage != callBegun && c.stage != callReserved {
		return c.keep(errCheckOrder)
	}
	q, stage := c.q, c.stage
	c.checked, c.stage = true, callBusy
	defer func() { c.stage = stage }()
	_, err := callUnrecorded(q, ClassBackend, func(ctx context.Context) (struct{}, error) {
		c.backend.asking.Store(true)
		defer c.backend.asking.Store(false)
		return struct{}{}, check(ctx, &c.backend)
	})
	return err
}

// Ask calls ask, which calls the Backend and checks its reply, and returns when ask has returned.
// Options.Bounds.Timeout ends the ctx of ask, and the client gets a 504 then, whether ask returns or not. ask
// returns what the reply tells of what was used, also beside an error; if the error wraps
// [llm.ErrNotSent], nothing was used. From here on the request is recorded, also if the client leaves.
// The Backend is as that of Check. Ask is called once, after Reserve.
func (c *Call) Ask(ask func(ctx context.Context, b Backend) (Used, error)) error {
	if c.err != nil || c.stage != callReserved {
		return c.keep(errAskOrder)
	}
	if err := c.checkOrder(); err != nil {
		return c.keep(err)
	}
	c.stage = callBusy
	if err := c.q.inCall(ClassBackend, func() error { return c.call(ask) }); err != nil {
		c.stage = callFailed
		return c.keep(err)
	}
	c.stage = callAsked
	return nil
}

// call calls the function of Ask, and notes what was used.
func (c *Call) call(ask func(ctx context.Context, b Backend) (Used, error)) error {
	q := c.q
	*q.description() = c.told
	if err := q.beginChunks(); err != nil {
		return err
	}
	defer q.endChunks() // also if ask panics
	if c.stream != nil {
		q.chunks.open()
	}
	c.backend.asking.Store(true)
	defer c.backend.asking.Store(false)
	used, err := ask(q.backendCtx, &c.backend)
	if c.stream != nil {
		if incomplete := c.stream.complete(); err == nil && incomplete != nil {
			err, used.Units = incomplete, nil
		}
	}
	if q.backend.notSent = errors.Is(err, llm.ErrNotSent); q.backend.notSent {
		used = Used{}
	}
	q.usage.set(used.Usage)
	if used.Units != nil {
		q.backend.units = notNegative(used.Units)
	}
	q.backend.model = used.Model
	if err != nil {
		return q.client.CauseOr(err)
	}
	if err := q.client.Cause(); err != nil {
		return err
	}
	if most := q.h.opts.Bounds.MaxReply; int64(used.Size) > most {
		return invalid.ReplyTooLarge(most)
	}
	if asked := q.ledger.expected.units; asked != nil && used.Units != nil && used.Units.Images < asked.Images {
		q.log.warn(misuseFewerImages)
	}
	return nil
}

// ImageURL returns a URL of an image, for a reply whose client wants URLs: that of Options.ImageURL, or a
// data: URL if the host has not set it. It is called after Ask and before Reply, once for each image.
// Options.Bounds.Timeout applies to it.
func (c *Call) ImageURL(data []byte) (string, error) {
	q := c.q
	if c.err != nil || c.stage != callAsked {
		return "", c.keep(errImageOrder)
	}
	mediaType := images.MediaType(data)
	if q.h.opts.ImageURL == nil {
		return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data), nil
	}
	u, err := callUnrecorded(q, ClassInternal, func(ctx context.Context) (string, error) {
		return q.h.opts.ImageURL(ctx, data, mediaType)
	})
	if err != nil {
		return "", q.client.CauseOr(fmt.Errorf("llmhttp: ImageURL: %w", err))
	}
	return u, nil
}

// Reply settles the request, which Options.Usage records, and then sends what appendBody appends to b as
// the reply, with the status 200 and the given Content-Type, by default application/json. appendBody may
// call Usage. b is only valid during the call. An error of it fails the request, which is charged
// nevertheless.
func (c *Call) Reply(contentType string, appendBody func(b []byte) ([]byte, error)) error {
	q := c.q
	switch {
	case c.stage == callReplied:
		return c.keep(errReplyTwice)
	case c.stream != nil && c.err == nil:
		return c.keep(errReplyInStream)
	case c.err != nil || c.stage != callAsked && (!c.isQuery() || c.stage != callBegun):
		return c.keep(errReplyUnasked)
	}
	if err := c.checkOrder(); err != nil {
		return c.keep(err)
	}
	if c.isQuery() {
		if err := q.client.Cause(); err != nil {
			return c.keep(err)
		}
	} else {
		q.settle()
	}
	c.stage = callReplied
	err := q.replyAs(http.StatusOK, cmp.Or(contentType, contentTypeJSON), func(b []byte) ([]byte, error) { return appendBy(b, appendBody) })
	if err != nil {
		return c.keep(err)
	}
	return nil
}

// Generate is Ask and Reply, or Stream, for a reply that is an [llm.ChatStream], which generate returns, as
// for the completion of prompts: the Handler puts its chunks in valid order, bounds, splits or joins them,
// tells Observers of them, and settles the request, as for a chat; encoder encodes the reply. It is called
// once, after Reserve with the Chat of the [Estimate], instead of Ask. The Backend that generate gets is
// there until Generate returns. The Output of the [Endpoint] should be OutputText.
func (c *Call) Generate(encoder ChatEncoder, generate func(ctx context.Context, b Backend) llm.ChatStream) error {
	if c.err != nil || c.stage != callReserved || c.asked == nil || c.stream != nil {
		return c.keep(errChatOrder)
	}
	if err := c.checkOrder(); err != nil {
		return c.keep(err)
	}
	q, req := c.q, generation{c.asked.Chat, c}
	c.generate, c.stage = generate, callBusy
	c.backend.asking.Store(true)
	defer c.backend.asking.Store(false)
	err := q.beginReply(req, encoder)
	if err == nil {
		err = q.inCall(ClassBackend, func() error { return q.replyChat(req) })
	}
	if err != nil {
		c.stage = callFailed
		return c.keep(err)
	}
	c.stage = callReplied
	return nil
}

// checkOrder returns an error if the Backend or Append was used where a Call does not see it.
func (c *Call) checkOrder() error {
	if c.backend.outside.Load() {
		return errBackendOrder
	}
	if c.stream != nil {
		return c.stream.checkOrder()
	}
	return nil
}

// A callBackend is the Backend that the functions of Check and Ask get. It is there as long as they run.
type callBackend struct {
	next    Backend     // of the Handler
	asking  atomic.Bool // they run, and may use the Backend on other goroutines
	outside atomic.Bool // it was used when they did not
}

// Chat implements [Backend].
func (b *callBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	next := b.Unwrap(ctx)
	if next == nil {
		return llm.Fail(errBackendOrder)
	}
	return next.Chat(ctx, req)
}

// Unwrap returns the Backend of the Handler, or nil outside of Check and Ask.
func (b *callBackend) Unwrap(context.Context) Backend {
	if !b.asking.Load() {
		b.outside.Store(true)
		return nil
	}
	return b.next
}

// Usage returns what the request has used, as it is recorded and limited, for the function of Reply.
// Before that it is zero, and always if the operation calls no model.
func (c *Call) Usage() llm.Usage { return c.q.ledger.usage }

// An Endpoint is an operation of a host, or of a package of its own, that a Handler serves beside
// those of this package, with the same keys, limits, records and Observers. See "Endpoints of hosts" in
// the package documentation.
type Endpoint struct {
	// Operation is its name for prices, records and Observers, such as "classify". Empty means that
	// it calls no model: then its function calls Check, or no Backend at all, and Reply, and there is no
	// record.
	Operation Operation

	// Scope is what a key needs, such as "classify". It must not be empty, and may be one of [Scopes].
	// For the syntax of it and of Operation see [Scope.Validate].
	Scope Scope

	// Supported reports whether a Backend has the method that the function calls, as [As] finds it. If
	// not, the client gets a 404. Nil means that every Backend has it. It is called concurrently, for
	// each request, and for texts of errors.
	Supported func(ctx context.Context, b Backend) bool

	// Output says how tokens are counted that the Backend does not report.
	Output Output
}

// NewRoute returns a Route, for Options.Routes or the Routes of a [Protocol], whose requests serve serves:
// see [Call]. pattern is that of a [Route]. It panics if a name of e is malformed, if its Operation is one
// of this package, or if serve is nil. serve is called concurrently. See "Endpoints of hosts" in the
// package documentation.
func NewRoute(pattern string, e *Endpoint, serve func(*Call) error) Route {
	if e == nil || serve == nil {
		panic("llmhttp: NewRoute needs an Endpoint and a function: " + pattern)
	}
	err := e.Scope.Validate()
	if e.Operation != "" {
		err = cmp.Or(err, e.Operation.Validate())
	}
	if err != nil {
		panic(err.Error() + ": " + pattern)
	}
	if slices.ContainsFunc(operations(), func(op *operation) bool { return op.name != "" && op.name == e.Operation }) {
		panic(fmt.Sprintf("llmhttp: the Operation of an Endpoint is one of this package: %q", e.Operation))
	}
	op := &operation{name: e.Operation, scope: e.Scope, supportedBy: e.Supported, output: e.Output}
	bind := op.bindCall(serve)
	bind.pkg = callerPackage()
	return Route{Pattern: pattern, Bind: bind}
}

// callerPackage returns the path of the package that has called the function that calls it.
func callerPackage() string {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])                       // without runtime.Callers, this function and the one that calls it
	frame, _ := runtime.CallersFrames(pcs[:]).Next() // which knows inlined functions, as FuncForPC does not
	return packageOf(frame.Function)
}

// packageOf returns the path of the package of a function: of a/b%2ec.(*T).Method, which is how the
// runtime escapes a dot in the last element, a/b.c.
func packageOf(function string) string {
	last := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[last:], ".")
	path := function[:last] + name
	if unescaped, err := url.PathUnescape(path); err == nil {
		return unescaped
	}
	return path
}
