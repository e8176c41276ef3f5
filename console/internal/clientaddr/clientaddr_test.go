package clientaddr

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClient(t *testing.T) {
	for addr, want := range map[string]string{
		"203.0.113.5:1234": "203.0.113.5", "203.0.113.5": "203.0.113.5", "[::ffff:10.1.2.3]:1234": "10.1.2.3",
		"[2001:db8:1:2:3::4]:1234": "2001:db8:1:2::/64", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "[fe80::1%eth0]:1234": "fe80::/64",
		"@": "@", // a Unix socket
		"":  "",
	} {
		assert.Equal(t, want, Client(addr), addr)
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
