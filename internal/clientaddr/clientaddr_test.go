package clientaddr

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProxies_ClientAddr(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32")}
	for _, test := range []struct {
		remote string
		header []string
		want   string
	}{
		{"203.0.113.5:1234", nil, "203.0.113.5"},
		{"203.0.113.5:1234", []string{"198.51.100.1"}, "203.0.113.5"}, // not from a proxy
		{"10.1.2.3:1234", nil, "10.1.2.3"},
		{"10.1.2.3:1234", []string{""}, "10.1.2.3"},
		{"10.1.2.3:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.1.2.3]:1234", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"198.51.100.9, 198.51.100.1"}, "198.51.100.1"}, // the first is what the client claims
		{"10.1.2.3:1234", []string{"198.51.100.9", "198.51.100.1,10.9.9.9"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"198.51.100.1, 192.0.2.1 ,10.9.9.9"}, "198.51.100.1"},
		{"10.1.2.3:1234", []string{"10.0.0.1"}, "10.0.0.1"}, // only proxies
		{"10.1.2.3:1234", []string{"198.51.100.1, unknown"}, "10.1.2.3"},
		{"10.1.2.3:1234", []string{"unknown, 10.9.9.9"}, "10.9.9.9"},
		{"10.1.2.3:1234", []string{"198.51.100.1:5678"}, "198.51.100.1"},
		{"[fd00::1]:1234", []string{"[2001:db8:1:2:3::4]:5678"}, "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:3::4]:1234", nil, "2001:db8:1:2::/64"},
		{"@", []string{"198.51.100.1"}, "@"}, // a Unix socket
	} {
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{"X-Forwarded-For": test.header}}
		assert.Equal(t, test.want, proxies.ClientAddr(r), "%s %q", test.remote, test.header)
		assert.Equal(t, Proxies(nil).ClientAddr(r), Proxies{}.ClientAddr(&http.Request{RemoteAddr: test.remote}), test.remote)
	}
}

func TestProxies_RemoteAddr(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, test := range []struct{ remote, header, want string }{
		{"203.0.113.5:1234", "198.51.100.1", "203.0.113.5:1234"}, // not from a proxy
		{"10.1.2.3:1234", "", "10.1.2.3:1234"},
		{"10.1.2.3:1234", "unknown", "10.1.2.3:1234"},
		{"10.1.2.3:1234", "198.51.100.9, 198.51.100.1, 10.9.9.9", "198.51.100.1"},
		{"[::ffff:10.1.2.3]:1234", "198.51.100.1:5678", "198.51.100.1"},
		{"[fd00::1]:1234", "[2001:db8:1:2:3::4]:5678", "2001:db8:1:2:3::4"}, // the whole address
		{"@", "198.51.100.1", "@"},
	} {
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{"X-Forwarded-For": {test.header}}}
		assert.Equal(t, test.want, proxies.RemoteAddr(r), "%s %q", test.remote, test.header)
		assert.Equal(t, test.remote, Proxies(nil).RemoteAddr(r))
	}
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "": "", "a name": "a name", "::ffff:192.0.2.1": "::ffff:192.0.2.1",
		"2001:db8:1:2::/64": "2001:db8:1::/48", "2001:db8:1:2::3": "2001:db8:1::/48", "2001:db8:2:2::3": "2001:db8:2::/48",
	} {
		assert.Equal(t, want, Network(addr), addr)
	}
}

func TestIsLocal(t *testing.T) {
	for remote, local := range map[string]bool{"127.0.0.1:5000": true, "[::1]:5000": true, "10.0.0.7:5000": false, "@": false, "": false} {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/console/sign-in", nil)
		r.RemoteAddr = remote
		assert.Equal(t, local, IsLocal(r), remote)
	}
}
