package pattern_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/pattern"
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
		assert.Equal(t, test.want, pattern.Match(test.pattern, test.s), "%q, %q", test.pattern, test.s)
	}
}

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
			t.Skip("not for a regular expression")
		}
		if strings.ToValidUTF8(s, "") != s {
			t.Skip("regular expressions see characters, patterns bytes")
		}
		assert.Equal(t, re.MatchString(s), pattern.Match(p, s))
	})
}
