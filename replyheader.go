package llmhttp

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// A headerField is a header of a reply that the host sets. The name is canonical.
type headerField struct{ name, value string }

var (
	errNoRequest  = errors.New("llmhttp: SetReplyHeader: the context does not belong to a request of a Handler")
	errReplyBegun = errors.New("llmhttp: SetReplyHeader: the reply has begun")
)

// add implements SetReplyHeader.
func (f *replyFormat) add(field headerField) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun {
		return errReplyBegun
	}
	if f.added == nil {
		f.added = new([]headerField)
	}
	others := slices.DeleteFunc(*f.added, func(other headerField) bool { return other.name == field.name })
	*f.added = append(others, field)
	return nil
}

// ownHeaders are the headers that a host cannot set: those with which a Handler, a Protocol or
// net/http tells what the reply is and where it ends, and those of one connection.
var ownHeaders = map[string]bool{
	"Content-Type": true, "Content-Length": true, "Content-Encoding": true, "Content-Range": true, "Cache-Control": true,
	"Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Upgrade": true,
	"Date": true, "Allow": true, "Www-Authenticate": true, "Retry-After": true, "Retry-After-Ms": true, "X-Should-Retry": true,
	"X-Accel-Buffering": true, headerRequestID: true, "Request-Id": true, headerProcessing: true,
}

// ownPrefixes are the beginnings of the names of further such headers: limits, and trailers of
// net/http.
var ownPrefixes = []string{"X-Ratelimit-", "Anthropic-Ratelimit-", "Trailer:"}

// newHeaderField returns a field, or an error if a host cannot set it.
func newHeaderField(name, value string) (headerField, error) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	isOwn := func(prefix string) bool { return strings.HasPrefix(canonical, prefix) }
	switch {
	case ownHeaders[canonical], slices.ContainsFunc(ownPrefixes, isOwn):
		return headerField{}, fmt.Errorf("llmhttp: SetReplyHeader: the header %s is the Handler's", canonical)
	case name == "", strings.ContainsFunc(name, isNotInHeaderName):
		return headerField{}, errors.New("llmhttp: SetReplyHeader: the name is not that of a header")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return headerField{}, fmt.Errorf("llmhttp: SetReplyHeader: the value of %s has a control character", canonical)
	}
	return headerField{canonical, value}, nil
}

// isNotInHeaderName reports whether c is not a character of tokens (RFC 9110, section 5.6.2).
func isNotInHeaderName(c rune) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
