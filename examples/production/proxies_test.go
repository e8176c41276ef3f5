package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNetworks(t *testing.T) {
	var n networks
	require.NoError(t, n.Set("10.0.0.0/8, 192.0.2.7"))
	require.NoError(t, n.Set("2001:db8::/32 fe80::1%eth0"))
	assert.Equal(t, "10.0.0.0/8 192.0.2.7/32 2001:db8::/32 fe80::1/128", n.String())
	for remote, want := range map[string]bool{
		"10.1.2.3:1": true, "[::ffff:10.1.2.3]:1": true, "11.0.0.0:1": false,
		"192.0.2.7:1": true, "192.0.2.8:1": false,
		"[2001:db8::1]:1": true, "[2001:db9::1]:1": false, "[fe80::1%eth1]:1": true,
		"10.1.2.3": false, "": false, "@": false, // no address, as of a Unix socket
	} {
		assert.Equal(t, want, n.sent(&http.Request{RemoteAddr: remote}), remote)
	}
	assert.False(t, networks(nil).sent(&http.Request{RemoteAddr: "127.0.0.1:1"}))
	for _, s := range []string{"proxy", "10.0.0.0/33", "10.0.0.1:80"} {
		assert.Error(t, n.Set(s), s)
	}
}

// Behind load balancers that -trusted-proxies names, the log has the address of each client, and
// what requests cost.
func TestRequestLog_TrustedProxies(t *testing.T) {
	dsn := t.TempDir() + "/llmhttp.db"
	p := start(t, newCommand(nil, "-demo", "-dsn", dsn, "-prices", "testdata/prices.json", "-trusted-proxies", "127.0.0.0/8"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+chatPath, strings.NewReader(chatBody(false, 1)))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+createKey(t, dsn).Secret)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	p.awaitOutput(t, `"client":"203.0.113.7"`)
	p.awaitOutput(t, `"cost":"0.0`)
}
