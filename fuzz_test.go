package llmhttp_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// FuzzBearer sends arbitrary Authorization headers. Each must cause one lookup of a
// secret that it contains, or an error that does not quote it.
func FuzzBearer(f *testing.F) {
	const maxSecret = 4096
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer sk-1", "bearer sk-1", "BEARER  sk-1 ", "Basic dXNlcjpw", "sk-1",
		"Bearer a b", "Bearer \t", "Bearer\tsk-1", " Bearer sk-1", "Bearer ü", "Bearer \xff", "Bearer sk\x00", "Bearer \x7f",
		"Bearer " + strings.Repeat("x", maxSecret), "Bearer " + strings.Repeat("x", maxSecret+1), "bEaReR \u212a", "Bearer, Bearer x", "Bearer " + llmhttp.Anonymous} {
		f.Add(s, "", false)
		f.Add(s, s, true)
	}
	var lookups []string
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != llmhttp.Anonymous {
			lookups = append(lookups, secret)
		}
		return nil, llmhttp.ErrKeyNotFound
	}), nil)
	lookup := func(t *testing.T, headers ...string) []string {
		lookups = nil
		r := newChatRequest(chatBody)
		r.Header["Authorization"] = headers
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		e := readReply(w.Result()).checkError(t, 401)
		if e.Code == "" {
			assert.True(t, strings.HasPrefix(e.Message, "You didn't provide an API key."), e.Message)
			assert.Empty(t, lookups)
		} else {
			assert.Equal(t, "Incorrect API key provided.", e.Message)
		}
		return lookups
	}
	f.Fuzz(func(t *testing.T, header, other string, two bool) {
		headers := []string{header}
		if two {
			headers = append(headers, other)
		}
		secrets := lookup(t, headers...)
		if len(secrets) == 0 {
			return
		}
		require.Len(t, secrets, 1)
		secret := secrets[0]
		require.False(t, two, "one of two headers was chosen")
		require.LessOrEqual(t, len(secret), maxSecret)
		require.False(t, strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }), "%q", secret)
		scheme, rest, _ := strings.Cut(header, " ")
		require.Len(t, scheme, len("bearer")) // EqualFold alone would accept other letters
		require.True(t, strings.EqualFold(scheme, "bearer"))
		require.Equal(t, strings.Trim(rest, " "), secret)
		require.Equal(t, []string{secret}, lookup(t, "Bearer "+secret))
	})
}
