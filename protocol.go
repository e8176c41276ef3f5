// Protocol and its helpers: what a wire format is. To add one, implement Protocol in a package of its own, as
// example_protocol_test.go does in 80 lines; chatCompletions in completions.go is another one, and
// binding.go says how paths are bound to operations. Limits, usage, timeouts, keep-alives, ordering of
// chunks and Shutdown are the Handler's. llmhttptest.TestProtocol checks it: see
// example_protocol_kit_test.go, and llmhttptest/protocol_framing_test.go for streams that are not
// server-sent events.

package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// A Protocol is a wire format for chat. A [Handler] always serves chat
// completions, the format of OpenAI's API, and in addition the formats in
// Options.Protocols, all from the same [Backend].
//
// The Handler does what all formats have in common: keys, limits, usage,
// timeouts, keep-alives, ordering of chunks, Shutdown and observers. A Protocol
// only translates. It must be safe for concurrent use, and llmhttptest.TestProtocol
// checks it. The section "Protocols" of the package documentation is for its authors.
type Protocol interface {
	// Name returns the name of the protocol for logs, summaries and records, such as
	// "messages". It must not be empty.
	Name() string

	// Routes returns what the protocol serves. NewHandler calls it once.
	Routes() []Route

	// Secret returns the API key that r presents, or "" if it presents none. The Handler checks
	// that the key is well-formed.
	Secret(r *http.Request) string

	// SetHeaders sets the headers that every reply of the protocol has, errors
	// included. Content-Type, Content-Length, Retry-After and the headers that
	// keep proxies from buffering are the Handler's.
	SetHeaders(h http.Header, info ReplyInfo)

	// AppendError appends the body of an error reply to b and returns it with the HTTP status of
	// the reply, which may differ from e.Status. All fields of e but Param, Code and Err are set.
	// It is also called for a 404 or a 405 of a path that no route serves, if it is below the path
	// of a route of the Protocol, or below that of none and the Match of such a route reports true.
	AppendError(b []byte, e *llm.Error, requestID string) (body []byte, status int)
}

// A Route is a method and a path that a [Protocol] serves, or one of Options.Routes, which [NewRoute] or the
// package of an endpoint makes.
type Route struct {
	// Pattern is a method in capital letters and a path such as "GET /v1/responses/{id}".
	// A wildcard is a whole segment, and matches one segment that is not empty; the last
	// one may end in "...", as "{id...}", and then matches the rest of the path. Its value
	// is in r.PathValue under its name, which has letters, digits and underscores. The other
	// segments must need no escaping. A pattern for GET also matches HEAD. A path without
	// wildcards is preferred to one with wildcards. Options.Prefix is no part of it, but of
	// r.Pattern. Two patterns with wildcards, or two without, must not match the same
	// requests, unless one of the routes has a Match.
	Pattern string

	// Match reports whether the route serves r. It is for paths that several
	// protocols serve: a route with a Match that reports true is preferred, and
	// one whose Match reports false does not exist for r. Nil matches every
	// request. The URL of r is without Options.Prefix, as it is for the functions of Bind
	// and Protocol.Secret.
	Match func(r *http.Request) bool

	// Protocol finds the keys of requests, and has the form of their errors and headers. Its own
	// Routes are not served because of that. Nil means the Protocol that has returned the Route, and
	// for Options.Routes [ChatCompletions].
	Protocol Protocol

	// Bind tells what the route does. It must be set.
	Bind Binding
}

// A ChatEncoder encodes the reply to one chat request. The Handler never calls
// its methods concurrently. See "Protocols" in the package documentation.
//
// A reply is AppendStart, any number of AppendChunk, and AppendEnd. What they append to b is,
// one after the other, the reply: a stream is sent as they append it, and a whole reply when
// it is complete. A format whose whole reply is not the sum of its chunks appends nothing
// before AppendEnd; a [join.Accumulator] joins chunks. A stream that fails ends by AppendFailure
// instead of AppendEnd, and a whole reply that fails is replaced by Protocol.AppendError.
// AppendFailure may come without AppendStart, after Framing.KeepAlive, unless the Framing
// has StartsEarly.
//
// Chunks arrive in valid order. Each has exactly one choice and is one of:
//   - the opening of the choice: Delta.Role is set and nothing else. Choice 0
//     opens first.
//   - a delta: text is valid UTF-8, and in a stream at most 8 KiB long; tool calls have
//     contiguous indices from 0, and the first delta of a call has its ID, Type
//     and, for a function, its Name.
//   - the end of the choice: FinishReason is set and Delta is empty. No chunk
//     of the choice follows.
//
// Every choice that the client asked for and the Backend yielded has opened and
// ended before AppendEnd, and there is at least one. The reply to a request that decode
// has returned as nil has no choices: it is AppendStart and AppendEnd, with a Usage of zero.
type ChatEncoder interface {
	// Framing returns how the reply is sent. It is called once, before the other methods
	// and before the Backend is called.
	Framing() Framing

	// AppendStart begins the reply. start is only valid during the call.
	AppendStart(b []byte, start *ReplyStart) []byte

	// AppendChunk adds a chunk, which is only valid during the call. An error fails the
	// request, and the Backend must stop.
	AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error)

	// AppendEnd ends a reply that is complete. The usage is final. extra has
	// members that the Backend yielded beside the usage, or nil.
	AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *llm.Error) []byte
}

// Framing is how the reply of a [ChatEncoder] is sent. See "Protocols" in the package
// documentation.
type Framing struct {
	// Whole is for a reply that is sent at once when it is complete. If it is false, the
	// reply is a stream. It decides, and not ChatRequest.Stream, which is for the Backend and
	// for Observers.
	Whole bool

	// ContentType is the Content-Type of the reply. It must not be empty.
	ContentType string

	// KeepAlive is written to a stream that is silent for Options.Bounds.KeepAlive, between what the
	// encoder has appended, so that proxies do not close it. If it is empty, as for formats
	// whose clients ignore nothing, nothing is written.
	KeepAlive string

	// StartsEarly is for formats whose streams begin with an event that clients
	// wait for. When the Backend has been silent for a second, or for
	// Options.Bounds.KeepAlive if that is shorter, the Handler calls AppendStart before
	// the first chunk and sends the result. Errors that come later are events and
	// not HTTP statuses.
	StartsEarly bool

	// EndsCleanly is for formats in which a failed stream has an end of its own, from
	// which clients learn the error. The Handler then ends the stream after AppendFailure
	// like a complete one, and the connection remains usable. If false, the Handler cuts
	// the connection after AppendFailure, so that no client takes the reply for complete.
	//
	// net/http sends the end of a stream when the Backend has returned. If a Backend
	// still runs after its request was interrupted, clients have the error by then, but
	// not the end.
	EndsCleanly bool
}

// A ReplySaver is a [ChatEncoder] that stores replies before their end is sent. See "Protocols"
// in the package documentation.
type ReplySaver interface {
	ChatEncoder

	// SaveReply is called when a reply is complete, before AppendEnd, with the usage and the
	// extra of AppendEnd. It returns a function that stores the reply, or nil if there is
	// nothing to store. The function must not use the encoder, which may be asked for a failure
	// in the meantime. Its context ends after a second: the model has replied, the usage is
	// recorded, and the client waits.
	SaveReply(u *llm.Usage, extra llm.Extra) func(ctx context.Context) error

	// SaveFailed is called if that function has returned err. The reply fails
	// with the error that SaveFailed returns. If that is nil, the reply is sent,
	// the failure is logged at Warn, and it is the SaveErr of the [RequestSummary].
	SaveFailed(err error) error
}

// A ReplyStart has the identity of a reply, as far as it is known when the reply begins. See
// "Protocols" in the package documentation.
type ReplyStart struct {
	ID           string // as the Backend set it; may be empty, and is before the first chunk
	Created      int64  // Unix time in seconds
	Model        string // as the Backend set it, or else the name in the request
	PromptTokens int    // an estimate
}

// ReplyInfo is what the headers of a reply tell about its request. See "Protocols" in the package
// documentation.
type ReplyInfo struct {
	RequestID  string
	Processing time.Duration // since the request arrived

	// Requests and Tokens are the rate limits of the request: of several subjects, the one of
	// which the smallest part remains. Nil means that there is no such limit, or that its state
	// is not known.
	Requests, Tokens *LimitInfo
}

// A LimitInfo is the state of one rate limit of a subject. See "Protocols" in the package
// documentation.
type LimitInfo struct {
	Limit      int64         // the most that can be used at once
	Remaining  int64         // at least zero
	ResetAfter time.Duration // until Remaining is Limit again
}

// ErrResponseStore is wrapped by the error of a [Protocol] whose store of responses
// failed. The class of the request's error is then [ClassResponseStore]. See "Protocols" in
// the package documentation.
var ErrResponseStore = errors.New("llmhttp: the store of responses failed")

// ReserveChat checks the model of req, finds its end user, and takes from the limits of the key, of
// its Subjects and of the user what req is expected to use, as the Handler does when the decode
// function of [BindChat] has returned. That function calls it before it does work of which a small
// request can cause much, such as loading a conversation. req is the request as far as it is known
// then. Its token limit is lowered to that of the key. The Handler later takes the rest. If
// ReserveChat returns an error, decode must return it.
//
// From then on the request counts. If it fails before the Backend is called, neither
// the request nor the tokens that ReserveChat took are given back to the rates of
// the key. Otherwise what was taken is corrected to what is used, as always. See
// [CountLoaded] for what the work itself costs.
//
// The decode function of [BindCountTokens] calls ReserveChat too before such work.
// It then takes one request from [BucketRequests], because the bucket of counts permits
// many at once, and no tokens.
//
// ctx must be that of one of these functions; if it is not, nothing happens. ReserveChat
// must be called by the function that got ctx. See "Protocols" in the package documentation.
func ReserveChat(ctx context.Context, req *llm.ChatRequest) error {
	q := admittedFrom(ctx)
	switch {
	case q == nil:
		return nil
	case q.route.binding.op.drawsTokenCounts:
		return q.reserveCount(req)
	case q.route.binding.op.name != OperationChat:
		return nil
	}
	if err := q.reserveChat(generation{ChatRequest: req}); err != nil {
		return err
	}
	q.ledger.commitCostly()
	return nil
}

// admittedFrom returns the request that ctx belongs to, or nil if there is none or it was not
// admitted: an Observer or a KeyStore may call what is meant for a Protocol.
func admittedFrom(ctx context.Context) *request {
	q := requestFrom(ctx)
	if q == nil || q.ledger.key == nil {
		return nil
	}
	return q
}

// CountLoaded tells the Handler that the decode function of [BindChat] has loaded that many
// bytes for its request, in addition to those of earlier calls. A request that is refused before the
// Backend is called uses them as text: at least a prompt token for each 4 bytes counts
// toward the limits of the key, and is recorded. Otherwise the usage does not depend on
// them. The function calls ReserveChat before it loads, and CountLoaded at once when it has,
// also if it then returns an error. Negative numbers count nothing.
//
// ctx must be that of the function; if it is not, nothing happens. CountLoaded must be
// called by the function that got ctx. See "Protocols" in the package documentation.
func CountLoaded(ctx context.Context, bytes int) {
	if q := admittedFrom(ctx); q != nil && q.route.binding.op.name == OperationChat {
		q.loaded = int32(min(int64(q.loaded)+int64(max(bytes, 0)), math.MaxInt32))
	}
}

// CountUnsent tells the Handler that a request loads or stores that many bytes that are not
// in its ChatRequest, such as items that chat completions cannot express. The estimate of
// its prompt, by ReserveChat, BindCountTokens and the Handler itself, has them as text. The number
// takes the place of that of an earlier call. A negative number is like zero.
//
// ctx must be that of a request to a Handler; if it is not, nothing happens. CountUnsent must
// be called by the function that got ctx. See "Protocols" in the package documentation.
func CountUnsent(ctx context.Context, bytes int) {
	if q := requestFrom(ctx); q != nil {
		q.unsent = int32(min(max(bytes, 0), math.MaxInt32))
	}
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

// SetModelName sets the name that the client uses for the model of its request, if that is not the one in
// the request that decode returns. Errors then have this name in place of the other, and so has the
// Requested of a [RequestSummary]. decode calls SetModelName with its ctx. See "Protocols" in the package
// documentation.
func SetModelName(ctx context.Context, name string) {
	if q := requestFrom(ctx); q != nil {
		q.requested, q.info.named = name, true
	}
}

// LogBackendMistake logs a mistake of the Backend in a reply that is sent nevertheless, at level Warn. It is
// for a Protocol. ctx must be that of a request to a Handler; if it is not, nothing
// happens. The message and err, which tells more about the mistake, must not quote the
// request or the reply. Warn may be called concurrently. See "Protocols" in the package
// documentation.
func LogBackendMistake(ctx context.Context, message string, err error) {
	if q := requestFrom(ctx); q != nil {
		q.log.print(slog.LevelWarn, message, err)
	}
}

// BearerSecret returns the key in the Authorization header of r if its scheme is Bearer, or "". If
// there are several such headers the result is not a well-formed key, so that the request is
// refused.
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
