// Backend and New.

package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Backend forwards requests to another server. Create one with [New]. Its methods may be called
// concurrently.
type Backend struct {
	opts     Options
	base     *url.URL
	header   http.Header // sent with every request
	redactor *redact.Redactor

	server         reply.Server
	imageTransport http.RoundTripper
	owned          []*http.Transport // the transports that New created

	chat, completions, images, embeddings, speech, transcriptions, translations, models, tokenize endpoint

	reasoning reply.ReasoningNames
	marks     promptcache.Edit // of what is to be cached
}

// New returns a Backend for the server at baseURL, the URL that clients of the
// server are configured with, such as "https://example.com/v1", and not that of
// an endpoint, such as "https://example.com/v1/chat/completions". If baseURL has a
// query, it is sent with every request. New copies opts; nil means the zero
// Options.
//
// New returns an error if baseURL or an option is invalid. It does not contact
// the server.
func New(baseURL string, opts *Options) (*Backend, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, err
	}
	b := &Backend{base: base}
	if opts != nil {
		b.opts = *opts
	}
	if err := option.CheckInterfaces(opts); err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	if err := b.opts.validate(); err != nil {
		return nil, err
	}
	b.opts.setDefaults()
	b.marks = b.opts.markEdit()
	b.header = b.opts.requestHeader()
	b.redactor = failure.NewRedactor(base, b.opts.Key, b.header)
	reply.AskIdentity(b.header) // after that, because values of the header are secrets
	b.server.Transport, b.imageTransport = b.opts.Transport, b.opts.Images.Transport
	if b.server.Transport == nil {
		b.server.Transport = b.ownTransport()
	}
	if b.imageTransport == nil {
		b.imageTransport = b.ownTransport()
	}
	b.server.FirstByteTimeout, b.server.IdleTimeout = b.opts.FirstByteTimeout, b.opts.IdleTimeout
	b.server.MaxEvent, b.server.Memory.Limit = int(b.opts.MaxEvent), b.opts.MaxReplyMemory
	b.server.ReadOnUnfinished = b.opts.ReadOnUnfinished
	b.chat = b.newEndpoint(http.MethodPost, "chat/completions")
	b.chat.required = true
	b.completions = b.newEndpoint(http.MethodPost, "completions")
	b.images = b.newEndpoint(http.MethodPost, "images/generations")
	b.embeddings = b.newEndpoint(http.MethodPost, "embeddings")
	b.speech = b.newEndpoint(http.MethodPost, "audio/speech")
	b.transcriptions = b.newEndpoint(http.MethodPost, "audio/transcriptions")
	b.translations = b.newEndpoint(http.MethodPost, "audio/translations")
	b.models = b.newEndpoint(http.MethodGet, "models")
	b.models.limits = reply.Limits{MaxReply: min(b.opts.MaxReply, maxModelReply)} // there is no usage to read on for
	tokenize := *base
	tokenize.Path, tokenize.RawPath = b.opts.TokenizePath, ""
	b.tokenize = endpoint{method: http.MethodPost, url: tokenize.String(), limits: reply.Limits{MaxReply: b.opts.MaxReply}}
	return b, nil
}

// newEndpoint returns the endpoint with a path below the base URL.
func (b *Backend) newEndpoint(method, path string) endpoint {
	return endpoint{method: method, url: b.base.JoinPath(path).String(), limits: reply.Limits{MaxReply: b.opts.MaxReply, ReadOn: b.opts.ReadOn}}
}

// parseBaseURL parses a base URL. Its errors do not contain the URL, which may
// have a secret in it.
func parseBaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("upstream: the base URL is not valid")
	case !utf8.ValidString(u.Host) || !utf8.ValidString(s):
		return nil, errors.New("upstream: the base URL is not valid UTF-8")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New(`upstream: the base URL must begin with "http://" or "https://"`)
	case u.Hostname() == "":
		return nil, errors.New("upstream: the base URL has no host")
	case u.User != nil:
		return nil, errors.New("upstream: the base URL must not have a user or password; use Options.Key or Options.Header")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		return nil, errors.New(
			`upstream: the base URL must not end in "/chat/completions", which the Backend appends: use the part before it, such as "https://example.com/v1"`,
		)
	case u.Fragment != "":
		return nil, errors.New("upstream: the base URL must not have a fragment")
	}
	if _, err := http.NewRequest(http.MethodGet, u.JoinPath("models").String(), nil); err != nil {
		return nil, errors.New("upstream: the base URL is not valid")
	}
	return u, nil
}

// modelNames returns the names of the model that clients call name.
func (b *Backend) modelNames(name string) modelname.Names {
	if server, ok := b.opts.Models[name]; ok {
		return modelname.Names{Client: name, Server: server}
	}
	return modelname.Names{Client: name, Server: name}
}
