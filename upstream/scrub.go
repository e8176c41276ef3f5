package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode"
)

const redacted = "[redacted]"

// A scrubber takes out of texts what neither clients nor logs may learn.
type scrubber struct{ known *regexp.Regexp }

// shortValue is how long a secret is at least. Shorter ones would be found
// everywhere, and those of headers and queries need not be secrets.
const shortValue = 8

func newScrubber(base *url.URL, key string, header http.Header) scrubber {
	type known struct {
		text  string
		place bool // a name or address of the server, whoever writes it
	}
	var list []known
	secret := func(value string) {
		// Texts are scrubbed in one line. A server may repeat a secret as it
		// was written in its URL.
		for _, form := range []string{oneLine(value, math.MaxInt), url.QueryEscape(value), url.PathEscape(value)} {
			if len(value) >= shortValue && len(form) >= shortValue {
				list = append(list, known{form, false})
			}
		}
	}
	secret(key)
	for name, values := range header {
		for _, value := range values {
			if name == "User-Agent" {
				continue
			}
			secret(value)
			if _, credentials, ok := strings.Cut(value, " "); ok && name == "Authorization" {
				secret(credentials)
			}
		}
	}
	for _, values := range base.Query() {
		for _, value := range values {
			secret(value)
		}
	}
	for pair := range strings.SplitSeq(base.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		secret(value)
	}
	places := []string{base.String(), base.Scheme + "://" + base.Host}
	if base.Port() != "" {
		places = append(places, base.Host)
	}
	if name := hostOf(base); strings.ContainsAny(name, ".:") { // another may be any word
		places = append(places, name)
	}
	for _, place := range places {
		list = append(list, known{place, true})
	}
	// The longest first, as they contain others.
	slices.SortFunc(list, func(a, b known) int { return cmp.Or(len(b.text)-len(a.text), cmp.Compare(a.text, b.text)) })
	var patterns []string
	for _, k := range slices.Compact(list) {
		pattern := regexp.QuoteMeta(k.text)
		if k.place {
			pattern = "(?i:" + pattern + ")"
		}
		patterns = append(patterns, pattern)
	}
	return scrubber{regexp.MustCompile(strings.Join(patterns, "|"))}
}

// These are what keys and addresses look like, of whomever they are.
var (
	addressPattern = regexp.MustCompile(`\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}\b(:\d+)?|\blocalhost(:\d+)?\b`)
	keyPattern     = regexp.MustCompile(`\b(sk|pk|rk|gsk|xai|org|proj)[-_][\w*.-]{6,}|(Bearer |Basic )[^\s"',]+|[^\s"',;:()]*\*{3,}[^\s"',;:()]*`)
)

// text returns s without keys and addresses. The key is one that the scrubber
// does not know, or empty.
func (s *scrubber) text(text, key string) string {
	text = s.drop(text, key)
	text = keyPattern.ReplaceAllStringFunc(text, func(match string) string {
		if !strings.ContainsAny(match, "0123456789*") {
			return match // a word
		}
		return redacted
	})
	return addressPattern.ReplaceAllString(text, redacted)
}

// drop takes out what is known to be a secret or a place.
func (s *scrubber) drop(text, key string) string {
	if len(key) >= shortValue {
		text = strings.ReplaceAll(text, key, redacted)
	}
	return s.known.ReplaceAllLiteralString(text, redacted)
}

// name is to the name of a parameter or an error what text is to texts. What is
// written like a name is not taken for a key or an address.
func (s *scrubber) name(name, key string) string {
	if namePattern.MatchString(name) {
		return s.drop(name, key)
	}
	return s.text(name, key)
}

var namePattern = regexp.MustCompile(`^[a-z_]+([_.][a-z0-9_]+|\[\d+\])*$`)

// oneLine returns s with its space and control characters as single spaces,
// cut to about n bytes.
func oneLine(s string, n int) string {
	var b strings.Builder
	for i, word := range strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		if b.Len()+len(word) >= n {
			b.WriteString("...")
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// transportText says what went wrong with a connection. The errors of package
// net name addresses, so only what they wrap is told.
func transportText(err error) string {
	var (
		dns       *net.DNSError
		op        *net.OpError
		errno     syscall.Errno
		alert     tls.AlertError
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		netErr    net.Error
	)
	switch {
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "no such host"
		}
		return "the host's name could not be looked up"
	case errors.As(err, &hostname):
		return "the certificate is for another host"
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &alert):
		return alert.Error()
	case errors.As(err, &errno):
		text := errno.Error()
		if errors.As(err, &op) {
			text = op.Op + ": " + text
		}
		return text
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection was closed before the reply was complete"
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	case errors.As(err, &netErr) && netErr.Timeout():
		return "it took too long"
	}
	text := err.Error()
	for _, marker := range []string{"malformed HTTP", "malformed chunked", "malformed MIME", "invalid byte in chunk", "chunked encoding", "chunk length", "bad status line", "http2: "} {
		if strings.Contains(text, marker) {
			return "the reply is not HTTP as it should be" // the rest may be anything
		}
	}
	if strings.Contains(text, "server gave HTTP response to HTTPS client") {
		return "the server does not speak TLS"
	}
	return oneLine(text, 200)
}
