// Package forwarded finds the address of a client behind proxies.
package forwarded

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// RemoteAddr returns the address of the client for a request that a trusted proxy has sent, and
// r.RemoteAddr for all others.
func (p Proxies) RemoteAddr(r *http.Request) string {
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
func (p Proxies) forwardedFor(sender netip.Addr, header []string) netip.Addr {
	list := strings.Split(strings.Join(header, ","), ",")
	for i := len(list) - 1; i >= 0 && p.contain(sender); i-- {
		addr, ok := parseAddr(strings.TrimSpace(list[i]))
		if !ok {
			break
		}
		sender = addr
	}
	return sender
}

func (p Proxies) contain(addr netip.Addr) bool {
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

// WithoutPort returns the address of a client without its port.
func WithoutPort(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
