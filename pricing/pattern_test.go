package pricing

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"", "", true},
		{"a", "a", true},
		{"a", "b", false},
		{"*", "", true},
		{"a*", "b*", false},
		{"a*", "*b", true},
		{"a*c", "ab*", true},
		{"*a", "*b", false},
		{"a*b*c", "*x*", true},
		{"claude-*", "gpt-4o*", false},
		{"ab*", "*ba", true},
		{"a*a", "a", false},
	} {
		assert.Equal(t, test.want, overlap(test.a, test.b), "%q, %q", test.a, test.b)
		assert.Equal(t, test.want, overlap(test.b, test.a), "%q, %q", test.b, test.a)
	}
}
