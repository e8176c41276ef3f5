// Package clientaddr tells where requests come from.
package clientaddr

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Client returns the client with the given address, which may have a port: the address without its port. For an
// IPv6 address it returns the prefix of 64 bits, which usually belongs to one client.
func Client(remoteAddr string) string {
	addr, ok := parseAddr(remoteAddr)
	if !ok {
		return remoteAddr
	}
	if prefix, err := addr.Prefix(64); err == nil && addr.Is6() {
		return prefix.String()
	}
	return addr.String()
}

// Network returns the network of a client with the given address, which is a result of
// Client: for an IPv6 address, the prefix of 48 bits. Somebody who has one prefix
// of 64 bits often has all those of 48.
func Network(addr string) string {
	prefix, err := netip.ParsePrefix(addr)
	ip := prefix.Addr()
	if err != nil {
		ip, _ = netip.ParseAddr(addr)
	}
	if network, err := ip.Unmap().Prefix(48); err == nil && ip.Unmap().Is6() {
		return network.String()
	}
	return addr
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

// isLoopback reports whether host, which may have a port, names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// IsLocal reports whether a browser on this machine has sent r over the loopback interface without a proxy. The
// Host alone does not tell: proxies such as nginx send the address at which they reach the console, by default
// without any header of a proxy, but the Origin is still that of the page.
func IsLocal(r *http.Request) bool {
	sender, ok := parseAddr(r.RemoteAddr)
	if !ok || !sender.IsLoopback() || !isLoopback(r.Host) {
		return false
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(proxyHeaders, name) {
			return false
		}
	}
	for _, name := range []string{"Origin", "Referer"} {
		page := r.Header.Get(name)
		if u, err := url.Parse(page); page != "" && (err != nil || u.Scheme != "http" || !isLoopback(u.Host)) {
			return false
		}
	}
	return true
}

// proxyHeaders are the headers that proxies add, besides X-Forwarded-*.
var proxyHeaders = []string{"Forwarded", "Via", "X-Real-Ip", "X-Original-Host", "X-Original-Forwarded-For", "Cf-Connecting-Ip", "True-Client-Ip"}
