// Removes keys and addresses from texts of errors.

package failure

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/llmhttp/llmhttp/internal/redact"
)

// NewRedactor returns a Redactor that removes from errors what neither clients nor logs
// may contain: the key, the values of the header and of the query of the base URL, and
// the address of the server.
func NewRedactor(base *url.URL, key string, header http.Header) *redact.Redactor {
	secrets := []string{key}
	for name, values := range header {
		if name == "User-Agent" {
			continue
		}
		for _, value := range values {
			secrets = append(secrets, value, oneLine(value, len(value)+1)) // many texts go through oneLine first
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
	if host := strings.TrimSuffix(strings.ToLower(base.Hostname()), "."); strings.ContainsAny(host, ".:") { // other host names may be ordinary words
		names = append(names, host)
	}
	return redact.New(secrets...).WithNames(names...)
}

// A server may forward an error of another server, which contains the address or key of
// that server. So addressPattern and keyPattern match the addresses and keys of all
// servers. namePattern matches codes, types and params that contain neither.
var (
	addressPattern = regexp.MustCompile(
		`\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}\b(:\d+)?|\blocalhost(:\d+)?\b`,
	)
	keyPattern = regexp.MustCompile(
		`\b(sk|pk|rk|gsk|xai|org|proj)[-_][\w*.-]{6,}|(Bearer |Basic )[^\s"',]+|[^\s"',;:()]*\*{3,}[^\s"',;:()]*`,
	)
	namePattern = regexp.MustCompile(`^[a-z_]+([_.][a-z0-9_]+|\[\d+\])*$`)
)

// redactText removes from text what r removes, and what looks like a key or an
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
