package membername

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

func TestFolded(t *testing.T) {
	known := []string{"model", "top_k", "messages"}
	for name, want := range map[string]string{
		"model":              "",
		"Model":              "model",
		"MODEL":              "model",
		"top_K":              "top_k",
		"top_\u212a":         "top_k",
		"me\u017f\u017fages": "messages",
		"ME\u017fSAGES":      "messages",
		"models":             "",
		"Models":             "",
		"top-k":              "",
		"topK":               "",
		"mod\u00e9l":         "",
		"\xff":               "",
		"":                   "",
	} {
		assert.Equal(t, want, Folded(name, known), "%q", name)
	}
}

// Only names that are not plain can equal a plain one without being identical.
func TestPlain(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		for _, known := range []string{"k", "s", "_", "4"} {
			if name := string(r); strings.EqualFold(name, known) && name != known {
				assert.False(t, Plain(name), "%q", name)
			}
		}
	}
	assert.True(t, Plain("b64_json"))
	assert.True(t, Plain([]byte("")))
}

// Two names have the same lower-case form exactly if they are equal under
// strings.EqualFold.
func TestLower(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		name, other := string(r), string(unicode.SimpleFold(r))
		assert.True(t, strings.EqualFold(name, Lower(name)), "%q", name)
		assert.Equal(t, Lower(name), Lower(other), "%q", name)
	}
	for name, want := range map[string]string{
		"MODELS": "models", "api_\u212aey": "api_key", "plugin\u017f": "plugins", "topK": "topk", "\u03a3\u03c2": "\u03c3\u03c3", "\u0130": "\u0130", "": "",
	} {
		assert.Equal(t, want, Lower(name), "%q", name)
	}
}
