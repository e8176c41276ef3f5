package llmhttp_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

func TestTrustProxies_RemoteAddr(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32")}
	for _, test := range []struct {
		remote string
		header []string
		want   string
	}{
		{"203.0.113.5:1234", nil, "203.0.113.5:1234"},
		{"203.0.113.5:1234", []string{"198.51.100.1"}, "203.0.113.5:1234"}, // not from a proxy
		{"10.1.2.3:1234", nil, "10.1.2.3:1234"},
		{"10.1.2.3:1234", []string{""}, "10.1.2.3:1234"},
		{"10.1.2.3:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.1.2.3]:1234", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"198.51.100.9, 198.51.100.1"}, "198.51.100.1"}, // the first is what the client claims
		{"10.1.2.3:1234", []string{"198.51.100.9", "198.51.100.1,10.9.9.9"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"198.51.100.1, 192.0.2.1 ,10.9.9.9"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"10.0.0.1"}, "10.0.0.1"}, // only proxies
		{"10.1.2.3:1234", []string{"198.51.100.1, unknown"}, "10.1.2.3:1234"},
		{"10.1.2.3:1234", []string{"unknown, 10.9.9.9"}, "10.9.9.9"},
		{"10.1.2.3:1234", []string{"198.51.100.1:5678"}, "198.51.100.1"},
		{"[fd00::1]:1234", []string{"[2001:db8:1:2:3::4]:5678"}, "2001:db8:1:2:3::4"}, // the whole address
		{"[2001:db8:1:2:3::4]:1234", nil, "[2001:db8:1:2:3::4]:1234"},
		{"@", []string{"198.51.100.1"}, "@"}, // a Unix socket
	} {
		var got string
		seen := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{"X-Forwarded-For": test.header}}
		llmhttp.TrustProxies(seen, proxies).ServeHTTP(nil, r)
		assert.Equal(t, test.want, got, "%s %q", test.remote, test.header)
		llmhttp.TrustProxies(seen, nil).ServeHTTP(nil, r)
		assert.Equal(t, test.remote, got)
	}
}
