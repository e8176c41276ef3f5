package headertext

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Headers that a Handler sets for every reply.
const (
	RequestID  = "X-Request-Id"
	Processing = "Openai-Processing-Ms"
)

// ownHeaders are the headers that a host cannot set: those with which a Handler, a Protocol or
// net/http tells what the reply is and where it ends, and those of one connection.
var ownHeaders = map[string]bool{
	"Content-Type": true, "Content-Length": true, "Content-Encoding": true, "Content-Range": true, "Cache-Control": true,
	"Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Upgrade": true,
	"Date": true, "Allow": true, "Www-Authenticate": true, "Retry-After": true, "Retry-After-Ms": true, "X-Should-Retry": true,
	"X-Accel-Buffering": true, RequestID: true, "Request-Id": true, Processing: true,
}

// ownPrefixes are the beginnings of the names of further such headers: limits, and trailers of
// net/http.
var ownPrefixes = []string{"X-Ratelimit-", "Anthropic-Ratelimit-", "Trailer:"}

// ReplyField returns the canonical name of a header that a host sets for a reply, or an error if it cannot.
func ReplyField(name, value string) (canonical string, err error) {
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	isOwn := func(prefix string) bool { return strings.HasPrefix(canonical, prefix) }
	switch {
	case ownHeaders[canonical], slices.ContainsFunc(ownPrefixes, isOwn):
		return "", fmt.Errorf("the header %s is the Handler's", canonical)
	case name == "", strings.ContainsFunc(name, isNotInName):
		return "", errors.New("the name is not that of a header")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return "", fmt.Errorf("the value of %s has a control character", canonical)
	}
	return canonical, nil
}

// isNotInName reports whether c is not a character of tokens (RFC 9110, section 5.6.2).
func isNotInName(c rune) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
