// Package origin decides which web pages may use a server that needs no key.
package origin

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// A Policy decides which web pages may use a server that needs no key. Without a key
// that they do not know, nothing else keeps pages of other sites from using a server
// that the user of the browser can reach, such as one on localhost.
type Policy struct {
	any   bool // every page is trusted
	cross http.CrossOriginProtection
	hosts []string // host names of this machine and of trusted origins, in lower case
}

// NewPolicy returns the Policy that trusts some origins, such as "https://app.example.com"; "*" trusts every
// page. The error, which has no prefix, names one that is malformed.
func NewPolicy(trusted []string) (*Policy, error) {
	p := new(Policy)
	if name, err := os.Hostname(); err == nil {
		name = strings.ToLower(name)
		p.hosts = append(p.hosts, name, name+".local")
	}
	for _, origin := range trusted {
		if origin == "*" {
			p.any = true
			continue
		}
		origin = strings.ToLower(origin) // as browsers send it
		u, err := url.Parse(origin)
		if err != nil || u.User != nil || p.cross.AddTrustedOrigin(origin) != nil {
			return nil, errors.New("must have schemes and hosts, such as https://app.example.com: " + origin)
		}
		p.hosts = append(p.hosts, u.Hostname())
	}
	return p, nil
}

// Check returns an *llm.Error if r may come from a web page that is not trusted.
func (p *Policy) Check(r *http.Request) error {
	switch {
	case p.any:
		return nil
	case (isFromBrowser(r) || isToLoopback(r)) && !p.isKnownHost(r.Host): // the cheaper question first
		return llm.Errorf(
			http.StatusForbidden,
			"host_not_allowed",
			"Requests to the host '%s' are not allowed, because this server needs no API key and none of its trusted origins has that host.",
			param.Echo(r.Host),
		)
	case p.cross.Check(r) != nil:
		origin := r.Header.Get("Origin")
		if origin == "" {
			origin = "another site"
		}
		return llm.Errorf(
			http.StatusForbidden,
			"origin_not_allowed",
			"Requests of web pages of '%s' are not allowed, because this server needs no API key and that is none of its trusted origins.",
			param.Echo(origin),
		)
	}
	return nil
}

// isKnownHost reports whether host, which may have a port, names this server. A site cannot rebind
// an address, and no site can have a name below localhost (RFC 6761, section 6.3).
func (p *Policy) isKnownHost(host string) bool {
	u := url.URL{Host: strings.ToLower(host)}
	name := strings.TrimSuffix(u.Hostname(), ".")
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(p.hosts, name) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// isFromBrowser reports whether r has a header that browsers add and programs do not. The Origin of
// the page is in every POST. Sec-Fetch-Mode is not among them: Node.js sends it.
func isFromBrowser(r *http.Request) bool {
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Cookie"} {
		if _, ok := r.Header[name]; ok {
			return true
		}
	}
	return false
}

// isToLoopback reports whether r has arrived at an address that only this machine can reach. A
// browser does not mark a GET of a page to its own host, if that has no TLS.
func isToLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}
