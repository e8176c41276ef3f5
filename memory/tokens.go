package memory

import (
	"unicode"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/memory/internal/grapheme"
)

// CountTokens returns how many tokens text has for a [Backend]. It is fit for
// [llmhttp.Options.CountTokens]; the model makes no difference.
//
// A token is a word with the white space before it. Words of more than 12
// characters are as many tokens as that takes, and so are runs of white space.
// An emoji, and a character of a script that is written without spaces
// between words, is a word. White space that nothing follows is a token too.
// Characters are as readers see them, so tokens never split an emoji from its
// modifiers or a letter from its accents.
//
// Cutting a text after its nth token leaves a text of n tokens.
func CountTokens(model, text string) int {
	n := 0
	for len(text) > 0 {
		text = text[tokenLen(text):]
		n++
	}
	return n
}

// cutTokens returns the first tokens of text, at most limit of them and in at
// most size bytes, and how many there are. If head is not text, it was cut.
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

// maxRun is how many characters of a word are one token, and how many of white
// space may come before them.
const maxRun = 12

// tokenLen returns how many bytes the first token of s has. What follows a
// token has no influence on where it ends, other than to end it: that is what
// makes the tokens of a text cut between tokens the same as before.
func tokenLen(s string) int {
	i, spaces := 0, 0
	for i < len(s) {
		r, n := firstChar(s[i:])
		if !unicode.IsSpace(r) {
			break
		}
		if spaces == maxRun {
			return i
		}
		i, spaces = i+n, spaces+1
	}
	for letters := 0; i < len(s) && letters < maxRun; letters++ {
		r, n := firstChar(s[i:])
		switch {
		case unicode.IsSpace(r):
			return i
		case standsAlone(r):
			if letters == 0 {
				i += n
			}
			return i
		}
		i += n
	}
	return i
}

// firstChar returns the first rune of s and the size of the character that it
// begins.
func firstChar(s string) (rune, int) {
	if s[0] < utf8.RuneSelf && s[0] != '\r' && (len(s) == 1 || s[1] < utf8.RuneSelf) {
		return rune(s[0]), 1
	}
	r, _ := utf8.DecodeRuneInString(s)
	return r, grapheme.Len(s)
}

// standsAlone reports whether r is a pictograph or of a script that is written
// without spaces between words.
func standsAlone(r rune) bool {
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
	return r >= 0x2e80 // East Asian scripts, emoji, and what is rare
}
