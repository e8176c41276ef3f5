package upstream

import (
	"net"
	"net/http"
	"time"
)

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
	connectTimeout := max(o.ConnectTimeout, 0) // a net.Dialer has no timeout if it is zero
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
