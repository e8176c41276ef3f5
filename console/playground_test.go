package console_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/manage"
)

// A request of the playground has the address of the person's browser, also behind a proxy. The
// header that tells is not passed on.
func TestPlayground_ClientBehindAProxy(t *testing.T) {
	var addrs []string
	h := newHost(t, func(_ *host, o *console.Options) {
		api := o.API
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			addrs = append(addrs, r.RemoteAddr, r.Header.Get("X-Forwarded-For"))
			api.ServeHTTP(w, r)
		})
	})
	v := h.newAdmin(t)
	info, _ := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	v.header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
	assert.Equal(t, http.StatusOK, v.get("playground/models?key="+info.ID).status)
	assert.Equal(t, []string{"203.0.113.7", ""}, addrs)
}
