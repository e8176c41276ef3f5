package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/redact"
)

// newRedactor returns a Redactor that removes from errors what neither clients nor logs
// may contain: the key, the values of the header and of the query of the base URL, and
// the address of the server.
func newRedactor(base *url.URL, key string, header http.Header) *redact.Redactor {
	secrets := []string{key}
	for name, values := range header {
		if name == "User-Agent" {
			continue
		}
		for _, value := range values {
			secrets = append(secrets, value, oneLine(value, len(value)+1)) // redactText gets texts that oneLine has changed
			if _, credentials, ok := strings.Cut(value, " "); ok && name == "Authorization" {
				secrets = append(secrets, credentials)
			}
		}
	}
	for _, values := range base.Query() {
		secrets = append(secrets, values...)
	}
	for pair := range strings.SplitSeq(base.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		secrets = append(secrets, value) // escaped as in the base URL
	}
	names := []string{base.String(), base.Scheme + "://" + base.Host}
	if base.Port() != "" {
		names = append(names, base.Host)
	}
	if host := hostOf(base); strings.ContainsAny(host, ".:") { // other host names may be ordinary words
		names = append(names, host)
	}
	return redact.New(secrets...).WithNames(names...)
}

// These match addresses and keys of any server. A server may forward an error of
// another server, which contains its address or key.
var (
	addressPattern = regexp.MustCompile(`\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}\b(:\d+)?|\blocalhost(:\d+)?\b`)
	keyPattern     = regexp.MustCompile(`\b(sk|pk|rk|gsk|xai|org|proj)[-_][\w*.-]{6,}|(Bearer |Basic )[^\s"',]+|[^\s"',;:()]*\*{3,}[^\s"',;:()]*`)
	namePattern    = regexp.MustCompile(`^[a-z_]+([_.][a-z0-9_]+|\[\d+\])*$`)
)

// redactText removes from text what r removes, and whatever looks like a key or an
// address.
func redactText(r *redact.Redactor, text string) string {
	text = keyPattern.ReplaceAllStringFunc(r.Text(text), func(match string) string {
		if !strings.ContainsAny(match, "0123456789*") {
			return match // a word with a hyphen
		}
		return redact.Placeholder
	})
	return addressPattern.ReplaceAllString(text, redact.Placeholder)
}

// redactName is like redactText for the code, type or param of an error, which
// may look like a key or an address: "org_id_missing", "localhost".
func redactName(r *redact.Redactor, name string) string {
	if namePattern.MatchString(name) {
		return r.Text(name)
	}
	return redactText(r, name)
}

// oneLine returns s with a single space in place of each sequence of white space
// and control characters, cut at a space before n bytes.
func oneLine(s string, n int) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		if b.Len()+len(word) >= n {
			b.WriteString("...")
			break
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// describeNetError describes an error of a connection without addresses. The texts of
// most errors of package net contain addresses, so it only describes known causes.
func describeNetError(err error) string {
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
		return "the host name could not be resolved"
	case errors.As(err, &hostname):
		return "the certificate is for another host"
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not use TLS"
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
		return "the request was canceled"
	case errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	}
	return describeText(err.Error())
}

// describeText describes an error of net/http that has no type of its own. Such
// errors may repeat what the server sent, which can be anything.
func describeText(text string) string {
	for _, part := range []string{"malformed HTTP", "malformed chunked", "malformed MIME", "invalid byte in chunk", "chunked encoding", "chunk length", "bad status line", "http2: "} {
		if strings.Contains(text, part) {
			return "the reply is not valid HTTP"
		}
	}
	if strings.Contains(text, "server gave HTTP response to HTTPS client") {
		return "the server does not use TLS"
	}
	return oneLine(text, 200)
}
