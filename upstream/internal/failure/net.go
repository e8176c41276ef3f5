// What is told of a broken connection, without addresses.

package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

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
	for _, part := range []string{
		"malformed HTTP", "malformed chunked", "malformed MIME", "invalid byte in chunk", "chunked encoding", "chunk length", "bad status line", "http2: ",
	} {
		if strings.Contains(text, part) {
			return "the reply is not valid HTTP"
		}
	}
	if strings.Contains(text, "server gave HTTP response to HTTPS client") {
		return "the server does not use TLS"
	}
	return oneLine(text, 200)
}
