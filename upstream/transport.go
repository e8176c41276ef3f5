// The http.Transport of a Backend.

package upstream

import (
	"cmp"
	"net"
	"net/http"
	"time"
)

// maxIdleConns is how many idle connections are kept. [http.DefaultTransport] keeps two for each
// host, so a busy gateway would open a new connection for most requests.
const maxIdleConns = 1024

// TransportOptions configure [NewTransport]. The zero value is ready to use.
type TransportOptions struct {
	// ConnectTimeout is the timeout for connecting, and again for the TLS handshake. Zero
	// means 10 seconds; negative means no timeout.
	ConnectTimeout time.Duration

	// IdleTimeout is the time after which an HTTP/2 connection with a request is closed if
	// nothing arrives on it, not even the reply to a ping. Zero means one minute; negative
	// means no timeout.
	IdleTimeout time.Duration
}

const (
	defaultConnectTimeout = 10 * time.Second
	defaultIdleTimeout    = time.Minute
)

// NewTransport returns a transport that keeps connections alive and uses the
// proxies of the environment. Nil opts mean the zero TransportOptions. A Backend has such a
// transport unless Options.Transport is set, for example to a wrapper of it.
func NewTransport(opts *TransportOptions) *http.Transport {
	var o TransportOptions
	if opts != nil {
		o = *opts
	}
	connectTimeout := max(cmp.Or(o.ConnectTimeout, defaultConnectTimeout), 0) // a net.Dialer has no timeout if it is zero
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
	if d := cmp.Or(o.IdleTimeout, defaultIdleTimeout); d > 0 {
		// A server answers pings also while its model computes a reply.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: d / 2, PingTimeout: d / 2}
	}
	return t
}

// ownTransport returns a transport that CloseIdleConnections closes.
func (b *Backend) ownTransport() *http.Transport {
	t := NewTransport(&TransportOptions{ConnectTimeout: b.opts.ConnectTimeout, IdleTimeout: b.opts.IdleTimeout})
	b.owned = append(b.owned, t)
	return t
}

// CloseIdleConnections closes the idle connections of the transports that New created. It does not
// affect Options.Transport and Options.Images.Transport. The Backend remains usable.
func (b *Backend) CloseIdleConnections() {
	for _, t := range b.owned {
		t.CloseIdleConnections()
	}
}
