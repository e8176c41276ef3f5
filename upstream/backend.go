// Backend and New.

package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Backend forwards requests to another server. Create one with [New]. Its methods may be called
// concurrently.
type Backend struct {
	opts   Options
	client *client.Client

	imageTransport http.RoundTripper
	owned          []*http.Transport // the transports that New created

	chat, completions, images, embeddings, speech, transcriptions, translations, models, tokenize client.Endpoint

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
	b := &Backend{}
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
	b.client = b.newClient(base)
	b.imageTransport = b.opts.Images.Transport
	if b.imageTransport == nil {
		b.imageTransport = b.ownTransport()
	}
	b.chat = b.newEndpoint("chat/completions")
	b.chat.Required = true
	b.completions = b.newEndpoint("completions")
	b.images = b.newEndpoint("images/generations")
	b.embeddings = b.newEndpoint("embeddings")
	b.speech = b.newEndpoint("audio/speech")
	b.transcriptions = b.newEndpoint("audio/transcriptions")
	b.translations = b.newEndpoint("audio/translations")
	b.models = b.client.Endpoint(http.MethodGet, "models")
	b.models.Limits = reply.Limits{MaxReply: min(b.opts.MaxReply, client.MaxModelReply)} // there is no usage to read on for
	tokenize := *base
	tokenize.Path, tokenize.RawPath = b.opts.TokenizePath, ""
	b.tokenize = client.Endpoint{Method: http.MethodPost, URL: tokenize.String(), Limits: reply.Limits{MaxReply: b.opts.MaxReply}}
	return b, nil
}

// newClient returns the client of a Backend whose options are set.
func (b *Backend) newClient(base *url.URL) *client.Client {
	header := b.opts.requestHeader()
	c := &client.Client{
		Name: b.opts.Name, Base: base, Header: header, RequestIDHeader: b.opts.RequestIDHeader,
		Redactor: failure.NewRedactor(base, b.opts.Key, header), Wrap: newError, Models: b.opts.Models,
		Limits: reply.Limits{MaxReply: b.opts.MaxReply, ReadOn: b.opts.ReadOn},
		SetKey: client.SetBearer, KeyFunc: b.opts.KeyFunc,
	}
	reply.AskIdentity(header) // after NewRedactor, because values of the header are secrets
	c.Server.Transport = b.opts.Transport
	if c.Server.Transport == nil {
		c.Server.Transport = b.ownTransport()
	}
	c.Server.FirstByteTimeout, c.Server.IdleTimeout = b.opts.FirstByteTimeout, b.opts.IdleTimeout
	c.Server.MaxEvent, c.Server.Memory.Limit = int(b.opts.MaxEvent), b.opts.MaxReplyMemory
	c.Server.ReadOnUnfinished = b.opts.ReadOnUnfinished
	return c
}

// Packages below this one make their Backends of one of this package.
func init() { client.Register(func(b any) *client.Client { return b.(*Backend).client }) }

// newEndpoint returns the endpoint to which requests are posted at a path below the base URL.
func (b *Backend) newEndpoint(path string) client.Endpoint {
	return b.client.Endpoint(http.MethodPost, path)
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
