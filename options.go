// Options and their defaults.

package llmhttp

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
)

// Options configures a [Handler]. The zero value is ready to use.
type Options struct {
	// Prefix is the path below which the host mounts the Handler, such as "/llm" or
	// "/api/llm": clients then use a base URL that ends in /llm/v1. It begins with a
	// slash, and ends neither with one nor with /v1. Paths outside of it get a 404. If empty, the paths
	// of the Handler begin with /v1.
	//
	// The Pattern of requests, [RequestSummary].Route, log lines and the texts of errors have
	// the Prefix. The requests that a [Protocol] gets have URLs without it.
	Prefix string

	// Usage records what requests used, and answers the usage endpoint within 10 seconds. If nil,
	// usage is not recorded, the endpoint answers 404, and keys cannot have a [Quota]. A successful
	// reply is sent only after Record has returned; put package usagebuffer in
	// front of a slow store.
	Usage UsageStore

	// Limits are the limits of each key whose Key.Limits are zero. To exempt a key from them, give it a
	// limit that never refuses, such as a Concurrent of math.MaxInt. They are not in the Key that
	// [KeyFrom] returns, nor in what package console shows of it. The zero Limits set none. NewHandler
	// panics if Limits.Validate returns an error.
	Limits Limits

	// Limiter enforces Limits and Key.Limits; if nil, [NewLimiter] does.
	Limiter Limiter

	// Protocols are wire formats to serve besides OpenAI's.
	Protocols []Protocol

	// Routes are endpoints to serve besides those of this package and of the Protocols, such as the
	// host's own: see [NewRoute]. Their keys and their errors have OpenAI's form, unless a Route names
	// a Protocol.
	Routes []Route

	// Price returns what a request costs, in one currency for all requests. What it
	// returns is stored with the usage, and everything that shows or limits costs uses
	// that: a later change of prices does not change what was recorded. Price must not
	// modify the record or keep it, must return soon, and must be safe for concurrent
	// use. Negative parts of a Cost count as they are: they lower sums, and so what counts
	// toward a Quota.
	//
	// It is called when a request has ended, before its usage is recorded, and when a call
	// that [llm.StartCall] has begun has ended: with the record of the request that has the Model,
	// ServedModel, ServiceTier and Units of the call, and the Target of the last [StartTry], which does
	// not tell apart calls of different targets at the same time. If it
	// returns an error or panics, the usage is recorded as Unpriced, with the Cost of the other calls,
	// and the error is logged and told to the Observer. A request for which a [Quota] in money was
	// reserved then costs what was reserved. If a reply of audio or images has no price, or costs
	// nothing, and the Backend has reported no tokens, Price is called again with an estimate of
	// them; that counts if it costs something. If the key has a Quota in money, Price is
	// also called before the Backend is, with an estimate: the record is Estimated and
	// has what is known of the request, and not who serves it. Its ServiceTier is the
	// service_tier that the client asks for; the final record has the one in the reply. An
	// error then refuses the request: the client gets an [*llm.Error], and for other errors a
	// 500.
	//
	// The Model is the name that the client used, which may be an alias; ServedModel
	// and Target tell more when the request has ended. If Price is nil, all costs are
	// zero, and keys cannot have a Quota in money.
	Price func(*UsageRecord) (Cost, error)

	// User returns the end user on whose behalf a request is made, which is recorded and
	// limited: see Key.PerUser. named is what the client tells: the EndUser of the request,
	// which may be empty. Any holder of a key can name any user, so a host whose clients are
	// not its own programs ignores it, and derives the user from r, such as from a header that
	// only its own proxy sets. Its context is that of the request, for [KeyFrom].
	//
	// It is called once, when the body was read and the model is known, for chats, counts of their
	// tokens and other operations that call a model. The client gets an [*llm.Error] that it returns,
	// and a 500 for other errors. It must be safe for concurrent use, and must not read the body. A
	// user of more than 128 bytes or with control characters is replaced by "sha256:" and its
	// SHA-256 in hexadecimal. If nil, the user is named; [HashUser] hashes it.
	User func(r *http.Request, named string) (string, error)

	// Accept tells which requests are accepted.
	Accept AcceptOptions

	// ImageURL stores an image for a client that asked for a URL, and returns the
	// URL. It must not modify data; mediaType is, for example, "image/png". If
	// nil, clients get a data: URL.
	ImageURL func(ctx context.Context, data []byte, mediaType string) (string, error)

	// Estimates tell how many tokens a request is expected to use.
	Estimates TokenEstimates

	// Bounds limit how large and how slow requests and replies are.
	Bounds Bounds

	// Observe is called for every request. Use [Observers] to set several.
	Observe Observer

	// Logger receives what clients do not see: causes of 5xx replies at level
	// Error, mistakes of the Backend at Warn, requests that Shutdown interrupts
	// and endpoints that are not mounted at Info, and disconnected clients at Debug. While the KeyStore
	// or the Limiter fails, or the sums of the UsageStore cannot be read, there is a line every 10 seconds
	// for each of them, which tells how many were skipped. The Handler logs no contents of requests, but
	// texts of errors and panics of the host's code can quote them. The API key of the request is
	// removed from these, if it has at least 8 bytes. If nil, slog.Default() is used.
	Logger *slog.Logger

	// RequestID returns the ID of a request, which must be unique for all time:
	// it is also the ID of the UsageRecord, and records with a known ID are skipped. So a client that
	// chooses it can hide what it uses: do not take it from a header that clients control. If nil, or if it returns "", the ID is random.
	RequestID func(*http.Request) string

	// Now returns the time for records, replies and the expiry of keys. If nil,
	// [time.Now] is used.
	Now func() time.Time
}

// Bounds limit how large and how slow a request and its reply are. The zero value is ready to use.
type Bounds struct {
	// MaxBody is the maximum size of a request body in bytes. Zero means 16 MiB;
	// negative means no limit, which is not for clients that are not trusted.
	MaxBody int64

	// MaxReply is the maximum size of a reply of the Backend in bytes: of the texts
	// of a chat, of images, of vectors or of audio, all together. A larger one fails with a
	// 502, a stream with an error event. A whole reply with images is complete in memory before it is
	// sent, and so is each image of a stream, of which those that are not complete count too. Zero means 64 MiB; negative means no limit.
	MaxReply int64

	// Timeout is how long the Backend may be silent: until the first chunk, between two chunks, or
	// until a response that comes whole. The request then fails with a 504. It also limits calls of
	// ImageURL, of the UsageStore for the usage endpoints, and of queries of a Protocol, which fail
	// with a 503. Zero means 5 minutes; negative means no timeout.
	Timeout time.Duration

	// KeepAlive is how long a stream may be silent before something that clients ignore,
	// such as a comment, is written to it, so that proxies do not close it. Zero means 15
	// seconds; negative means never. Then nothing is written before the first chunk, so that
	// every error before it has its HTTP status: see [Framing].
	KeepAlive time.Duration

	// ReadTimeout is how long a client may pause while it sends a request body. The actual timeout
	// is between one and one and a half times this value. Zero means 1 minute; negative means no
	// timeout. It takes the place of http.Server.ReadTimeout, which limits the duration of the
	// whole upload: a large one over a slow connection works, and so does one of a client that is
	// slow on purpose. It counts against Limits.Concurrent from the time its header has arrived.
	ReadTimeout time.Duration

	// WriteTimeout is the timeout of each write to a client; a large reply is
	// written in pieces of 32 KiB. The actual timeout is between one and one and
	// a half times this value. A whole reply, and the end of a stream, has this
	// time in all, and in addition the time that it takes at 64 KiB a second. Zero
	// means 30 seconds; negative means no timeout. It overrides
	// http.Server.WriteTimeout, which is not needed.
	//
	// On HTTP/2, net/http can end a stream only while its connection accepts
	// data. For clients that do not read from their connections,
	// http.HTTP2Config.WriteByteTimeout of the server must be set as well, as [Serve]
	// does.
	WriteTimeout time.Duration
}

// AcceptOptions tell which requests are accepted. The zero value is ready to use.
type AcceptOptions struct {
	// UnknownMembers reports whether a request may have a top-level member for which
	// its format has no field: one that is new, of another vendor, or misspelled. The Backend gets it
	// in Extra. If the function returns false, the client gets a 400 that names the member. It is also
	// called for parameters that are documented and have no field, such as seed.
	//
	// The function gets names in lower case, because servers may ignore case: Models as
	// models, and topK as topk. U+212A counts as k and U+017F as s. Members that differ
	// from a field only in case never pass, at no level. The function must be safe for
	// concurrent use. If nil, [DefaultUnknownMembers] is used.
	UnknownMembers func(name string) bool

	// TrustedOrigins are the origins of web pages that may use the server without a
	// key, such as "https://app.example.com", and so the names by which browsers know the
	// server itself: "https://llm.example.com". They only matter for requests that the
	// KeyStore admits without a secret, or with an unknown one, as [AllowAll] does. Of
	// these, the Handler refuses with a 403 those that a page of another site may have
	// sent: what [http.CrossOriginProtection] refuses, and, because of DNS rebinding,
	// requests to an unknown host that come from a browser (with Origin, Sec-Fetch-Site
	// or Cookie) or have arrived on loopback. Addresses, localhost, the name of the
	// machine and the hosts of TrustedOrigins are known. A program may call the server by any
	// name, except on loopback. "*" trusts every page and knows every host. A browser
	// shows replies to pages of other origins only if middleware for CORS allows it.
	TrustedOrigins []string

	// Decode returns a decoder of the body of a request whose Content-Encoding is neither gzip nor deflate, which a
	// Handler knows: encoding is the name in lower case, such as "zstd", which Codex uses. Reading r stops at
	// Bounds.MaxBody bytes, and of what is decoded at the same bound, or that of the endpoint for files; the decoder
	// itself bounds its memory. Close is called once. An error that is or wraps [errors.ErrUnsupported] is a
	// 415, and every other one, also of Read, a 400. It must be safe for concurrent use. If nil, clients get a 415.
	Decode func(encoding string, r io.Reader) (io.ReadCloser, error)
}

// TokenEstimates tell how many tokens a request is expected to use, and has used if the Backend does
// not report it. The zero value is ready to use.
type TokenEstimates struct {
	// TextTokens returns the number of tokens of a text. The Handler uses it to
	// reserve tokens before it calls the Backend, and to estimate the usage if
	// the Backend reports none. If nil, four bytes count as one token. Servers count images, audio and
	// files by pixels, seconds and pages. The Handler does not know these: in any case each is 85
	// tokens, and one more for each 512 bytes of its base64, or for each 16 bytes of a file that is
	// neither an image, audio, video nor text. One by address is 85.
	TextTokens func(model, text string) int

	// ReserveCompletion is how many tokens are reserved from the limits of a key
	// for each choice of a chat whose client sets no max_tokens, and at most what
	// the bucket can hold. What a reply uses beyond it is taken when it has ended,
	// so concurrent requests can together overrun a limit by that much. The last tokens of a
	// bucket are left to requests with a small max_tokens. Zero means 512; negative means none: only
	// the prompt is reserved.
	ReserveCompletion int
}

// The defaults of [Options].
const (
	defaultMaxBody      = 16 << 20
	defaultMaxReply     = 64 << 20
	defaultTimeout      = 5 * time.Minute
	defaultKeepAlive    = 15 * time.Second
	defaultReadTimeout  = time.Minute
	defaultWriteTimeout = 30 * time.Second

	defaultReserveCompletion = 512
)

// maxDuration can be added to any time without overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

// withDefaults returns o with its defaults filled in.
func (o *Options) withDefaults() Options {
	n := Options{}
	if o != nil {
		n = *o
	}
	if n.Limiter == nil {
		n.Limiter = NewLimiter()
	}
	n.Logger = cmp.Or(n.Logger, slog.Default())
	if n.Accept.UnknownMembers == nil {
		n.Accept.UnknownMembers = DefaultUnknownMembers
	}
	n.Bounds.setDefaults()
	n.Estimates.ReserveCompletion = max(cmp.Or(n.Estimates.ReserveCompletion, defaultReserveCompletion), 0)
	return n
}

func (b *Bounds) setDefaults() {
	b.MaxBody = option.Bound(b.MaxBody, defaultMaxBody)
	b.MaxReply = option.Bound(b.MaxReply, defaultMaxReply)
	b.Timeout = min(cmp.Or(b.Timeout, defaultTimeout), maxDuration)
	b.KeepAlive = min(cmp.Or(b.KeepAlive, defaultKeepAlive), maxDuration)
	b.ReadTimeout = min(cmp.Or(b.ReadTimeout, defaultReadTimeout), maxDuration)
	b.WriteTimeout = min(cmp.Or(b.WriteTimeout, defaultWriteTimeout), maxDuration)
}
