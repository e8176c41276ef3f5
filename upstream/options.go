// Options of a Backend.

package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Values of Options.ReasoningName.
const (
	ReasoningContent = reply.ReasoningContent // "reasoning_content": DeepSeek, llama.cpp, SGLang, and vLLM before January 2026
	Reasoning        = reply.Reasoning        // "reasoning": vLLM since then, Ollama, Groq and OpenRouter
	ReasoningBoth    = reply.ReasoningBoth    // "both": servers that know one of the names and ignore the other
	ReasoningParts   = reply.ReasoningParts   // "thinking": Mistral, as a part of the content of that type
	ReasoningNone    = reply.ReasoningNone    // "-": servers that refuse reasoning
)

// Values of Options.CacheControl.
const (
	CacheControlType = "type" // the server takes marks with the type alone, such as Qwen's
	CacheControlTTL  = "ttl"  // the server takes the lifetime too: OpenRouter and LiteLLM
)

// Options configure a [Backend]. The zero value is ready to use.
type Options struct {
	// Name is the name of the server in errors, which are logged. Clients do not see it. If empty,
	// it is "upstream".
	Name string

	// Key is sent as "Authorization: Bearer <Key>". If both Key and KeyFunc are
	// unset, the header is not sent.
	Key string

	// KeyFunc returns the key for one request. It may be called concurrently. If it fails, the
	// client gets the status 502. It must be nil if Key is set.
	KeyFunc func(ctx context.Context) (string, error)

	// Header is sent with every request, for example with an API version. Values of 8 bytes or more
	// are treated as secrets and removed from errors.
	Header http.Header

	// RequestIDHeader is the header that carries the ID of the client's request. If empty, it is
	// X-Request-Id; if "-", the ID is not sent.
	RequestIDHeader string

	// Transport sends the requests. It must not follow redirects. It may add
	// headers, such as a traceparent. If nil, the Backend creates one with
	// [NewTransport].
	Transport http.RoundTripper

	// Models maps the model names of clients to those of the server. Models that are not in it have
	// the same name for both. Clients see their own names in replies, in errors and in the list of
	// models, where members that may contain another name are removed.
	Models map[string]string

	// ConnectTimeout is that of the [TransportOptions] of the transport that the Backend
	// creates. It has no effect if Transport is set. Zero means 10 seconds; negative means
	// no timeout.
	ConnectTimeout time.Duration

	// FirstByteTimeout is the timeout for the first byte of the reply's body, including the time to
	// connect. A server sends a whole reply only when it is complete. Zero means 5 minutes;
	// negative means no timeout.
	FirstByteTimeout time.Duration

	// IdleTimeout is how long the server may send nothing, not even a comment,
	// after the first byte of a reply. It is also the IdleTimeout of the
	// [TransportOptions], unless Transport is set. Zero means one minute; negative means
	// no timeout.
	IdleTimeout time.Duration

	// MaxReply is the largest reply that is not a stream, in bytes, together with the images that
	// are fetched for it. Zero means 64 MiB; negative means no limit.
	MaxReply int64

	// MaxReplyMemory bounds the replies that are not streams and are being read and decoded at the
	// same time, in bytes of all of them. A reply for which there is no room waits, except that one
	// at a time may exceed the bound. To decode a reply takes several times as much memory as the
	// reply itself. Zero means 64 MiB; negative means no bound.
	MaxReplyMemory int64

	// MaxEvent is the largest event of a stream, in bytes. Zero means 16 MiB;
	// negative means no limit.
	MaxEvent int64

	// ReadOn is how long a stream is read on when the client has left and the usage is due,
	// which comes last: a client that leaves just before would pay for an estimate. That of a
	// chat or a completion is due when a choice has a finish_reason. Speech as events,
	// transcriptions and images do not tell where their content ends: theirs is due from the first
	// chunk on. Speech as bytes has no usage and is not read on. The usage that comes in this time
	// is passed to [llm.ReportUsage]; then the request to the server ends. The client's
	// connection is closed meanwhile, but the request still counts toward Limits.Concurrent.
	// Handler.Shutdown waits for it until its context is done, and http.Server.Shutdown until it has
	// ended. Zero means 5 seconds; negative means no time: nothing is read on.
	ReadOn time.Duration

	// ReadOnUnfinished makes ReadOn apply as soon as the request was sent, for every operation that
	// calls a model and to whole replies too. The server goes on generating in this time. If it is
	// false, a client that leaves before the usage is due ends the request to the server at once,
	// and its usage is estimated from the prompt and what has come, without
	// reasoning that the server does not show.
	ReadOnUnfinished bool

	// TokenizePath is the path of the endpoint that counts the tokens of a chat as
	// vLLM's does, "/tokenize", on the host of the server. [Backend.CountTokens] asks it, for
	// protocols that count tokens. If empty, the server is not asked and the Handler
	// estimates.
	TokenizePath string

	// OmitStreamOptions leaves stream_options out of requests, for servers that
	// refuse it. They report no usage for streams, so it is estimated.
	OmitStreamOptions bool

	// ReasoningName is the name of the member of messages in which the server
	// takes the reasoning of earlier turns: ReasoningContent, Reasoning or
	// ReasoningBoth, or with ReasoningParts that it is a part of the content. With ReasoningNone it is not sent, nor
	// are its details, which ReasoningParts leaves out too. If
	// empty, it is the name under which the last reply of the model had reasoning.
	// Until a reply had some, it is the name that the message has. Reasoning under
	// the name "reasoning" alone is sent under both, because another server may
	// have sent it: most servers ignore the name that they do not know. Set the name
	// for a server that refuses it, and if there are several processes whose
	// clients know only "reasoning_content": until a server's first reply, a process does not know its
	// name. Models of vLLM and Ollama do not see such reasoning then, and Mistral may refuse it.
	ReasoningName string

	// CacheControl says which members the server knows of cache_control, the mark with which clients say
	// what is to be cached: CacheControlType or CacheControlTTL. It is sent without the others, in parts of the content, in
	// tools beside "function", in tool calls and in the request itself, where the client has set it. If
	// empty, no mark is sent: servers that do not know it refuse the request, or cache
	// less, because the marks of a conversation move.
	CacheControl string

	// Images configures the handling of generated images.
	Images ImageOptions
}

// ImageOptions configure how a [Backend] generates images. A server may return an image as data or
// as an address to fetch it from. Where the client wants data, or where the address has the host of
// the server itself, which clients may not know or reach, the Backend has to fetch the image.
type ImageOptions struct {
	// Hosts lists the hosts from which images may be fetched. Each is a host name, or
	// "*.example.com" for all names below example.com; an optional port replaces the default port
	// of the scheme. If Hosts is empty, requests whose images would have to be fetched fail.
	Hosts []string

	// Transport fetches images. If nil, the Backend creates an
	// [http.Transport] for it. Options.Transport is not used, because it may add
	// secrets of the server.
	Transport http.RoundTripper

	// Timeout is the timeout for fetching all images of a request. Zero means 30 seconds; negative
	// means no timeout.
	Timeout time.Duration

	// MaxSize is the largest image that is fetched, in bytes. Zero means 32 MiB;
	// negative means no limit but MaxReply.
	MaxSize int64

	// OmitFormat leaves response_format out of requests, for models that refuse
	// it. Clients still get the format that they asked for.
	OmitFormat bool
}

// validate returns an error that names the first option that is invalid.
func (o *Options) validate() error {
	if o.Key != "" && o.KeyFunc != nil {
		return errors.New("upstream: Options.Key and Options.KeyFunc are both set")
	}
	if !client.IsKey(o.Key) {
		return errors.New("upstream: Options.Key has a character that a header must not have, such as a space or a line break")
	}
	if err := o.validateHeader(); err != nil {
		return err
	}
	if name := o.RequestIDHeader; name != "" && name != "-" {
		if !isHeaderName(name) || client.IsReservedHeader(name) || http.CanonicalHeaderKey(name) == "Authorization" {
			return fmt.Errorf("upstream: Options.RequestIDHeader must not be %q", name)
		}
	}
	if o.TokenizePath != "" && !strings.HasPrefix(o.TokenizePath, "/") {
		return errors.New(`upstream: Options.TokenizePath must begin with "/"`)
	}
	switch o.ReasoningName {
	case "", ReasoningContent, Reasoning, ReasoningBoth, ReasoningParts, ReasoningNone:
	default:
		return fmt.Errorf("upstream: Options.ReasoningName must not be %q", o.ReasoningName)
	}
	switch o.CacheControl {
	case "", CacheControlType, CacheControlTTL:
	default:
		return fmt.Errorf("upstream: Options.CacheControl must not be %q", o.CacheControl)
	}
	for client, server := range o.Models {
		if client == "" || server == "" {
			return errors.New("upstream: Options.Models has an empty name")
		}
	}
	for _, pattern := range o.Images.Hosts {
		if !isHostPattern(pattern) {
			return fmt.Errorf("upstream: Options.Images.Hosts has %q, which is not a host", pattern)
		}
	}
	return nil
}

// validateHeader checks Header. Its errors contain names, but no values.
func (o *Options) validateHeader() error {
	for name, values := range o.Header {
		name = http.CanonicalHeaderKey(name)
		switch {
		case !isHeaderName(name):
			return fmt.Errorf("upstream: Options.Header has the invalid name %q", name)
		case client.IsReservedHeader(name):
			return fmt.Errorf("upstream: Options.Header must not have %s, which the Backend sets", name)
		case name == "Authorization" && (o.Key != "" || o.KeyFunc != nil):
			return errors.New("upstream: Options.Header has Authorization, and there is a key as well")
		}
		if slices.ContainsFunc(values, client.HasControl) {
			return fmt.Errorf("upstream: Options.Header has a control character in %s", name)
		}
	}
	return nil
}

// setDefaults replaces the zero values of o, and copies what o refers to.
func (o *Options) setDefaults() {
	o.Name = cmp.Or(o.Name, "upstream")
	o.RequestIDHeader = http.CanonicalHeaderKey(cmp.Or(o.RequestIDHeader, "X-Request-Id"))
	o.Models = maps.Clone(o.Models)
	o.FirstByteTimeout = cmp.Or(o.FirstByteTimeout, 5*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaultIdleTimeout)
	o.ReadOn = cmp.Or(o.ReadOn, 5*time.Second)
	o.MaxReply = option.Bound(o.MaxReply, 64<<20)
	o.MaxReplyMemory = option.Bound(o.MaxReplyMemory, 64<<20)
	o.MaxEvent = min(option.Bound(o.MaxEvent, 16<<20), math.MaxInt)
	o.Images.Hosts = slices.Clone(o.Images.Hosts)
	o.Images.Timeout = cmp.Or(o.Images.Timeout, 30*time.Second)
	o.Images.MaxSize = option.Bound(o.Images.MaxSize, 32<<20)
}

// markEdit returns what is done with the marks of requests.
func (o *Options) markEdit() promptcache.Edit {
	switch o.CacheControl {
	case CacheControlType:
		return promptcache.Keep("type")
	case CacheControlTTL:
		return promptcache.Keep("type", "ttl")
	}
	return promptcache.Remove
}

// requestHeader returns the header that all requests have in common.
func (o *Options) requestHeader() http.Header {
	h := http.Header{"User-Agent": {"llmhttp"}}
	for name, values := range o.Header {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if o.Key != "" {
		client.SetBearer(h, o.Key)
	}
	return h
}

func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// isHostPattern reports whether s has the form that ImageOptions.Hosts requires.
func isHostPattern(s string) bool {
	host := strings.TrimPrefix(s, "*.")
	u, err := url.Parse("http://" + host)
	return err == nil && u.Hostname() != "" && u.Host == host && !strings.Contains(host, "*")
}
