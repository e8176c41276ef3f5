// Package upstream provides a [Backend] that has another server of the same
// API answer: a hosted one, a model server, or another host of llmhttp.
//
//	b, err := upstream.New("https://models.example.com/v1", &upstream.Options{Key: os.Getenv("MODELS_KEY")})
//	if err != nil {
//		log.Fatal(err)
//	}
//	h := llmhttp.NewHandler(b, keys, nil)
//
// # What passes
//
// Parameters that llmhttp does not know reach the server, and members that it
// does not know come back from it, at every level. Whole replies are asked for
// whole, and streams as streams; their usage is always asked for. The server
// never learns the key of the client, nor the client the name, the address or
// the key of the server. Clients have their own names of the models, in all
// that llmhttp knows of a reply; what a vendor adds to it passes untouched.
//
// # What servers get wrong
//
// A reply is read as what it is, whatever its Content-Type says: a stream that
// was not asked for, or a whole reply where a stream was. Members of a chat may
// be null, missing or of an odd type where that loses nothing. But a stream that
// ends with neither a finish_reason nor [DONE] is an error, and so is a reply
// that is cut, not JSON, too large, a redirect, or an error with the status 200.
//
// # Errors
//
// What is the client's to know becomes an [llmhttp.Error] of the same status:
// a 400, 413 or 422 with its message, param and code, a model that does not
// exist, a 429 with its Retry-After. Everything else is the operator's: the
// client is told 502, 503 or 504, and the cause is an [*Error], which is logged
// and in which neither keys nor addresses occur. There are no retries.
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
	"github.com/llmhttp/llmhttp/internal/lend"
)

// A Backend has a server answer. [New] makes one; the zero Backend is none. Its
// methods are safe for concurrent use.
type Backend struct {
	borrower
	opts      Options
	base      *url.URL
	header    http.Header // of every request
	scrub     scrubber
	transport http.RoundTripper
	pictures  http.RoundTripper
	owned     []*http.Transport // those made by New

	chat, images, embeddings, models *http.Request // as they are without a body
}

var (
	_ llmhttp.Backend        = (*Backend)(nil)
	_ llmhttp.ModelLister    = (*Backend)(nil)
	_ llmhttp.ImageGenerator = (*Backend)(nil)
	_ llmhttp.Embedder       = (*Backend)(nil)
)

// borrower says that a Backend keeps nothing of a request but what a body holds.
type borrower = lend.Borrower

// Options configure a [Backend], which keeps a copy. The zero value is ready to
// use.
type Options struct {
	// Name is what the server is called in errors, which are logged. If empty,
	// it is "upstream". Clients never see it.
	Name string

	// Key is sent as "Authorization: Bearer <Key>". If it is empty and there is
	// no KeyFunc, no such header is sent.
	Key string

	// KeyFunc returns the key for a request, for keys that change. It may be
	// called concurrently. If it fails, the client is told 502. Key must be
	// empty then.
	KeyFunc func(ctx context.Context) (string, error)

	// Header is sent with every request, such as a version or a key that is
	// not a Bearer's. Values of 8 bytes or more count as secrets: they are taken
	// out of errors.
	Header http.Header

	// RequestIDHeader is the header that carries the ID of the client's
	// request. If empty, it is X-Request-Id; "-" sends none.
	RequestIDHeader string

	// Transport makes the requests. It must follow no redirects, and may add
	// what is to be sent along, such as a traceparent. If nil, the Backend has a
	// [http.Transport] of its own, which keeps connections, and heeds the
	// proxies of the environment.
	//
	// When a Transport has closed the body of a large request, that memory is
	// used again. A request's GetBody fails when its reply has begun.
	Transport http.RoundTripper

	// Models says what the server calls a model, by the name that clients call
	// it. Clients see their own name, in replies, in errors and in the list of
	// models, whose entries lose most members that tell another. Models that
	// are not in it have the same name here and there.
	Models map[string]string

	// ConnectTimeout bounds connecting, and then the TLS handshake, unless there
	// is a Transport. Zero means 10 s, negative no bound.
	ConnectTimeout time.Duration

	// FirstByteTimeout is how long the server may take until the first byte of
	// a reply's body, connecting included. For a whole reply that is about as
	// long as the model needs for it. Zero means 5 minutes, negative no bound.
	FirstByteTimeout time.Duration

	// SilenceTimeout is how long the server may send nothing, not even a
	// comment, once it has begun. A connection of HTTP/2 on which nothing comes
	// for that long, not even the answer to a ping, is closed, unless there is a
	// Transport. Zero means a minute, negative no bound.
	SilenceTimeout time.Duration

	// MaxReply bounds a reply that is no stream, in bytes; zero or negative
	// means 64 MiB.
	MaxReply int64

	// MaxEvent bounds an event of a stream, in bytes; zero or negative means
	// 16 MiB.
	MaxEvent int64

	// OmitStreamOptions keeps stream_options from a server that refuses them.
	// Such servers report no usage of streams, so it is estimated.
	OmitStreamOptions bool

	// OmitImageFormat keeps response_format from requests for images, for
	// models that refuse it. Clients get the format they want all the same.
	OmitImageFormat bool

	// ImageHosts are the hosts from which images may be fetched that the server
	// only gives the address of: where clients want base64, and where the
	// address is the server's own. Each is a name, "*.example.com" for all
	// names below that one, or either with a port; without one, the scheme's
	// own is meant. If there are none, nothing is fetched, and such a request
	// fails.
	ImageHosts []string

	// ImageTransport fetches images. If nil, the Backend has a [http.Transport]
	// of its own for that, as Transport might add what is not for others.
	ImageTransport http.RoundTripper

	// ImageTimeout bounds fetching the images of a request. Zero or negative
	// means 30 s.
	ImageTimeout time.Duration

	// MaxImage bounds an image that is fetched, in bytes; zero or negative
	// means 32 MiB.
	MaxImage int64
}

// New returns a Backend over the server at baseURL, which is what clients of
// the API call so: "https://example.com/v1". A query in it is sent with every
// request.
//
// If opts is nil, it is as if it were zero. New fails if baseURL or an option
// is of no use; it does not call the server.
func New(baseURL string, opts *Options) (*Backend, error) {
	b := new(Backend)
	b.borrower = lend.NewBorrower(b)
	if opts != nil {
		b.opts = *opts
	}
	var err error
	if b.base, err = parseBase(baseURL); err != nil {
		return nil, err
	}
	if err := b.complete(); err != nil {
		return nil, err
	}
	b.header = make(http.Header, len(b.opts.Header)+2)
	b.header["User-Agent"] = []string{"llmhttp"}
	for name, values := range b.opts.Header {
		b.header[http.CanonicalHeaderKey(name)] = slices.Clip(slices.Clone(values)) // for who appends to them
	}
	b.opts.Header = nil
	if b.opts.Key != "" {
		b.header["Authorization"] = []string{"Bearer " + b.opts.Key}
	}
	b.scrub = newScrubber(b.base, b.opts.Key, b.header)
	b.transport, b.pictures = b.opts.Transport, b.opts.ImageTransport
	if b.transport == nil {
		b.transport = b.newTransport()
	}
	if b.pictures == nil {
		b.pictures = b.newTransport()
	}
	for _, e := range []struct {
		request      **http.Request
		method, path string
	}{
		{&b.chat, http.MethodPost, "chat/completions"},
		{&b.images, http.MethodPost, "images/generations"},
		{&b.embeddings, http.MethodPost, "embeddings"},
		{&b.models, http.MethodGet, "models"},
	} {
		r, err := http.NewRequest(e.method, b.base.JoinPath(e.path).String(), nil)
		if err != nil {
			return nil, errors.New("upstream: the base URL is not valid")
		}
		*e.request = r
	}
	return b, nil
}

// parseBase parses a base URL. Its errors do not repeat it: it may hold a
// password.
func parseBase(s string) (*url.URL, error) {
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
	return u, nil
}

// complete checks the options and fills in what they leave open.
func (b *Backend) complete() error {
	o := &b.opts
	o.Name = cmp.Or(o.Name, "upstream")
	if o.Key != "" && o.KeyFunc != nil {
		return errors.New("upstream: Options.Key and Options.KeyFunc are both set")
	}
	if !isToken(o.Key) {
		return errors.New("upstream: Options.Key has a character that no header may have, such as a space or a line break")
	}
	for name, values := range o.Header {
		switch name = http.CanonicalHeaderKey(name); {
		case !isHeaderName(name):
			return fmt.Errorf("upstream: Options.Header has the name %q, which no header may have", name)
		case slices.Contains(reservedHeaders, name):
			return fmt.Errorf("upstream: Options.Header must not have %s, which is the Backend's to set", name)
		case name == "Authorization" && (o.Key != "" || o.KeyFunc != nil):
			return errors.New("upstream: Options.Header has Authorization, and there is a key as well")
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("upstream: Options.Header has a control character in %s", name)
			}
		}
	}
	switch o.RequestIDHeader {
	case "":
		o.RequestIDHeader = "X-Request-Id"
	case "-":
		o.RequestIDHeader = ""
	default:
		o.RequestIDHeader = http.CanonicalHeaderKey(o.RequestIDHeader)
		if !isHeaderName(o.RequestIDHeader) || slices.Contains(reservedHeaders, o.RequestIDHeader) || o.RequestIDHeader == "Authorization" {
			return fmt.Errorf("upstream: Options.RequestIDHeader must not be %q", o.RequestIDHeader)
		}
	}
	for ours, theirs := range o.Models {
		if ours == "" || theirs == "" {
			return errors.New("upstream: Options.Models has an empty name")
		}
	}
	o.Models = maps.Clone(o.Models)
	o.ImageHosts = slices.Clone(o.ImageHosts)
	for _, pattern := range o.ImageHosts {
		if !isHostPattern(pattern) {
			return fmt.Errorf("upstream: Options.ImageHosts has %q, which is not a host", pattern)
		}
	}
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.FirstByteTimeout = min(cmp.Or(o.FirstByteTimeout, 5*time.Minute), forever)
	o.SilenceTimeout = min(cmp.Or(o.SilenceTimeout, time.Minute), forever)
	o.MaxReply = orDefault(o.MaxReply, 64<<20)
	o.MaxEvent = orDefault(o.MaxEvent, 16<<20)
	o.MaxImage = min(orDefault(o.MaxImage, 32<<20), math.MaxInt64-1) // a byte more is asked for
	o.ImageTimeout = orDefault(o.ImageTimeout, 30*time.Second)
	return nil
}

// forever is longer than any process runs, and can be added to any time.
const forever = 100 * 365 * 24 * time.Hour

func orDefault[T ~int64](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// reservedHeaders depend on what is sent, and how.
var reservedHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// isToken reports whether s may follow "Bearer ".
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// idleConns is how many connections wait for the next request. What
// [http.DefaultTransport] keeps, two, makes most requests of a busy gateway
// connect anew.
const idleConns = 1024

func (b *Backend) newTransport() *http.Transport {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer(&net.Dialer{Timeout: max(b.opts.ConnectTimeout, 0)}),
		TLSHandshakeTimeout:    max(b.opts.ConnectTimeout, 0),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // it would keep chunks back
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	if d := b.opts.SilenceTimeout; d > 0 {
		// A server whose model thinks answers pings all the same.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: d / 2, PingTimeout: d / 2}
	}
	b.owned = append(b.owned, t)
	return t
}

// CloseIdleConnections closes the connections that the Backend keeps and does
// not use, as far as they are not those of Options.Transport or
// Options.ImageTransport. The Backend may be used again after it.
func (b *Backend) CloseIdleConnections() {
	for _, t := range b.owned {
		t.CloseIdleConnections()
	}
}

// serverModel returns what the server calls a model.
func (b *Backend) serverModel(id string) string {
	if theirs, ok := b.opts.Models[id]; ok {
		return theirs
	}
	return id
}
