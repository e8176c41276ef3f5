package grapheme_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/memory/internal/grapheme"
)

func TestLen(t *testing.T) {
	// Each string is a list of characters.
	for name, want := range map[string][]string{
		"nothing":       nil,
		"ASCII":         {"a", "b", " ", "!"},
		"line ends":     {"a", "\r\n", "\n", "\r", "b"},
		"accents":       {"e\u0301", "o\u0302\u0323", "x"},
		"a lone accent": {"\u0301", "a"},
		"no accents":    {"\n", "\u0301", "\u2028", "\u0301"},
		"families":      {"👨\u200d👩\u200d👧\u200d👦", "👩\u200d❤\ufe0f\u200d💋\u200d👨"},
		"skin tones":    {"👋🏽", "👩🏿\u200d🚀", "👍"},
		"keycaps":       {"1\ufe0f\u20e3", "#\ufe0f\u20e3"},
		"flags":         {"🇩🇪", "🇫🇷", "🇯🇵", "🇯", "x", "🇩🇪", "🇫"},
		"tag flags":     {"🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "🏴"},
		"Hangul":        {"한", "국", "\u1112\u1161\u11ab", "\u1100\u1161", "\u1100\uac00\u11a8"},
		"Devanagari":    {"क्षि", "न", "म", "स्ते"},
		"Tamil":         {"நி", "க"},
		"Thai":          {"ก\u0e33", "ท", "ท\u0e35\u0e48"},
		"Arabic prefix": {"\u0600١", "٢"},
		"CJK":           {"世", "界", "。"},
		"not UTF-8":     {"a", "\xff", "\xf0", "\x9f", "b"},
		"cut emoji":     {"\xf0", "\x9f", "\x91"},
	} {
		t.Run(name, func(t *testing.T) {
			var text string
			for _, c := range want {
				text += c
			}
			var got []string
			for len(text) > 0 {
				n := grapheme.Len(text)
				got = append(got, text[:n])
				text = text[n:]
			}
			assert.Equal(t, want, got)
		})
	}
	assert.Zero(t, grapheme.Len(""))
}

func BenchmarkLen(b *testing.B) {
	for name, text := range map[string]string{
		"ASCII": "The quick brown fox",
		"emoji": "👨\u200d👩\u200d👧\u200d👦🇩🇪",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for s := text; s != ""; s = s[grapheme.Len(s):] {
				}
			}
		})
	}
}
