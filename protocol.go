package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"
)

// A Protocol is a wire format for chat. A [Handler] always serves chat
// completions, the format of OpenAI's API, and in addition the formats in
// Options.Protocols, all from the same [Backend].
//
// The Handler does what all formats have in common: keys, limits, usage,
// timeouts, keep-alives, ordering of chunks, Shutdown and observers. A Protocol
// only translates. It must be safe for concurrent use, and llmhttptest.TestProtocol
// checks it.
type Protocol interface {
	// Name returns the name of the protocol for logs and summaries, such as
	// "messages".
	Name() string

	// Routes returns what the protocol serves. NewHandler calls it once.
	Routes() []Route

	// Secret returns the API key that r presents, or "" if it presents none.
	// The Handler checks that the key is well-formed.
	Secret(r *http.Request) string

	// SetHeaders sets the headers that every reply of the protocol has, errors
	// included. Content-Type, Content-Length, Retry-After and the headers that
	// keep proxies from buffering are the Handler's.
	SetHeaders(h http.Header, info ReplyInfo)

	// AppendError appends the body of an error reply to b and returns it with
	// the HTTP status of the reply, which may differ from e.Status. All fields
	// of e but Param, Code and Err are set. It is also called for a 404 or a 405 of
	// a path that no route serves, if it is below the path of a route of the Protocol.
	AppendError(b []byte, e *Error, requestID string) (body []byte, status int)
}

// A Route is a method and a path that a [Protocol] serves. Exactly one of Chat and
// Serve is set.
type Route struct {
	// Pattern is a method and a path such as "GET /v1/responses/{id}". A
	// wildcard matches one segment, or if it ends in "..." the rest of the
	// path; its value is in r.PathValue. A pattern for GET also matches HEAD.
	// A path without wildcards is preferred to one with wildcards. Options.Prefix is no
	// part of it, but of r.Pattern. Two patterns with wildcards must not match the same path, unless one of the routes has a Match.
	Pattern string

	// Match reports whether the route serves r. It is for paths that several
	// protocols serve: a route with a Match that reports true is preferred, and
	// one whose Match reports false does not exist for r. Nil matches every
	// request. The URL of r is without Options.Prefix, as it is for Chat, Serve and
	// Protocol.Secret.
	Match func(r *http.Request) bool

	// Endpoint is the scope that a Key needs.
	Endpoint Endpoint

	// Chat decodes a chat request, checks it by [ChatRequest.Validate], and returns the
	// encoder of its reply. The body is only valid during the call. Errors that the client
	// is to see are of type *Error; those of Validate have the names of chat completions,
	// which [Error.WithParam] changes. [KeyFrom] of ctx is the key of the request. Chat
	// and Serve refuse members that [AllowsUnknownMember] refuses.
	Chat func(ctx context.Context, r *http.Request, body []byte) (*ChatRequest, ChatEncoder, error)

	// StartsEarly is for formats whose streams begin with an event that clients
	// wait for. When the Backend has been silent for a second, or for
	// Options.KeepAlive if that is shorter, the Handler calls AppendStart before
	// the first chunk and sends the result. Errors that come later are events and
	// not HTTP statuses.
	StartsEarly bool

	// FailsCleanly is for formats in which a failed stream has an end of its own, from
	// which clients learn the error. The Handler then ends the stream after AppendFailure
	// like a complete one, and the connection remains usable. If false, the Handler cuts
	// the connection after AppendFailure, so that no client takes the reply for complete.
	//
	// net/http sends the end of a stream when the Backend has returned. If a Backend
	// still runs after its request was interrupted, clients have the error by then, but
	// not the end.
	FailsCleanly bool

	// Serve answers a request other than chat, such as a token count, with a
	// value that package encoding/json encodes. It counts as a request against
	// the limits of the key, and is not recorded as usage. The body is only valid
	// during the call, and is empty for GET, HEAD and DELETE.
	Serve func(ctx context.Context, r *http.Request, body []byte) (any, error)

	// CountsTokens tells that Serve counts tokens. Its requests take from
	// [BucketTokenCounts] and not from BucketRequests, except for those for which
	// Serve calls [ReserveChat], which take from both.
	CountsTokens bool
}

// A ChatEncoder encodes the reply to one chat request. The Handler never calls
// its methods concurrently.
//
// A streamed reply is AppendStart, any number of AppendChunk, and AppendEnd or
// AppendFailure; each appends complete server-sent events to b, or nothing.
// Without Route.StartsEarly, AppendFailure may come without AppendStart, after a
// comment that keeps the connection alive. A whole reply is one call of
// AppendWhole.
//
// Chunks arrive in valid order. Each has exactly one choice and is one of:
//   - the opening of the choice: Delta.Role is set and nothing else. Choice 0
//     opens first.
//   - a delta: text is valid UTF-8 and at most 8 KiB long; tool calls have
//     contiguous indices from 0, and the first delta of a call has its ID, Type
//     and, for a function, its Name.
//   - the end of the choice: FinishReason is set and Delta is empty. No chunk
//     of the choice follows.
//
// Every choice that the client asked for and the Backend yielded has opened and
// ended before AppendEnd, and there is at least one.
type ChatEncoder interface {
	AppendStart(b []byte, start *ReplyStart) []byte
	AppendChunk(b []byte, c *ChatChunk) ([]byte, error)

	// AppendEnd ends a stream that is complete. The usage is final. extra has
	// members that the Backend yielded beside the usage, or nil.
	AppendEnd(b []byte, u *Usage, extra Extra) ([]byte, error)

	// AppendFailure ends a stream that failed. See Route.FailsCleanly.
	AppendFailure(b []byte, e *Error) []byte

	// AppendWhole appends the body of a whole reply. r.Usage is set. It may
	// change r.
	AppendWhole(b []byte, r *ChatResponse) ([]byte, error)
}

// A ChunkCollector is a [ChatEncoder] that builds whole replies from chunks,
// because its format keeps the order of texts and tool calls, which a
// [ChatResponse] does not have. For a whole reply the Handler calls CollectStart,
// CollectChunk for each chunk in valid order, and AppendWhole with a response
// without Choices.
type ChunkCollector interface {
	ChatEncoder
	CollectStart(start *ReplyStart)
	CollectChunk(c *ChatChunk) error
}

// A ReplySaver is a [ChatEncoder] that stores replies before their end is sent.
type ReplySaver interface {
	ChatEncoder

	// SaveReply is called when a reply is complete, before AppendEnd or
	// AppendWhole, with the usage and the extra of AppendEnd. It returns a
	// function that stores the reply, or nil if there is nothing to store. The
	// function must not use the encoder, which may be asked for a failure in the
	// meantime. Its context ends after a second: the model has replied, the usage
	// is recorded, and the client waits.
	SaveReply(u *Usage, extra Extra) func(ctx context.Context) error

	// SaveFailed is called if that function has returned err. The reply fails
	// with the error that SaveFailed returns. If that is nil, the reply is sent,
	// the failure is logged at Warn, and it is the SaveErr of the [RequestSummary].
	SaveFailed(err error) error
}

// A ReplyStart has the identity of a reply, as far as it is known when the reply begins.
type ReplyStart struct {
	ID           string // as the Backend set it; may be empty, and is before the first chunk
	Created      int64  // Unix time in seconds
	Model        string // as the Backend set it, or else the name in the request
	PromptTokens int    // an estimate
}

// ReplyInfo is what the headers of a reply tell about its request.
type ReplyInfo struct {
	RequestID  string
	Processing time.Duration // since the request arrived
	Requests   *LimitInfo    // nil if the key has no such limit, or it is not known
	Tokens     *LimitInfo
}

// A LimitInfo is the state of one rate limit of a key.
type LimitInfo struct {
	Limit      int           // the most that can be used at once
	Remaining  int           // at least zero
	ResetAfter time.Duration // until Remaining is Limit again
}

// ErrResponseStore is wrapped by the error of a [Protocol] whose store of responses
// failed. The class of the request's error is then [ClassResponseStore].
var ErrResponseStore = errors.New("llmhttp: the ResponseStore failed")

// ReserveChat checks the model of req and takes from the limits of the key what req is
// expected to use, as the Handler does when a [Route]'s Chat function has returned.
// A Chat function calls it before it does work of which a small request can cause
// much, such as loading a conversation. req is the request as far as it is known
// then. Its token limit is lowered to that of the key. The Handler later takes the
// rest. If ReserveChat returns an error, the Chat function must return it.
//
// From then on the request counts. If it fails before the Backend is called, neither
// the request nor the tokens that ReserveChat took are given back to the rates of
// the key. Otherwise what was taken is corrected to what is used, as always. See
// [CountLoaded] for what the work itself costs.
//
// The Serve function of a Route with CountsTokens calls ReserveChat too before such work.
// It then takes one request from [BucketRequests], because the bucket of counts permits
// many at once, and no tokens.
//
// ctx must be that of one of these functions; if it is not, nothing happens. ReserveChat
// must be called by the function that got ctx.
func ReserveChat(ctx context.Context, req *ChatRequest) error {
	q := requestFrom(ctx)
	switch {
	case q == nil:
		return nil
	case q.route.countsTokens:
		return q.reserveCount(req)
	case q.route.operation != OperationChat:
		return nil
	}
	if err := q.chat.reserve(req); err != nil {
		return err
	}
	q.accounting.costly = true
	q.accounting.commitRequest()
	q.observer.stepClass = ClassInternal
	return nil
}

// reserveCount is ReserveChat for a request that only counts tokens.
func (q *request) reserveCount(req *ChatRequest) error {
	if err := q.authorizeModel(req.Model); err != nil {
		return err
	}
	return q.accounting.takeLoad()
}

// CountLoaded tells the Handler that a Chat function has loaded that many bytes for its
// request, in addition to those of earlier calls. A request that is refused before the
// Backend is called uses them as text: at least a prompt token for each 4 bytes counts
// toward the limits of the key, and is recorded. Otherwise the usage does not depend on
// them. A Chat function calls ReserveChat before it loads, and CountLoaded at once when it has,
// also if it then returns an error. Negative numbers count nothing.
//
// ctx must be that of a Chat function; if it is not, nothing happens. CountLoaded must be
// called by the function that got ctx.
func CountLoaded(ctx context.Context, bytes int) {
	if q := requestFrom(ctx); q != nil && q.route.operation == OperationChat {
		q.accounting.loaded = min(q.accounting.loaded+max(bytes, 0), math.MaxInt32)
	}
}

// CountUnsent tells the Handler that a request loads or stores that many bytes that are not
// in its ChatRequest, such as items that chat completions cannot express. The estimate of
// its prompt, by ReserveChat, CountTokens and the Handler itself, has them as text. The number
// takes the place of that of an earlier call. A negative number is like zero.
//
// ctx must be that of a request to a Handler; if it is not, nothing happens. CountUnsent must
// be called by the function that got ctx.
func CountUnsent(ctx context.Context, bytes int) {
	if q := requestFrom(ctx); q != nil {
		q.accounting.unsent = min(max(bytes, 0), math.MaxInt32)
	}
}

// CountTokens returns the number of prompt tokens of req, for protocols with a
// token counting endpoint. ctx must be that of a request to a Handler. The
// Backend counts if it is a [TokenCounter]; if not, the result is the estimate
// that limits use, with Options.CountTokens if that is set. If the key of the
// request may not use the model, the error is [ModelNotFound].
func CountTokens(ctx context.Context, req *ChatRequest) (int, error) {
	q := requestFrom(ctx)
	if q == nil {
		return (&tokenCounter{}).prompt(req), nil
	}
	if err := q.authorizeModel(req.Model); err != nil {
		return 0, err
	}
	q.idle.expect(true)
	n, err := q.h.backend.CountTokens(ctx, req)
	if errors.Is(err, errors.ErrUnsupported) { // also of a wrapper that is a TokenCounter
		return q.accounting.countPrompt(req), nil
	}
	return max(n, 0), err
}

// ListModels returns the models that the key of a request may use, for protocols
// with a model list. ctx must be that of a request to a Handler. If the Backend
// is no [ModelLister], the error wraps [errors.ErrUnsupported].
func ListModels(ctx context.Context) ([]Model, error) {
	q := requestFrom(ctx)
	if q == nil {
		return nil, errors.New("llmhttp: the context does not belong to a request")
	}
	return allowedModels(q)
}

// SetConversation sets the Conversation of the [RequestInfo] of a request, which a
// Protocol or an [Observer] may know. ctx must be that of a request to a Handler;
// if it is not, nothing happens. SetConversation must be called before the Backend
// is called, and by the function that got ctx.
func SetConversation(ctx context.Context, id string) {
	if q := requestFrom(ctx); q != nil {
		q.info.conversation = id
	}
}

// Warn logs a mistake of the Backend in a reply that is sent nevertheless, at level Warn. It is
// for a Protocol. ctx must be that of a request to a Handler; if it is not, nothing
// happens. The message and err, which tells more about the mistake, must not quote the
// request or the reply. Warn may be called concurrently.
func Warn(ctx context.Context, message string, err error) {
	if q := requestFrom(ctx); q != nil {
		q.log.print(slog.LevelWarn, message, err)
	}
}

// BearerSecret returns the key in the Authorization header of r if its scheme
// is Bearer, or "". If there are several such headers the result is not a
// well-formed key, so that the request is refused.
func BearerSecret(r *http.Request) string {
	headers := r.Header["Authorization"]
	if len(headers) != 1 {
		return strings.Join(headers, ", ")
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(secret, " ")
}

// serveOther answers with what the Serve function of a Route returns.
func serveOther(q *request, serve func(context.Context, *http.Request, []byte) (any, error)) error {
	body := new(buffer)
	if q.r.Method == http.MethodPost {
		var err error
		if body, err = q.readBody(); err != nil {
			return err
		}
		defer putBuffer(body)
	}
	v, err := callUnrecorded(q, func(ctx context.Context) (any, error) {
		q.beginStep(ClassInternal)
		return serve(ctx, q.routed, body.b)
	})
	if err != nil {
		return err
	}
	return q.replyJSON(v)
}
