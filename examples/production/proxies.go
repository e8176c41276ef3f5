package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// networks are the addresses of proxies, such as load balancers, whose headers about
// requests are believed: X-Forwarded-For by the log and the console, and traceparent. It is a
// [flag.Value].
type networks []netip.Prefix

func (n *networks) String() string {
	texts := make([]string, len(*n))
	for i, p := range *n {
		texts[i] = p.String()
	}
	return strings.Join(texts, " ")
}

// Set adds networks, such as 10.0.0.0/8, and single addresses. They are separated by
// commas or spaces.
func (n *networks) Set(s string) error {
	for _, text := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(text)
		if a, e := netip.ParseAddr(text); e == nil {
			p, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		*n = append(*n, p)
	}
	return nil
}

// sent reports whether a proxy of the networks sent the request: the address of the
// connection is in one of them.
func (n networks) sent(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	a := remote.Addr().Unmap().WithZone("")
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
