package simulator

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// splitTokens returns the tokens of text.
func splitTokens(text string) []string {
	var tokens []string
	for text != "" {
		n := tokenLen(text)
		tokens = append(tokens, text[:n])
		text = text[n:]
	}
	return tokens
}

func TestCountTokens(t *testing.T) {
	for name, want := range map[string][]string{
		"empty":                  nil,
		"words":                  {"Hello,", " world!", " It's", " 12:30."},
		"long words":             {"Donaudampfsc", "hifffahrt", " internationa", "l"},
		"words of 12 characters": {"abcdefghijkl", " abcdefghijkl"},
		"white space":            {" \t\n  a", "\r\n\r\nb", "\u00a0c", "  "},
		"runs of white space":    {strings.Repeat(" ", 12), strings.Repeat("\n", 12), " x"},
		"CJK":                    {"日", "本", "語", "。", "あ", " 한", "국"},
		"Thai":                   {"ส", "วั", "ส", "ดี"},
		"mixed":                  {"a", "日", "b", " 本", " c"},
		"emoji":                  {"hi", " 👋🏽", "👩\u200d👩\u200d👧\u200d👦", "!", "🇩🇪", "🇫🇷", " ❤\ufe0f"},
		"accents":                {"cafe\u0301", " nai\u0308ve"},
		"code":                   {"func", " main()", " {", "\n\tprintln(\"hi\"", ")", "\n}"},
		"lines":                  {"data:", " [DONE]", "\n\ndata", "\u2028x"},
		"not UTF-8":              {"a", "\xff", "\xfe", "b", " \xf0", "\x9f"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(want, "")
			assert.Equal(t, want, splitTokens(text))
			assert.Equal(t, len(want), CountTokens(ModelChat, text))
		})
	}
}

func TestCutTokens(t *testing.T) {
	for _, test := range []struct {
		text        string
		limit, size int
		want        string
		n           int
	}{
		{"", 0, 0, "", 0},
		{"one two", 2, 7, "one two", 2},
		{"one two", 1, 7, "one", 1},
		{"one two", 0, 7, "", 0},
		{"one two", 2, 6, "one", 1},
		{"one two ", 2, 100, "one two", 2},
		{"👋🏽👋🏽", 1, 100, "👋🏽", 1},
		{"👋🏽👋🏽", 2, 9, "👋🏽", 1},
	} {
		got, n := cutTokens(test.text, test.limit, test.size)
		assert.Equal(t, test.want, got, test)
		assert.Equal(t, test.n, n, test)
	}
}

func FuzzCountTokens(f *testing.F) {
	for _, s := range []string{
		"", "Hello, world!", strings.Repeat("x", 100), "日本語", "👩\u200d👩\u200d👧\u200d👦🇩🇪🇫🇷👋🏽",
		"a\r\n\r\n\u0301b", "\u0600\U000111c2\U0001f1e9\U0001f1ea\U0001f1eb", "क्ष\u200dि", "\xf0\x9f\x91", " \u200d ",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens := splitTokens(text)
		require.Equal(t, text, strings.Join(tokens, ""))
		at := 0
		for i, token := range tokens {
			require.NotEmpty(t, token)
			if utf8.ValidString(text) {
				require.True(t, utf8.ValidString(token), "%q", token)
			}
			if i > 0 {
				first, _ := utf8.DecodeRuneInString(token)
				before, _ := utf8.DecodeLastRuneInString(text[:at])
				require.False(t, isExtender(first) && !isControl(before), "%q is cut before the mark of %q", text, token)
				require.False(t, before == '\u200d' && !isControl(first), "%q is cut after a joiner", text)
				require.False(t, before == '\r' && first == '\n', "%q is cut within a line end", text)
				require.False(t, isRegionalIndicator(before) && isRegionalIndicator(first) && countTrailingIndicators(text[:at])%2 == 1, "%q is cut within a flag", text)
			}
			at += len(token)
			// A text that is cut after a token has the same tokens.
			require.Equal(t, i+1, CountTokens("", text[:at]))
		}
	})
}

// FuzzCountTokens uses the following functions instead of the grapheme library, to
// check its results independently.

// isExtender reports whether r belongs to the character before it.
func isExtender(r rune) bool {
	switch {
	case r >= 0x300 && r < 0x370, r >= 0xfe00 && r < 0xfe10, r >= 0x1f3fb && r <= 0x1f3ff, r == 0x20e3, r == 0x200d:
		return true
	}
	return false
}

// isControl reports whether r is a control character, which nothing extends.
func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == utf8.RuneError
}

// isRegionalIndicator reports whether r is one of the two runes of a flag.
func isRegionalIndicator(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }

// countTrailingIndicators returns the number of regional indicators at the end of text.
func countTrailingIndicators(text string) int {
	n := 0
	for {
		r, size := utf8.DecodeLastRuneInString(text)
		if !isRegionalIndicator(r) {
			return n
		}
		text = text[:len(text)-size]
		n++
	}
}

func BenchmarkCountTokens(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		CountTokens(ModelChat, text)
	}
}
