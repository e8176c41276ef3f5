package llmhttp

import (
	"strings"
	"testing"
)

func FuzzBearer(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer sk-1", "bearer sk-1", "BEARER  sk-1 ", "Basic dXNlcjpw", "sk-1",
		"Bearer a b", "Bearer \t", "Bearer\tsk-1", " Bearer sk-1", "Bearer ü", "Bearer \xff", "Bearer sk\x00", "Bearer \x7f",
		"Bearer " + strings.Repeat("x", maxSecret), "Bearer " + strings.Repeat("x", maxSecret+1), "bEaReR \u212a", "Bearer, Bearer x"} {
		f.Add(s, "", false)
		f.Add(s, s, true)
	}
	f.Fuzz(func(t *testing.T, header, other string, two bool) {
		headers := []string{header}
		if two {
			headers = append(headers, other)
		}
		secret, err := bearer(headers)
		if (secret == "") == (err == nil) {
			t.Fatalf("bearer(%q) = %q, %v: want a secret or an error", headers, secret, err)
		}
		if err != nil {
			if err.Status != 401 || err.Message == "" || strings.Contains(err.Message, "%") {
				t.Fatalf("bearer(%q) = %#v", headers, err)
			}
			if err != errNoKey && err != errBadKey {
				t.Fatalf("bearer(%q) says what is wrong with the key: %v", headers, err)
			}
			return
		}
		if two {
			t.Fatalf("bearer(%q) chose one of two", headers)
		}
		if len(secret) > maxSecret || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("bearer(%q) = %q", headers, secret)
		}
		scheme, rest, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "bearer") || len(scheme) != 6 || strings.Trim(rest, " ") != secret {
			t.Fatalf("bearer(%q) = %q", headers, secret)
		}
		again, err := bearer([]string{"Bearer " + secret})
		if err != nil || again != secret {
			t.Fatalf("bearer(%q) = %q, but again %q, %v", headers, secret, again, err)
		}
	})
}
