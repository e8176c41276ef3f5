// Package upstream provides a [Backend] that forwards requests to another
// server of the same API: a hosted service, a model server or another llmhttp.
//
//	b, err := upstream.New("https://models.example.com/v1", &upstream.Options{Key: os.Getenv("MODELS_KEY")})
//	if err != nil {
//		log.Fatal(err)
//	}
//	h := llmhttp.NewHandler(b, keys, nil)
//
// # Requests
//
// The server gets every parameter of a request, including those that llmhttp
// does not know, but not the key of the client. It is asked for a stream if the
// client wants one, and always for the usage.
//
// # Replies
//
// A reply is read by its content, not by its Content-Type: a server may stream
// although it was not asked to, or send a whole reply although it was. Members
// that llmhttp does not know are kept in Extra at every level. Members that are
// null, missing or of another type than usual are accepted where that loses
// nothing. The model has the name that the client used, except in members that
// llmhttp does not know.
//
// These are errors: a stream that ends with neither a finish_reason nor [DONE],
// an error with the status 200, a redirect, and a reply that is incomplete, too
// large or not valid JSON.
//
// # Errors
//
// The client gets an [llmhttp.Error] with the status, message, param and code
// of the server if it can act on it: for a status of 400, 413, 422 and 429, and
// for a model that does not exist. The client gets no details of any other
// error, only a status of 502, 503 or 504. In both cases Err is an [*Error] for
// logs, from which keys and the address of the server are removed.
//
// A request is sent once. It is repeated only where [http.Transport] knows that
// the server has not processed it, such as on a stale connection.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// Backend forwards requests to another server. Create one with [New]. Its
// methods may be called concurrently.
type Backend struct {
	opts     Options
	base     *url.URL
	header   http.Header // of every request
	redactor *redact.Redactor

	transport      http.RoundTripper
	imageTransport http.RoundTripper
	owned          []*http.Transport // the transports that New created

	chat, images, embeddings, models endpoint

	memory replyMemory
}

var (
	_ llmhttp.Backend        = (*Backend)(nil)
	_ llmhttp.ModelLister    = (*Backend)(nil)
	_ llmhttp.ImageGenerator = (*Backend)(nil)
	_ llmhttp.Embedder       = (*Backend)(nil)
)

// Options configure a [Backend]. The zero value is ready to use. The timeouts
// mean "no timeout" if they are negative.
type Options struct {
	// Name is the name of the server in errors, which are logged. Clients do
	// not see it. If empty, it is "upstream".
	Name string

	// Key is sent as "Authorization: Bearer <Key>". If both Key and KeyFunc are
	// unset, the header is not sent.
	Key string

	// KeyFunc returns the key for one request. It may be called concurrently.
	// If it fails, the client gets the status 502. It excludes Key.
	KeyFunc func(ctx context.Context) (string, error)

	// Header is sent with every request, for example with an API version.
	// Values of 8 bytes or more are treated as secrets and removed from errors.
	Header http.Header

	// RequestIDHeader is the header that carries the ID of the client's
	// request. If empty, it is X-Request-Id; if "-", the ID is not sent.
	RequestIDHeader string

	// Transport sends the requests. It must not follow redirects. It may add
	// headers, such as a traceparent. If nil, the Backend creates one with
	// [NewTransport].
	Transport http.RoundTripper

	// Models maps the model names of clients to those of the server. Models
	// that are not in it have the same name for both. Clients see their own
	// names in replies, in errors and in the list of models, where members that
	// may contain another name are removed.
	Models map[string]string

	// ConnectTimeout is the timeout for connecting, and again for the TLS
	// handshake. It has no effect if Transport is set. Zero means 10 seconds.
	ConnectTimeout time.Duration

	// FirstByteTimeout is the timeout for the first byte of the reply's body,
	// including the time to connect. A server sends a whole reply only when it
	// is complete. Zero means 5 minutes.
	FirstByteTimeout time.Duration

	// IdleTimeout is how long the server may send nothing, not even a comment,
	// after the first byte of a reply. It is also the time after which an
	// HTTP/2 connection is closed on which nothing arrives, not even the reply
	// to a ping, unless Transport is set. Zero means one minute.
	IdleTimeout time.Duration

	// MaxReply is the largest reply that is not a stream, in bytes, together
	// with the images that are fetched for it. Zero or negative means 64 MiB.
	MaxReply int64

	// MaxReplies bounds the replies that are not streams and are being read and
	// decoded at the same time, in bytes of all of them. A reply for which there
	// is no room waits, except that one at a time may exceed the bound. To decode
	// a reply takes several times as much memory as the reply itself. Zero or
	// negative means 64 MiB.
	MaxReplies int64

	// MaxEvent is the largest event of a stream, in bytes. Zero or negative
	// means 16 MiB.
	MaxEvent int64

	// OmitStreamOptions leaves stream_options out of requests, for servers that
	// refuse it. They report no usage for streams, so it is estimated.
	OmitStreamOptions bool

	// Images configures the handling of generated images.
	Images ImageOptions
}

// ImageOptions configure how a [Backend] generates images. A server may return
// an image as data or as an address to fetch it from. Where the client wants
// data, or where the address has the host of the server itself, which clients
// may not know or reach, the Backend has to fetch the image.
type ImageOptions struct {
	// Hosts lists the hosts from which images may be fetched. Each is a host
	// name, or "*.example.com" for all names below example.com; an optional
	// port replaces the default port of the scheme. If Hosts is empty, requests
	// whose images would have to be fetched fail.
	Hosts []string

	// Transport fetches images. If nil, the Backend creates an
	// [http.Transport] for it. Options.Transport is not used, because it may add
	// secrets of the server.
	Transport http.RoundTripper

	// Timeout is the timeout for fetching all images of a request. Zero means
	// 30 seconds, negative no timeout.
	Timeout time.Duration

	// MaxSize is the largest image that is fetched, in bytes. Zero or negative
	// means 32 MiB.
	MaxSize int64

	// OmitFormat leaves response_format out of requests, for models that refuse
	// it. Clients get the format that they asked for all the same.
	OmitFormat bool
}

// New returns a Backend for the server at baseURL, the URL that clients of the
// server are configured with, such as "https://example.com/v1". If baseURL has a
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
	if err := b.opts.validate(); err != nil {
		return nil, err
	}
	b.opts.setDefaults()
	b.header = b.opts.requestHeader()
	b.redactor = newRedactor(base, b.opts.Key, b.header)
	if b.transport = b.opts.Transport; b.transport == nil {
		b.transport = b.ownTransport()
	}
	if b.imageTransport = b.opts.Images.Transport; b.imageTransport == nil {
		b.imageTransport = b.ownTransport()
	}
	size := b.opts.MaxReply
	b.chat = endpoint{http.MethodPost, base.JoinPath("chat/completions").String(), true, size}
	b.images = endpoint{http.MethodPost, base.JoinPath("images/generations").String(), false, size}
	b.embeddings = endpoint{http.MethodPost, base.JoinPath("embeddings").String(), false, size}
	b.models = endpoint{http.MethodGet, base.JoinPath("models").String(), false, min(size, maxModelReply)}
	b.memory.limit = b.opts.MaxReplies
	return b, nil
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
	case u.Fragment != "":
		return nil, errors.New("upstream: the base URL must not have a fragment")
	}
	if _, err := http.NewRequest(http.MethodGet, u.JoinPath("models").String(), nil); err != nil {
		return nil, errors.New("upstream: the base URL is not valid")
	}
	return u, nil
}

// validate returns an error that names the first option that is invalid.
func (o *Options) validate() error {
	if o.Key != "" && o.KeyFunc != nil {
		return errors.New("upstream: Options.Key and Options.KeyFunc are both set")
	}
	if !isToken(o.Key) {
		return errors.New("upstream: Options.Key has a character that a header must not have, such as a space or a line break")
	}
	if err := o.validateHeader(); err != nil {
		return err
	}
	if name := o.RequestIDHeader; name != "" && name != "-" {
		if !isHeaderName(name) || isReservedHeader(name) || http.CanonicalHeaderKey(name) == "Authorization" {
			return fmt.Errorf("upstream: Options.RequestIDHeader must not be %q", name)
		}
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
		switch name = http.CanonicalHeaderKey(name); {
		case !isHeaderName(name):
			return fmt.Errorf("upstream: Options.Header has the invalid name %q", name)
		case isReservedHeader(name):
			return fmt.Errorf("upstream: Options.Header must not have %s, which the Backend sets", name)
		case name == "Authorization" && (o.Key != "" || o.KeyFunc != nil):
			return errors.New("upstream: Options.Header has Authorization, and there is a key as well")
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("upstream: Options.Header has a control character in %s", name)
			}
		}
	}
	return nil
}

// setDefaults replaces the zero values of o, and copies what o refers to.
func (o *Options) setDefaults() {
	o.Name = cmp.Or(o.Name, "upstream")
	o.RequestIDHeader = http.CanonicalHeaderKey(cmp.Or(o.RequestIDHeader, "X-Request-Id"))
	o.Models = maps.Clone(o.Models)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.FirstByteTimeout = cmp.Or(o.FirstByteTimeout, 5*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.MaxReply = positiveOr(o.MaxReply, 64<<20)
	o.MaxReplies = positiveOr(o.MaxReplies, 64<<20)
	o.MaxEvent = min(positiveOr(o.MaxEvent, 16<<20), math.MaxInt)
	o.Images.Hosts = slices.Clone(o.Images.Hosts)
	o.Images.Timeout = cmp.Or(o.Images.Timeout, 30*time.Second)
	o.Images.MaxSize = positiveOr(o.Images.MaxSize, 32<<20)
}

// requestHeader returns the header that all requests have in common.
func (o *Options) requestHeader() http.Header {
	h := http.Header{"User-Agent": {"llmhttp"}}
	for name, values := range o.Header {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if o.Key != "" {
		h.Set("Authorization", "Bearer "+o.Key)
	}
	return h
}

// positiveOr returns n, or otherwise if n is not positive.
func positiveOr(n, otherwise int64) int64 {
	if n <= 0 {
		return otherwise
	}
	return n
}

// isReservedHeader reports whether the Backend or the transport sets a header.
func isReservedHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
		"Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// isToken reports whether s may follow "Bearer ".
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// maxIdleConns is how many idle connections are kept. [http.DefaultTransport]
// keeps two for each host, so a busy gateway would open a new connection for
// most requests.
const maxIdleConns = 1024

// NewTransport returns a transport that keeps connections alive and uses the
// proxies of the environment. Of opts it uses ConnectTimeout and IdleTimeout; nil
// means the zero Options. A Backend has such a transport unless Options.Transport
// is set, for example to a wrapper of it.
func NewTransport(opts *Options) *http.Transport {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.setDefaults()
	connectTimeout := max(o.ConnectTimeout, 0) // zero means none here
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // compression would delay chunks
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	if d := o.IdleTimeout; d > 0 {
		// A server answers pings also while its model computes a reply.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: d / 2, PingTimeout: d / 2}
	}
	return t
}

// ownTransport returns a transport that CloseIdleConnections closes.
func (b *Backend) ownTransport() *http.Transport {
	t := NewTransport(&b.opts)
	b.owned = append(b.owned, t)
	return t
}

// CloseIdleConnections closes the idle connections of the transports that New
// created. It does not affect Options.Transport and Options.Images.Transport.
// The Backend remains usable.
func (b *Backend) CloseIdleConnections() {
	for _, t := range b.owned {
		t.CloseIdleConnections()
	}
}

// modelNames are the names of a model. Both are empty for requests that are not
// about a model.
type modelNames struct {
	client string // the name that clients use
	server string
}

// modelNames returns the names of the model that clients call name.
func (b *Backend) modelNames(name string) modelNames {
	if server, ok := b.opts.Models[name]; ok {
		return modelNames{name, server}
	}
	return modelNames{name, name}
}
