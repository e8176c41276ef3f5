package console

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// clientAddr returns the function that returns the address of a client.
func (o *Options) clientAddr() func(*http.Request) string {
	if o.SignIn != nil && o.SignIn.ClientAddr != nil {
		return o.SignIn.ClientAddr
	}
	return remoteAddr
}

// remoteAddr returns the address of the client without its port. For an IPv6
// address it returns the prefix of 64 bits, which usually belongs to one client.
func remoteAddr(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := addr.Addr().Unmap()
	if ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
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
