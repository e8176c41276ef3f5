package llmhttp

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzBearerSecret checks that whatever a client sends, a secret that is looked
// up is well-formed and is exactly what follows the scheme.
func FuzzBearerSecret(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer sk-1", "bearer  sk-1 ", "Basic dXNlcg==", "Token x",
		"Bearer a b", "Bearer \t", "Bearer\tsk-1", " Bearer sk-1", "Bearer \u00fc", "Bearer \xff", "Bearer sk\x00", "Bearer \x7f",
		"Bearer " + strings.Repeat("x", maxSecret), "Bearer " + strings.Repeat("x", maxSecret+1), "bEaReR \u212a", "Bearer, Bearer x",
		"Bearer " + Anonymous} {
		f.Add(s, "", false)
		f.Add(s, s, true)
	}
	f.Fuzz(func(t *testing.T, header, other string, two bool) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"] = []string{header}
		if two {
			r.Header["Authorization"] = append(r.Header["Authorization"], other)
		}
		secret := BearerSecret(r)
		if secret == "" || !isWellFormed(secret) {
			return // no store is asked for it
		}
		if two {
			t.Fatalf("BearerSecret chose one of two headers: %q", r.Header["Authorization"])
		}
		if secret == Anonymous {
			t.Fatalf("%q presents Anonymous", header)
		}
		if len(secret) > maxSecret || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("the secret %q of %q is not well-formed", secret, header)
		}
		scheme, rest, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "bearer") || len(scheme) != 6 || strings.Trim(rest, " ") != secret {
			t.Fatalf("the secret %q is not that of %q", secret, header)
		}
	})
}
