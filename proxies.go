// The address of a client behind proxies.

package llmhttp

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/llmhttp/llmhttp/internal/forwarded"
)

// TrustProxies returns a handler that calls h with the address of the client as RemoteAddr, for
// the log and for functions of the host, if one of proxies has sent the request. proxies are
// the addresses of the load balancers in front of the process. Each of them must append the
// address of its client to the header X-Forwarded-For: the client's address is the last one there that
// is not of proxies. It has no port. What else that header contains can be invented by the client, so
// it is not used; nor is the header of a request that others have sent.
//
// Handlers around the returned one get the address of the connection, for example to decide
// whether a proxy has sent a request. TrustProxies panics if one of proxies is not valid. It does not keep
// the slice.
func TrustProxies(h http.Handler, proxies []netip.Prefix) http.Handler {
	for i, p := range proxies {
		if !p.IsValid() {
			panic(fmt.Sprintf("llmhttp: TrustProxies: proxies[%d] is not valid", i))
		}
	}
	trusted := forwarded.Proxies(slices.Clone(proxies))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clone := *r // because a handler must not modify the request
		clone.RemoteAddr = trusted.RemoteAddr(r)
		defer func() { r.Pattern = clone.Pattern }() // for middleware around this handler, as ServeMux sets it
		h.ServeHTTP(w, &clone)
	})
}
