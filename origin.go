package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// An originPolicy decides which web pages may use a server that needs no key. Without a key
// that they do not know, nothing else keeps pages of other sites from using a server
// that the user of the browser can reach, such as one on localhost. A browser sends
//
//   - a POST without Content-Type, or with one that is not application/json, without
//     asking the server (https://fetch.spec.whatwg.org/#cors-safelisted-method and
//     #cors-safelisted-request-header);
//   - the Origin of the page with every POST, and with requests whose reply the page may
//     read; Sec-Fetch-Site with all requests to https and to loopback;
//   - any request to a name that a site has rebound to the address of the server, with that
//     name as Host and in Origin.
//
// A program that is not a browser can send what it likes, and needs no page to do so.
type originPolicy struct {
	any      bool     // every page is trusted
	trusted  []string // origins in lower case
	hosts    []string // host names of trusted
	hostname string   // of this machine, in lower case; may be empty
}

// newOriginPolicy returns the policy for Options.TrustedOrigins. It panics if one of them
// is malformed.
func newOriginPolicy(trusted []string) originPolicy {
	hostname, _ := os.Hostname()
	p := originPolicy{hostname: strings.ToLower(hostname)}
	for _, origin := range trusted {
		if origin == "*" {
			p.any = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(u.Scheme)+origin[len(u.Scheme):] {
			panic("llmhttp: Options.TrustedOrigins must have schemes and hosts, such as https://app.example.com: " + origin)
		}
		p.trusted = append(p.trusted, strings.ToLower(origin))
		p.hosts = append(p.hosts, strings.ToLower(u.Hostname()))
	}
	return p
}

// An originProblem says why a request may come from a web page that is not trusted.
type originProblem int

const (
	originAllowed originProblem = iota
	foreignHost
	foreignOrigin
	noContentType
)

// check returns the problem of r, if there is one. hasSecret tells whether r has a header
// with a secret, which a browser does not send without asking the server.
func (p *originPolicy) check(r *http.Request, hasSecret bool) originProblem {
	origins := r.Header["Origin"]
	switch {
	case p.any:
		return originAllowed
	case !p.isOwnHost(r.Host):
		return foreignHost
	case len(origins) == 1 && p.isTrusted(origins[0], r.Host):
		return originAllowed
	case len(origins) > 0, r.Header.Get("Sec-Fetch-Site") == "cross-site":
		return foreignOrigin
	case r.Method == http.MethodPost && r.Header.Get("Content-Type") == "" && !hasSecret:
		return noContentType
	}
	return originAllowed
}

// refuse returns the *Error for r.
func (p originProblem) refuse(r *http.Request) error {
	switch p {
	case foreignHost:
		return Errorf(
			http.StatusForbidden,
			"host_not_allowed",
			"Requests to the host '%s' are not allowed, because this server needs no API key and none of its trusted origins has that host.",
			echo(r.Host),
		)
	case noContentType:
		return Errorf(
			http.StatusUnsupportedMediaType,
			"unsupported_media_type",
			"Missing content type. This API only accepts 'application/json'. The header 'Content-Type' is required, because this server needs no API key.",
		)
	}
	origin := cmp.Or(strings.Join(r.Header["Origin"], ", "), "another site")
	return Errorf(
		http.StatusForbidden,
		"origin_not_allowed",
		"Requests of web pages of '%s' are not allowed, because this server needs no API key and that is none of its trusted origins.",
		echo(origin),
	)
}

// isOwnHost reports whether a request to host, which may have a port, was meant for this
// server. That is so for an address, because a site cannot rebind it, and for example.com,
// which is reserved (RFC 2606) and the host of requests of package httptest.
func (p *originPolicy) isOwnHost(host string) bool {
	name := hostName(host)
	if name == "" || name == "example.com" || isLoopback(name) || slices.Contains(p.hosts, name) {
		return true
	}
	_, isAddress := parseAddress(name)
	return isAddress || name == p.hostname || strings.TrimSuffix(name, ".local") == p.hostname
}

// isTrusted reports whether an origin is that of host, is on the same machine, or is in
// Options.TrustedOrigins.
func (p *originPolicy) isTrusted(origin, host string) bool {
	origin = strings.ToLower(origin)
	scheme, at, _ := strings.Cut(origin, "://")
	isPage := scheme == "http" || scheme == "https"
	switch {
	case isPage && at == strings.ToLower(host):
		return true
	case isPage && isLoopback(hostName(at)) && isLoopback(hostName(host)):
		return true
	}
	return slices.Contains(p.trusted, origin)
}

// hostName returns host in lower case and without its port, the brackets of an IPv6
// address, and the dot at the end of an absolute name.
func hostName(host string) string {
	u := url.URL{Host: strings.ToLower(host)}
	return strings.TrimSuffix(u.Hostname(), ".")
}

// parseAddress returns the IP address that name is. Only names that look like one are
// parsed, because the error for others is an allocation.
func parseAddress(name string) (addr netip.Addr, ok bool) {
	if last := name[len(name)-1]; !strings.Contains(name, ":") && (last < '0' || last > '9') {
		return addr, false
	}
	addr, err := netip.ParseAddr(name)
	return addr, err == nil
}

// isLoopback reports whether name is an address or a name of the loopback interface. Names
// below localhost are (RFC 6761, section 6.3).
func isLoopback(name string) bool {
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return name != ""
	}
	addr, ok := parseAddress(name)
	return ok && addr.Unmap().IsLoopback()
}

// checkOrigin refuses a request that may come from a web page which is not trusted, unless
// it has presented a secret that was needed to get key.
func (q *request) checkOrigin(key *Key, secret string) error {
	problem := q.h.origins.check(q.r, q.cred.get() != "")
	if problem == originAllowed || secret != Anonymous && q.h.anonymous.needsSecret(q.client.Context(), q.h.keys, key) {
		return nil
	}
	return problem.refuse(q.r)
}

// anonymousLifetime is how long an anonymousKey is used.
const anonymousLifetime = time.Minute

// An anonymousCache caches what requests without the right secret get, so that only one
// request a minute looks it up: on a server whose name is not known, every request with a
// secret asks for it.
type anonymousCache struct {
	current    atomic.Pointer[anonymousKey]
	refreshing atomic.Bool
}

// An anonymousKey is what requests without the right secret get.
type anonymousKey struct {
	ids   []string // the IDs of the Keys of requests without a secret, and with an unknown one
	any   bool     // each secret has a Key of its own
	until time.Time
}

// needsSecret reports whether a request needed the right secret to get key: without one, or
// with any other, it would not have got it. If the store fails, it assumes what the store
// said before, or that a secret was needed.
func (c *anonymousCache) needsSecret(ctx context.Context, keys KeyStore, key *Key) bool {
	a := c.current.Load()
	if a == nil || time.Now().After(a.until) && c.refreshing.CompareAndSwap(false, true) {
		defer c.refreshing.Store(false)
		a = lookUpAnonymous(ctx, keys, a)
		c.current.Store(a)
	}
	return a == nil || !a.any && !slices.Contains(a.ids, key.ID)
}

// lookUpAnonymous returns what requests without the right secret get. If the store fails, it
// returns previous, which may be nil, with a new lifetime.
func lookUpAnonymous(ctx context.Context, keys KeyStore, previous *anonymousKey) *anonymousKey {
	a := anonymousKey{until: time.Now().Add(anonymousLifetime)}
	for _, secret := range []string{Anonymous, NewSecret("sk-"), NewSecret("sk-")} {
		found, err := keys.Lookup(ctx, secret)
		_, refused := errors.AsType[*Error](err)
		switch {
		case err == nil && found != nil:
			a.ids = append(a.ids, found.ID)
		case refused || errors.Is(err, ErrKeyNotFound):
		case previous == nil:
			return nil
		default:
			a.ids, a.any = previous.ids, previous.any
			return &a
		}
	}
	n := len(a.ids)
	a.any = n > 1 && a.ids[n-1] != a.ids[n-2] // of the two unknown secrets
	return &a
}
