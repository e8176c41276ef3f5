// The address of a client behind proxies.

package llmhttp

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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
	trusted := trustedProxies(slices.Clone(proxies))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clone := *r // because a handler must not modify the request
		clone.RemoteAddr = trusted.remoteAddr(r)
		defer func() { r.Pattern = clone.Pattern }() // for middleware around this handler, as ServeMux sets it
		h.ServeHTTP(w, &clone)
	})
}

// trustedProxies are the networks of proxies whose X-Forwarded-For is believed.
type trustedProxies []netip.Prefix

// remoteAddr returns the address of the client for a request that a trusted proxy has sent, and
// r.RemoteAddr for all others.
func (p trustedProxies) remoteAddr(r *http.Request) string {
	sender, ok := parseAddr(r.RemoteAddr)
	if !ok || !p.contain(sender) {
		return r.RemoteAddr
	}
	addr := p.forwardedFor(sender, r.Header.Values("X-Forwarded-For"))
	if addr == sender {
		return r.RemoteAddr
	}
	return addr.String()
}

// forwardedFor returns the address of the client for which the sender of a request with
// the header X-Forwarded-For has sent it. It follows the header from its end for as long
// as the addresses are those of proxies, because only proxies tell the truth.
func (p trustedProxies) forwardedFor(sender netip.Addr, header []string) netip.Addr {
	forwarded := strings.Split(strings.Join(header, ","), ",")
	for i := len(forwarded) - 1; i >= 0 && p.contain(sender); i-- {
		addr, ok := parseAddr(strings.TrimSpace(forwarded[i]))
		if !ok {
			break
		}
		sender = addr
	}
	return sender
}

func (p trustedProxies) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// parseAddr parses an address that may have a port.
func parseAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(s)
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}
