package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRedactText(t *testing.T) {
	base, err := url.Parse("https://models.internal:8443/v1?code=a-query-secret&v=2")
	require.NoError(t, err)
	r := NewRedactor(base, "plain-secret", http.Header{
		"Api-Key": {"another-secret"}, "Version": {"beta"}, "User-Agent": {"something"},
		"X-Odd": {"se\xffcret \t of two  words"}, "X-Tenant": {"acme.models.internal.0a1b2c"}, "X-Like": {"models.internalabcd"}, "X-Pad": {"          ", "        b"},
	}).WithSecrets("of-this-call")
	for in, want := range map[string]string{
		"":                     "",
		"nothing to see, beta": "nothing to see, beta",
		"at https://models.internal:8443/v1?code=a-query-secret&v=2!":  "at [redacted]!",
		"models.internal:8443 and models.internal":                     "[redacted] and [redacted]",
		"HTTPS://Models.Internal:8443/v1, MODELS.INTERNAL.":            "[redacted]/v1, [redacted].",
		"the key plain-secret or another-secret or a-query-secret":     "the key [redacted] or [redacted] or [redacted]",
		"a se\ufffdcret of two words, acme.models.internal.0a1b2c":     "a [redacted], [redacted]",
		"models.internalabcd b":                                        "[redacted] b",
		"the key of-this-call":                                         "the key [redacted]",
		"dial tcp 10.1.2.3:80, [fe80::1%eth0]:443, [::1], localhost:5": "dial tcp [redacted], [redacted], [redacted], [redacted]",
		"keys sk-abc123def456, sk-proj-****wxyz and ab***********yz":   "keys [redacted], [redacted] and [redacted]",
		"in organization org-a1b2c3d4e5":                               "in organization [redacted]",
		"an org-chart-example, 12:30 and 3.14 of v1.2.3":               "an org-chart-example, 12:30 and 3.14 of v1.2.3",
		"Authorization: Bearer abc1":                                   "Authorization: [redacted]",
	} {
		assert.Equal(t, want, redactText(r, in))
	}
}

func TestRedactName(t *testing.T) {
	r := NewRedactor(&url.URL{Scheme: "https", Host: "models.internal"}, "max_tokens_1", nil)
	for in, want := range map[string]string{
		"messages[0].content": "messages[0].content",
		"localhost":           "localhost",
		"org_id_missing_1":    "org_id_missing_1",
		"max_tokens_1":        "[redacted]",
		"at localhost":        "at [redacted]",
	} {
		assert.Equal(t, want, redactName(r, in))
	}
}

func TestOneLine(t *testing.T) {
	assert.Equal(t, "a b c", oneLine(" a\r\n\tb\x00c ", 100))
	assert.Equal(t, "aaaa...", oneLine(strings.Repeat("aaaa ", 100), 8))
	assert.Equal(t, "...", oneLine(strings.Repeat("a", 100), 8))
	assert.Equal(t, "a\ufffdb", oneLine("a\xffb", 100))
}

func TestDescribe(t *testing.T) {
	const address = "10.1.2.3:443"
	addr, err := net.ResolveTCPAddr("tcp", address)
	require.NoError(t, err)
	op := func(name string, err error) error { return &net.OpError{Op: name, Net: "tcp", Addr: addr, Err: err} }
	for _, test := range []struct {
		err  error
		want string
	}{
		{op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "dial: connection refused"},
		{op("read", os.NewSyscallError("read", syscall.ECONNRESET)), "read: connection reset by peer"},
		{&url.Error{Op: "Post", URL: "http://" + address, Err: op("dial", &net.DNSError{Name: "models.internal", Server: "10.0.0.2:53", IsNotFound: true})}, "no such host"},
		{op("dial", &net.DNSError{Name: "models.internal", Server: "10.0.0.2:53", IsTimeout: true}), "the host name could not be resolved"},
		{op("dial", os.ErrDeadlineExceeded), "timeout"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "models.internal"}}, "the certificate is for another host"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "the certificate is signed by an unknown authority"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "the certificate is not valid"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "the server does not use TLS"},
		{errors.New("http: server gave HTTP response to HTTPS client"), "the server does not use TLS"},
		{fmt.Errorf("x: %w", io.ErrUnexpectedEOF), "the connection was closed before the reply was complete"},
		{io.EOF, "the connection was closed before the reply was complete"},
		{context.Canceled, "the request was canceled"},
		{context.DeadlineExceeded, "timeout"},
		{errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x00secret"`), "the reply is not valid HTTP"},
		{errors.New("something\nelse"), "something else"},
	} {
		assert.Equal(t, test.want, describeNetError(test.err))
	}
}
