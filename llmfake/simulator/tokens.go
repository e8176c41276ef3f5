// What a token is.

package simulator

import (
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// CountTokens returns the number of tokens that text has for a [Backend]. It can
// be used as [llmhttp.TokenEstimates.TextTokens]. The model makes no difference.
//
// A token is a word with the white space before it. A word of more than 12 characters is several
// tokens of at most 12, and so is a run of white space. An emoji is a word. In scripts that are
// written without spaces between words, each character is a word. White space at the end of text is
// a token. A character is a grapheme cluster, so a token never separates an emoji from its
// modifiers or a letter from its accents.
//
// The first n tokens of a text are the tokens of the text cut after them.
func CountTokens(model, text string) int {
	n := 0
	for len(text) > 0 {
		text = text[tokenLen(text):]
		n++
	}
	return n
}

// CutTokens returns the longest beginning of text that has at most limit tokens, and the number of
// its tokens. A negative limit is as 0.
func CutTokens(text string, limit int) (head string, n int) {
	return cutTokens(text, limit, len(text))
}

// cutTokens returns the longest prefix of text that has at most limit tokens and size bytes and
// does not cut a token, and its number of tokens.
func cutTokens(text string, limit, size int) (head string, n int) {
	end := 0
	for ; end < len(text) && n < limit; n++ {
		next := end + tokenLen(text[end:])
		if next > size {
			break
		}
		end = next
	}
	return text[:end], n
}

// maxRun limits both the white space and the word of a token, in characters.
const maxRun = 12

// tokenLen returns the length of the first token of s in bytes. It looks at most
// one character beyond the token, so that a text cut after a token has the same
// tokens.
func tokenLen(s string) int {
	end, spaces := 0, 0
	for end < len(s) {
		r, size := firstCharacter(s[end:])
		if !unicode.IsSpace(r) {
			break
		}
		if spaces == maxRun {
			return end
		}
		end, spaces = end+size, spaces+1
	}
	for letters := 0; end < len(s) && letters < maxRun; letters++ {
		r, size := firstCharacter(s[end:])
		switch {
		case unicode.IsSpace(r):
			return end
		case isWord(r):
			if letters == 0 {
				end += size
			}
			return end
		}
		end += size
	}
	return end
}

// firstCharacter returns the first rune of s and the length of the grapheme
// cluster that it begins, in bytes. s must not be empty.
func firstCharacter(s string) (rune, int) {
	if s[0] < utf8.RuneSelf && s[0] != '\r' && (len(s) == 1 || s[1] < utf8.RuneSelf) {
		return rune(s[0]), 1
	}
	r, _ := utf8.DecodeRuneInString(s)
	cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(s, -1)
	return r, len(cluster)
}

// isWord reports whether r is a word by itself: a pictograph, or a character of a script that is
// written without spaces between words.
func isWord(r rune) bool {
	switch {
	case r < 0x0e00:
		return false
	case r < 0x0f00: // Thai, Lao
		return true
	case r < 0x2600:
		return r >= 0x1000 && r < 0x10a0 || r >= 0x1780 && r < 0x1800 // Myanmar, Khmer
	case r < 0x27c0: // symbols and dingbats
		return true
	}
	return r >= 0x2e80 // East Asian scripts, emoji and rare scripts
}
