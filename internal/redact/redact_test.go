package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/redact"
)

func TestText(t *testing.T) {
	r := redact.New("sk-0123456789", "short", "sk-0123456789-longer", "abcabcabcd").WithNames("Models.internal", "h-1")
	for _, test := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"nothing to remove", "a text ...", "a text ..."},
		{"secret", "key sk-0123456789!", "key [redacted]!"},
		{"secret in another case", "SK-0123456789", "SK-0123456789"},
		{"secret of seven bytes or less", "a short text", "a short text"},
		{"secret that begins with another", "sk-0123456789-longer sk-0123456789-long", "[redacted] [redacted]-long"},
		{"adjacent secrets", "sk-0123456789sk-0123456789", "[redacted][redacted]"},
		{"overlapping secrets", "abcabcabcabcabcd", "abcabc[redacted]"},
		{"beginning of a secret", "sk-0123456", "sk-0123456"},
		{"clipped secret", "key sk-01234... and sk-0123...", "key [redacted] and sk-0123..."},
		{"clipped secret after another", "abcabcabcabcabcabca... abcabcabc...", "abcabcabcabcabcabca... [redacted]"},
		{"clipped secret that begins with another", "sk-0123456789-lo...", "[redacted]"},
		{"secret before three dots", "abcabcabcd...", "[redacted]..."},
		{"names in any case", "H-1 at MODELS.Internal:80, models.in...", "[redacted] at [redacted]:80, models.in..."},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, r.Text(test.in)) })
	}
}

func TestText_FindsEncodedSecrets(t *testing.T) {
	const secret = "~~~???a/b+c\"d<e\u00e9==" // has + and / in base64
	r := redact.New(secret)
	escaped, err := json.Marshal(secret)
	require.NoError(t, err)
	for name, form := range map[string]string{
		"plain":  secret,
		"Go":     fmt.Sprintf("%q", secret),
		"JSON":   string(escaped),
		"query":  url.QueryEscape(secret),
		"path":   url.PathEscape(secret),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)),
		"URL":    base64.URLEncoding.EncodeToString([]byte(secret)),

		"query in lower case":    regexp.MustCompile("%..").ReplaceAllStringFunc(url.QueryEscape(secret), strings.ToLower),
		"base64 in a query":      url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		"base64 in a path":       url.PathEscape(base64.RawStdEncoding.EncodeToString([]byte(secret))),
		"base64, escaped as %2b": strings.NewReplacer("+", "%2b", "/", "%2f").Replace(base64.RawStdEncoding.EncodeToString([]byte(secret))),
		"URL base64 in a query":  url.QueryEscape(base64.URLEncoding.EncodeToString([]byte(secret))),
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.ReplaceAll(r.Text("<"+form+">"), "%3D", "=") // the padding of base64 is not secret
			assert.Equal(t, redact.Placeholder, strings.Trim(got, `<>"=`))
		})
	}
}

func TestText_ClipsLongText(t *testing.T) {
	r := redact.New("sk-0123456789")
	long := strings.Repeat("x", redact.MaxText-9)
	assert.Equal(t, long+"[redacted]", r.Text(long+"sk-0123456789 and more"), "a secret that the cut divides")
	assert.Equal(t, long+"abcdefg...", (*redact.Redactor)(nil).Text(long+"abcdefg\u20ac and more"), "a character is not divided")
}

func TestWithSecrets_LeavesReceiverUnchanged(t *testing.T) {
	base := redact.New("first-secret")
	one, two := base.WithSecrets("second-secret"), base.WithSecrets("third-secret")
	const text = "first-secret second-secret third-secret"
	assert.Equal(t, "[redacted] second-secret third-secret", base.Text(text))
	assert.Equal(t, "[redacted] [redacted] third-secret", one.Text(text))
	assert.Equal(t, "[redacted] second-secret [redacted]", two.Text(text))
	assert.Equal(t, text, (*redact.Redactor)(nil).Text(text))
}

// Secrets and texts that repeat themselves are the worst case of a search.
func BenchmarkText(b *testing.B) {
	for name, secret := range map[string]string{"usual": "sk-0123456789abcdef", "repetitive": strings.Repeat("a", 4<<10) + "b"} {
		text := strings.Repeat("a", 32<<10) + strings.Repeat("aaaaaaaa...", 1<<10)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				redact.New(secret).Text(text)
			}
		})
	}
}

// Text removes what a naive search finds.
func FuzzText(f *testing.F) {
	f.Add("aabaabaab", "aabaabaabaabaab...aabaabaab")
	f.Add("sk-0123456789", "sk-012345678...")
	f.Fuzz(func(t *testing.T, secret, text string) {
		if len(secret) < redact.MinSecret || len(secret) > 100 || len(text) > 1000 || strings.Contains(redact.Placeholder, secret) {
			t.Skip("the secret is too short or too long, the text too long, or the placeholder contains the secret")
		}
		got := redact.New(secret).Text(text)
		rest := strings.ReplaceAll(got, redact.Placeholder, "\x00")
		if !strings.Contains(secret, "\x00") {
			assert.NotContains(t, rest, secret)
			for n := redact.MinSecret; n < len(secret); n++ {
				assert.NotContains(t, rest, secret[:n]+"...")
			}
		}
	})
}
