// The life of a request, in the order in which it happens. Only request knows the parts of a request:
// see docs/architecture.md.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/contentencoding"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
)

// A request serves one HTTP request. Variables of this type are named q, because r is an
// *http.Request and req a decoded body. Its methods are in the order in which they are first
// called: run calls serve, which authenticates and calls the function of the route; that reads and
// decodes the body, reserves tokens, calls the Backend, settles the usage and replies. If anything
// fails, fail replies. finish settles the usage, calls the Observer and ends the use of the
// ResponseWriter.
//
// All of it happens on the goroutine of ServeHTTP, except for yield and for what the
// functions of context.go do, which a Backend may call on others.
type request struct {
	h       *Handler
	r       *http.Request
	routed  *http.Request // r without Options.Prefix in its URL, for the functions of routes and protocols
	arrived time.Time     // with a monotonic clock, for durations
	cred    credential
	route   *boundRoute // nil until it was found
	key     *Key        // nil until it was found

	ctx         requestContext
	backendCtx  context.Context // for the Backend: that of client, or of Observation.Started, which derives from it
	client      exchange.Exchange
	format      replyFormat
	log         requestLog
	ledger      ledger
	record      *UsageRecord // the element of stored
	stored      storedRecord
	loaded      int32  // bytes: see CountLoaded
	unsent      int32  // bytes: see CountUnsent
	cleanup     func() // see Call.Cleanup; nil if there is nothing to do
	usage       usageReport
	chunks      chunkGate    // used if the reply comes in chunks
	chat        chatPipeline // used if the request is a chat
	contentType string       // of a reply that comes in chunks
	backend     backendCall
	requested   string // the model that the client asked for; any text
	notes       requestNotes
	saveErr     error      // of a ReplySaver whose reply is sent nevertheless
	leftIn      ErrorClass // of the call that a panic or runtime.Goexit has left; empty if none
	observer    requestObserver
	info        requestInfo
}

func newRequest(h *Handler, w http.ResponseWriter, r *http.Request) *request {
	q := &request{h: h, r: r, routed: r, arrived: time.Now()}
	q.cred.r = r
	q.record = q.stored.get()
	q.ledger.books, q.ledger.log = &h.books, &q.log
	q.format.arrived, q.format.log = &q.arrived, &q.log
	q.log.logger, q.log.cred, q.log.outages = h.opts.Logger, &q.cred, &h.outages
	q.format.protocol = chatCompletions{}
	q.ctx = requestContext{r.Context(), q}
	q.client.Init(&q.ctx, w, r, q.arrived, &h.exchange, &q.format)
	q.setContext(q.client.Context())
	return q
}

// setContext replaces the context of the request by ctx, which derives from it.
func (q *request) setContext(ctx context.Context) {
	q.client.SetContext(ctx)
	q.backendCtx = q.client.Context()
	q.log.setContext(q.backendCtx)
}

// protocol returns the protocol of the route, or of the nearest one; chat completions if there is
// none.
func (q *request) protocol() Protocol { return q.format.protocol }

// run calls serve, and replies with its error. The client gets a reply even if serve ends by a
// panic or by runtime.Goexit.
func (q *request) run(serve func() error) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
		if err != nil {
			q.fail(err)
		}
	}()
	err = serve()
}

func (q *request) serve() error {
	if err := q.begin(); err != nil {
		return err
	}
	return q.route.binding.serve(q)
}

// begin does what comes before the function of the route. It is not a part of serve, whose
// frame is on the stack as long as the Backend runs.
func (q *request) begin() error {
	q.identify(randomid.New("req_"))
	q.setContext(q.observer.start(q.client.Context(), q.h.opts.Observe, observedRequest{q.arrived, &q.cred, &q.log}))
	err := q.findRoute()
	q.record.Protocol = q.protocol().Name()
	if !q.h.enter(q) {
		return errShutdown
	}
	if err != nil {
		return err
	}
	if err := q.authenticate(); err != nil {
		return err
	}
	if scope := q.route.binding.scope; !q.key.AllowsScope(scope) {
		return llm.Errorf(http.StatusForbidden, "missing_scope",
			"You have insufficient permissions for this operation. Missing scope: %s.", scope)
	}
	if op := q.route.binding.op; !op.isSupported(q.client.Context(), q.h.backend) {
		return errUnknownURL(q.r)
	}
	return q.askLedger(func() error { return q.ledger.admit(q.client.Context()) })
}

// identify sets the ID and the time of the request. The ID is id unless Options.RequestID
// returns one.
func (q *request) identify(id string) {
	rec := q.record
	rec.Time = q.arrived.Round(0) // without the monotonic clock
	q.setID(id)                   // remains if RequestID panics
	if f := q.h.opts.RequestID; f != nil {
		q.setID(cmp.Or(f(q.r), id))
	}
	if f := q.h.opts.Now; f != nil {
		rec.Time = f()
	}
}

func (q *request) setID(id string) {
	rec := q.record
	rec.ID, rec.RequestID, q.log.requestID = id, id, id
}

// findRoute sets the route and the protocol of the request. If no route serves it, the error
// is in the form of the nearest protocol.
func (q *request) findRoute() (err error) {
	q.route, q.routed, err = q.h.findRoute(q.r)
	if rt := q.route; rt != nil {
		q.format.protocol = rt.protocol
		q.record.Operation = rt.binding.op.name
		q.r.Pattern, q.routed.Pattern = rt.pattern, rt.pattern // for middleware around the Handler, as ServeMux sets it
	} else if nearest := q.h.routes.Nearest(q.routed); nearest != nil {
		q.format.protocol = nearest.Value.protocol
	}
	return err
}

// withBody calls decode with the body of the request, which is empty if its method has none.
// The body is only valid during the call.
func (q *request) withBody(decode func(ctx context.Context, r *http.Request, body []byte) error) error {
	var body []byte
	switch q.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete:
	default:
		buf, err := q.readBody()
		if err != nil {
			return err
		}
		defer exchange.PutBuffer(buf)
		body = buf.B
	}
	if err := decode(q.client.Context(), q.routed, body); err != nil {
		return q.client.CauseOr(err)
	}
	return nil
}

// readBody reads the body. The caller returns the buffer with exchange.PutBuffer.
func (q *request) readBody() (*exchange.Buffer, error) {
	if err := checkMediaType(q.r); err != nil {
		return nil, err
	}
	buf, limit := exchange.GetBuffer(0), q.h.opts.Bounds.MaxBody
	var err error
	if contentencoding.IsEncoded(q.r.Header) {
		err = q.streamBody(limit, func(body io.Reader) (err error) {
			buf.B, err = bounded.ReadAll(body, buf.B, -1, limit)
			return err
		})
	} else if buf.B, err = q.client.ReadBody(buf.B, limit); err != nil {
		err = bodyError(err, limit)
	}
	if err != nil {
		exchange.PutBuffer(buf)
		return nil, err
	}
	return buf, nil
}

// streamBody calls read with the body, of which at most limit bytes are read, and at most limit of its content.
func (q *request) streamBody(limit int64, read func(body io.Reader) error) error {
	if q.r.ContentLength > limit {
		return invalid.BodyTooLarge(limit)
	}
	body := q.client.Body()
	err := body.End(contentencoding.Read(q.r.Header, body, limit, q.h.opts.Accept.Decode, read))
	if encoding, ok := err.(*contentencoding.Error); ok {
		return errEncoding(encoding)
	}
	switch _, unread := err.(*exchange.BodyError); {
	case err == nil:
		return nil
	case unread:
		return bodyError(err, limit)
	case errors.Is(err, bounded.ErrTooLarge):
		return invalid.BodyTooLarge(limit)
	}
	return q.client.CauseOr(err)
}

// cleanUp calls the functions of Call.Cleanup.
func (q *request) cleanUp() {
	if q.cleanup != nil {
		q.cleanup()
	}
}

// bodyError returns the error of a request whose body was not read because of err.
func bodyError(err error, limit int64) error {
	failed, ok := err.(*exchange.BodyError)
	if !ok {
		return err // why the request has ended
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return invalid.BodyTooLarge(large.Limit)
	}
	switch {
	case failed.Err == bounded.ErrTooLarge:
		return invalid.BodyTooLarge(limit)
	case failed.TimedOut:
		e := llm.Errorf(http.StatusRequestTimeout, "request_timeout", "The body of your request did not arrive in time.")
		e.Err = failed.Err
		return e
	}
	e := llm.Errorf(http.StatusBadRequest, "", "We could not read the body of your request.")
	e.Err = failed.Err
	return e
}

// errEncoding returns the error of a body whose Content-Encoding is unknown or wrong.
func errEncoding(err *contentencoding.Error) (e *llm.Error) {
	if err.Unknown {
		e = llm.Errorf(http.StatusUnsupportedMediaType, "unsupported_content_encoding", "Unsupported content encoding: '%s'.", param.Echo(err.Encoding))
	} else {
		e = llm.Errorf(http.StatusBadRequest, "invalid_content_encoding", "The body of your request is not valid %s.", param.Echo(err.Encoding))
	}
	e.Err = err
	return e
}

func checkMediaType(r *http.Request) error {
	t := r.Header.Get("Content-Type")
	if t == "" || t == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
		return llm.Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Unsupported content type: '%s'. This API only accepts 'application/json'.", param.Echo(t))
	}
	return nil
}

// maxModelID is the maximum length of a model ID in bytes.
const maxModelID = 512

// authorizeModel sets the model of the request. It returns the same error for a model that
// does not exist, one that the key may not use, and an ID that must not be recorded: one
// that contains the API key, or control characters, which some stores do not take.
func (q *request) authorizeModel(id string) error {
	if !q.info.named {
		q.requested = id
	}
	if !q.allowsModel(id) {
		return llm.ModelNotFound(q.requested)
	}
	q.record.Model = id
	return nil
}

// allowsModel reports whether authorizeModel accepts a model.
func (q *request) allowsModel(id string) bool {
	return len(id) <= maxModelID && !strings.ContainsFunc(id, unicode.IsControl) && q.key.AllowsModel(id) && !q.cred.isIn(id)
}

// admitUser finds out who the end user of the request is, whom the client has named, and takes
// what the limits of each end user require. Calls after the first do nothing.
func (q *request) admitUser(named string) (err error) {
	if q.ledger.userKnown {
		return nil
	}
	q.ledger.userKnown = true
	if f := q.h.opts.User; f != nil {
		if named, err = f(q.r.WithContext(q.client.Context()), named); err != nil {
			return q.client.CauseOr(err)
		}
	}
	if q.cred.isIn(named) {
		named = q.cred.redactor().text(named)
	}
	q.record.User = recordedUser(named)
	limits := &q.key.PerUser
	if *limits == (Limits{}) {
		return nil
	}
	if q.record.User == "" && limits.Quota.isSet() {
		return invalid.Param(
			"missing_required_parameter",
			"user",
			"Missing required parameter: 'user'. Your API key has a quota for each end user.",
		)
	}
	return q.askLedger(func() error { return q.ledger.admitUser(q.client.Context(), q.record.User) })
}

// inCall calls a part of the host, or what uses it. Errors of it that have no class get the
// given one, and so does the error of the request if a panic or runtime.Goexit leaves the call.
func (q *request) inCall(class ErrorClass, call func() error) error {
	returned := false
	defer func() {
		if !returned {
			q.leftIn = cmp.Or(q.leftIn, class)
		}
	}()
	err := call()
	returned = true
	return classify(class, err)
}

// storeError returns the error of a request that needs a store, such as a KeyStore or a
// Limiter, that failed with err: the *Error in err, or else a 503 with message. Its class is
// that of failures of the store.
func storeError(class ErrorClass, err error, message string) error {
	if e, ok := errors.AsType[*llm.Error](err); !ok || e == nil {
		err = &llm.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: message, Err: err}
	}
	return classify(class, err)
}

// reserveEstimate checks the model, finds the end user, and reserves what e says.
func (q *request) reserveEstimate(e *Estimate) error {
	if err := q.authorizeModel(e.Model); err != nil {
		return err
	}
	if err := q.admitUser(e.User); err != nil {
		return err
	}
	q.record.ImageSize, q.record.ImageQuality = recordedName(e.ImageSize), recordedName(e.ImageQuality)
	prompt := 0
	if e.Tokens != nil {
		prompt = max(e.Tokens(), 0)
	}
	n := max(prompt, 1)
	return q.reserve(estimate{prompt: prompt, tokens: n, minTokens: n, units: e.Units})
}

// reserve takes what the request is expected to use from the limits of its key.
func (q *request) reserve(e estimate) error {
	return q.askLedger(func() error { return q.ledger.reserve(q.client.Context(), q.record, e) })
}

// askLedger calls a function of the ledger, and makes what it has learned of the limits known.
// That a store fails may be a consequence of the end of the request.
func (q *request) askLedger(call func() error) error {
	return q.inCall(ClassLimiter, func() error {
		defer q.tellLimits()
		err := call()
		if classOf(err) != "" {
			return q.client.CauseOr(err)
		}
		return err
	})
}

// tellLimits makes every reply tell the last known states of the limits.
func (q *request) tellLimits() { q.format.setLimits(q.ledger.limits()) }

// contentTypeJSON is the Content-Type of replies that are not streams, and of error replies.
const contentTypeJSON = "application/json"

// replyAs writes what encode appends as the whole reply, with the given status and
// Content-Type.
func (q *request) replyAs(status int, contentType string, encode func(b []byte) ([]byte, error)) error {
	buf := exchange.GetBuffer(1 << 10)
	defer exchange.PutBuffer(buf)
	b, err := encode(buf.B)
	if err != nil {
		return err
	}
	buf.B = b
	return q.client.Reply(status, contentType, buf, q.ledger.slots.releaser())
}

// fail ends a request that failed with err, after the Backend has returned: by an error reply,
// or by the end of the stream if it has begun. If the request has ended already, only the
// limits are updated.
func (q *request) fail(err error) {
	end := q.client.Fail
	if err == errGoexit {
		end = q.client.FailExiting
	}
	if isNilError(err) {
		err = classify(classOf(err), errNilError) // an Observer that finds the Error may use it
	}
	err = classify(q.leftIn, err)
	if q.info.named {
		err = modelname.RenameError(err, q.record.Model, param.Echo(q.requested))
	}
	runAll(
		q.client.StopTimeout, // which is the Backend's and not that of the Limiter
		func() {
			if !q.client.IsStreaming() { // an error reply is short, but the end of a stream may repeat the reply
				q.ledger.slots.release()
			}
		},
		func() { q.ledger.refund(q.backendCtx) },
		q.readLimits,
		q.tellLimits,
		func() { end(err, q.ledger.slots.releaser()) },
		q.ledger.slots.release,
	)
}

// readLimits finds out the states of the limits for the headers of a reply, unless nobody reads
// them.
func (q *request) readLimits() {
	if q.client.Cause() != exchange.ErrClientLeft {
		q.ledger.readLevels(q.client.Context())
	}
}

// finish ends the request, whether it succeeded or not.
func (q *request) finish() {
	aborted := false
	runAll(
		q.settle,
		q.ledger.slots.release,
		q.cleanUp,
		q.client.EndContext,
		q.notifyEnded,
		func() { aborted = q.client.Close() },
		func() { q.h.leave(q) },
		func() {
			if aborted {
				panic(http.ErrAbortHandler)
			}
		},
	)
}

// settle corrects what the request has reserved to what it has used, and records that. A
// request that succeeds is settled before its reply ends.
func (q *request) settle() {
	if q.ledger.settled { // as that of a request that succeeded is when it ends
		q.ledger.releaseQuota()
		return
	}
	var o outcome
	q.setOutcome(&o)
	q.client.StopTimeout()
	q.ledger.settle(q.backendCtx, &q.stored, &o)
}

// setOutcome sets o to what has happened so far.
func (q *request) setOutcome(o *outcome) {
	result, order := q.client.Result(), &q.chat.order
	target, labels := q.notes.get()
	var calls *callSum
	if tree := q.notes.getCalls(); tree != nil {
		calls = tree.close(target)
	}
	*o = outcome{
		loaded: int(q.loaded), errStatus: q.cred.errorStatus(result.Err),
		target: target, labels: labels, servedModel: cmp.Or(q.backend.model, order.Start.Model), serviceTier: order.ServiceTier,
		err: unclassified(result.Err), class: q.cred.errorClass(result), clientLeft: result.ClientLeft,
		called: !q.backend.began.IsZero(), notSent: q.backend.notSent, units: q.backend.units, estimated: q.backend.estimated,
		reported: q.usage.get(), unknown: q.notes.isUsageUnknown(), calls: calls,
		chunks: q.chunks.stats, output: &order.Output,
	}
}

// notifyEnded tells the Observer that the request has ended.
func (q *request) notifyEnded() {
	if !q.observer.wantsEnd() {
		return
	}
	var o outcome
	q.setOutcome(&o)
	result := q.client.Result()
	e := endedRequest{
		outcome: &o, record: q.record, info: q.info.load(),
		requested: q.requested, refused: q.ledger.refused, status: result.Status,
		admitted: q.backend.began, firstWrite: result.FirstWrite, streamed: q.backend.streamed,
		quotas: q.ledger.quotaUses(q.record), priceErr: q.ledger.priceErr, recordErr: q.ledger.recordErr, saveErr: q.saveErr,
		reply: ReplySummary{ID: q.chat.order.Start.ID, Model: o.servedModel, FinishReasons: q.chat.finishReasons()},
	}
	if q.route != nil {
		e.route = q.route.pattern
		if q.key != nil {
			e.scope = q.route.binding.scope
		}
	}
	q.observer.notifyEnded(&e)
}

// runAll calls each step, even if a step before it panics or calls runtime.Goexit.
func runAll(steps ...func()) {
	if len(steps) > 0 {
		defer runAll(steps[1:]...)
		steps[0]()
	}
}
