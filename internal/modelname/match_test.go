package modelname_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/modelname"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"a", "A", false},
		{"*", "", true},
		{"*", "a/b", true},
		{"a*", "a", true},
		{"a*", "ba", false},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "abbc", true},
		{"a*b*c", "acb", false},
		{"a*bc*c", "abc", false},
		{"**", "x", true},
		{"a.c", "abc", false},
	} {
		assert.Equal(t, test.want, modelname.Match(test.pattern, test.s), "%q, %q", test.pattern, test.s)
	}
}

// FuzzMatch compares Match with a regular expression.
func FuzzMatch(f *testing.F) {
	f.Add("a*b*", "aab")
	f.Add("*a*a", "aaa")
	f.Add("x*", "")
	f.Fuzz(func(t *testing.T, p, s string) {
		parts := strings.Split(p, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile(`(?s)\A` + strings.Join(parts, ".*") + `\z`)
		if err != nil {
			t.Skip("the pattern is not a valid regular expression")
		}
		if strings.ToValidUTF8(s, "") != s {
			t.Skip("regular expressions match characters, patterns bytes")
		}
		assert.Equal(t, re.MatchString(s), modelname.Match(p, s))
	})
}

func TestWildcard(t *testing.T) {
	for _, test := range []struct {
		pattern, s, want string
		ok               bool
	}{
		{"*", "", "", true},
		{"*", "a/b", "a/b", true},
		{"p/*", "p/x", "x", true},
		{"*-old", "x-old", "x", true},
		{"a*a", "aa", "", true},
		{"a*a", "axa", "x", true},
		{"a*a", "a", "", false},
		{"p/*", "q/x", "", false},
	} {
		text, ok := modelname.Wildcard(test.pattern, test.s)
		assert.Equal(t, test.want, text, "%q, %q", test.pattern, test.s)
		assert.Equal(t, test.ok, ok, "%q, %q", test.pattern, test.s)
	}
}
