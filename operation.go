package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"

	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// An operation describes something that a Handler can do for clients, such as a chat, in any
// wire format. Each has one descriptor, in its own file, and is in operations.
type operation struct {
	name             Operation                                 // for telemetry; empty if no model is called
	scope            Scope                                     // empty for queries, whose Binding has it
	supportedBy      func(ctx context.Context, b Backend) bool // nil if every Backend supports it
	drawsTokenCounts bool                                      // requests take from BucketTokenCounts
	output           outputKind
}

// An outputKind says how the tokens of the output are counted if the Backend does not tell.
type outputKind uint8

const (
	outputText   outputKind = iota // they are estimated
	outputNone                     // there are none
	outputImages                   // they are of images, whose number is what most Backends tell
	outputAudio                    // they are of audio, whose length is measured
)

// hasMedia reports whether the output is something else than text.
func (op *operation) hasMedia() bool { return op.output == outputImages || op.output == outputAudio }

func (op *operation) isSupported(ctx context.Context, b Backend) bool {
	return op.supportedBy == nil || op.supportedBy(ctx, b)
}

// has is the supportedBy of operations that need the interface A.
func has[A any](ctx context.Context, b Backend) bool {
	_, ok := As[A](ctx, b)
	return ok
}

// callAbility calls a method of the interface A, such as Embedder.Embed, of b. If b has none, the
// error wraps errors.ErrUnsupported.
func callAbility[A, Req, Resp any](ctx context.Context, b Backend, method func(A, context.Context, Req) (Resp, error), req Req) (resp Resp, err error) {
	a, ok := As[A](ctx, b)
	if !ok {
		return resp, errMissing[A]()
	}
	return method(a, ctx, req)
}

// streamAbility is callAbility for methods that return a stream. If b has none, the stream fails.
func streamAbility[A, Req, Chunk any](ctx context.Context, b Backend, method func(A, context.Context, Req) iter.Seq2[*Chunk, error], req Req) iter.Seq2[*Chunk, error] {
	a, ok := As[A](ctx, b)
	if !ok {
		return func(yield func(*Chunk, error) bool) { yield(nil, errMissing[A]()) }
	}
	return method(a, ctx, req)
}

// errMissing returns the error of a call of the interface A, which a Backend does not have.
func errMissing[A any]() error {
	return fmt.Errorf("llmhttp: the Backend is no %v: %w", reflect.TypeFor[A](), errors.ErrUnsupported)
}

// queryOperation is the operation of [BindQuery].
var queryOperation operation

// operations returns the descriptors of all operations with a scope of their own.
func operations() []*operation {
	return []*operation{
		&chatOperation, &completionsOperation, &countOperation, &imagesOperation.operation, &imageEditsOperation.operation, &embeddingsOperation.operation,
		&speechOperation.operation, &transcriptionsOperation.operation, &rerankOperation.operation, &moderationsOperation.operation,
		&modelsOperation, &usageOperation,
	}
}

// Scopes returns all scopes, for programs that check the scopes of keys.
func Scopes() []Scope {
	var scopes []Scope
	for _, op := range operations() {
		if !slices.Contains(scopes, op.scope) {
			scopes = append(scopes, op.scope)
		}
	}
	return scopes
}

// Operations returns all operations that call a model, for programs that treat each of them
// in a way of its own, such as exporters of metrics.
func Operations() []Operation {
	var names []Operation
	for _, op := range operations() {
		if op.name != "" {
			names = append(names, op.name)
		}
	}
	return names
}

// SupportedBy reports whether [As] finds the method in b that op needs. Every Backend supports
// [OperationChat]. ctx is that of the request, if there is one: see [Swap].
func (op Operation) SupportedBy(ctx context.Context, b Backend) bool {
	return slices.ContainsFunc(operations(), func(o *operation) bool { return o.name == op && op != "" && o.isSupported(ctx, b) })
}

// A modelCall is what an operation that calls a model does with its request, before the Backend
// is called. Req is a struct.
type modelCall[Req any] struct {
	operation

	model     func(req *Req) string
	user      func(req *Req) string // whom the client names as the end user
	describer func(req *Req) describer
	prompt    func(c tokens.Estimator, req *Req) (tokens int)
	units     func(req *Req) *Units               // what the client asks for besides tokens: see estimate; nil if nothing
	setRecord func(req *Req, record *UsageRecord) // sets what the record has of the request, besides its model; nil if nothing
}

// reserve checks the model, and reserves the tokens of the prompt, and what else the client asks for.
func (op *modelCall[Req]) reserve(q *request, req *Req) error {
	if err := q.authorizeModel(op.model(req)); err != nil {
		return err
	}
	if err := q.admitUser(op.user(req)); err != nil {
		return err
	}
	prompt := op.prompt(q.tokenEstimator(), req)
	e := estimate{prompt: prompt, tokens: max(prompt, 1), minTokens: max(prompt, 1)}
	if op.units != nil {
		e.units = op.units(req)
	}
	if op.setRecord != nil {
		op.setRecord(req, q.record)
	}
	return q.reserve(e)
}

// A oneShot is an operation that calls a model, which replies at once. Req and Resp are
// structs. The functions that get asked get a copy of the request as it was before the call,
// because the Backend may change the request.
type oneShot[Req, Resp any] struct {
	modelCall[Req]

	// prepare is called when the request is admitted and before call. Nil does nothing.
	prepare func(ctx context.Context, b Backend, req *Req) error
	call    func(ctx context.Context, b Backend, req *Req) (*Resp, error)

	facts        func(resp *Resp) replyFacts                    // what was used, and who served
	check        func(asked *Req, resp *Resp) error             // finds mistakes of the Backend; resp may be nil
	size         func(resp *Resp) int                           // in bytes, about
	convertReply func(q *request, asked *Req, resp *Resp) error // changes a copy of the reply, before the request is settled; may be nil

	// completeReply sets what is known when the request was settled.
	completeReply func(resp *Resp, record *UsageRecord, usage *llm.Usage)
}

// replyFacts are what the reply to a oneShot tells about itself.
type replyFacts struct {
	usage *llm.Usage // nil if it is not known
	units *Units     // besides tokens; nil if there is nothing else
	model string     // as the Backend set it
}

// bindOneShot returns a Binding to op.
func bindOneShot[Req, Resp any](op *oneShot[Req, Resp], decode func(ctx context.Context, r *http.Request, body []byte) (
	*Req, func(b []byte, reply *Resp) ([]byte, error), error)) Binding {
	return op.bind(func(q *request) error {
		req, encode, err := decodeBody(q, decode)
		if err != nil {
			return err
		}
		return op.serve(q, req, encode)
	})
}

// decodeBody decodes the request of q. The error is not nil if decode, which belongs to a Protocol,
// returns a nil value without an error.
func decodeBody[Req, Reply any](q *request, decode func(ctx context.Context, r *http.Request, body []byte) (
	*Req, func(b []byte, reply Reply) ([]byte, error), error)) (req *Req, encode func(b []byte, reply Reply) ([]byte, error), err error) {
	err = q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
		if req, encode, err = decode(ctx, r, body); err == nil && (req == nil || encode == nil) {
			err = errNothingDecoded
		}
		return err
	})
	return req, encode, err
}

// serve reserves what the request needs, calls the Backend, settles and replies.
func (op *oneShot[Req, Resp]) serve(q *request, req *Req, encode func(b []byte, reply *Resp) ([]byte, error)) error {
	if err := op.reserve(q, req); err != nil {
		return err
	}
	return q.inCall(ClassBackend, func() error { return op.serveAdmitted(q, req, encode) })
}

// serveAdmitted serves a request for which reserve was called.
func (op *oneShot[Req, Resp]) serveAdmitted(q *request, req *Req, encode func(b []byte, reply *Resp) ([]byte, error)) error {
	if op.prepare != nil {
		prepare := func(ctx context.Context) (struct{}, error) { return struct{}{}, op.prepare(ctx, q.h.backend, req) }
		if _, err := callUnrecorded(q, ClassBackend, prepare); err != nil {
			return err
		}
	}
	asked := *req
	resp, err := op.callBackend(q, req)
	if err != nil {
		return err
	}
	if err := op.check(&asked, resp); err != nil {
		return err
	}
	if most := q.h.opts.MaxReply; int64(op.size(resp)) > most {
		return errReplyTooLarge(most)
	}
	reply := *resp // which belongs to the Backend
	if op.convertReply != nil {
		if err := op.convertReply(q, &asked, &reply); err != nil {
			return q.client.CauseOr(err)
		}
	}
	q.settle()
	op.completeReply(&reply, q.record, &q.ledger.usage)
	return q.reply(func(b []byte) ([]byte, error) { return encode(b, &reply) })
}

func (op *oneShot[Req, Resp]) callBackend(q *request, req *Req) (*Resp, error) {
	return callRecorded(q, op.describer(req),
		func(ctx context.Context) (*Resp, error) { return op.call(ctx, q.h.backend, req) },
		func(resp *Resp) {
			r := op.facts(resp)
			q.usage.set(r.usage)
			q.backend.units, q.backend.model = r.units, r.model
		})
}

// serveLookup serves an operation that calls no model: there is no record of it. encode
// appends the reply to what call returns.
func serveLookup[T any](q *request, call func(ctx context.Context) (T, error), encode func(b []byte, v T) ([]byte, error)) error {
	return q.inCall(ClassBackend, func() error {
		v, err := callUnrecorded(q, ClassBackend, call)
		if err != nil {
			return err
		}
		if err := q.client.Cause(); err != nil {
			return err
		}
		return q.reply(func(b []byte) ([]byte, error) { return encode(b, v) })
	})
}
