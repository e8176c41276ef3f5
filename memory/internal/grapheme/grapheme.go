// Package grapheme tells where characters end, as readers see characters.
package grapheme

import (
	"unicode"
	"unicode/utf8"
)

// Len returns how many bytes the first character of s has: a grapheme cluster
// as in Unicode Standard Annex #29. It errs on the side of keeping together
// what the annex would part, which lets it do without tables beyond those of
// the standard library. A byte that is not UTF-8 is a character by itself. For
// an empty s, Len returns 0.
func Len(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	if s[0] < utf8.RuneSelf && s[1] < utf8.RuneSelf && s[0] != '\r' {
		return 1
	}
	prev, size := utf8.DecodeRuneInString(s)
	if prev == utf8.RuneError && size == 1 {
		return size // not UTF-8
	}
	var (
		flag   = isRegional(prev) // one half of a flag was read
		joined bool               // a virama was read, which joins the consonant after it
	)
	for size < len(s) {
		r, n := utf8.DecodeRuneInString(s[size:])
		switch {
		case r == utf8.RuneError && n == 1:
			return size
		case prev == '\r' && r == '\n':
		case isBreak(prev), isBreak(r):
			return size
		case isExtender(r), prev == zwj, isPrefix(prev), joinsJamo(prev, r):
		case joined && unicode.Is(unicode.Lo, r):
			joined = false
		case flag && isRegional(prev) && isRegional(r):
			flag = false // the next one begins another flag
		default:
			return size
		}
		if isRegional(r) && !isRegional(prev) {
			flag = true // after a prefix
		}
		joined = isVirama(r) || joined && isExtender(r)
		prev, size = r, size+n
	}
	return size
}

const (
	zwnj = '\u200c'
	zwj  = '\u200d'
)

// isBreak reports whether r always stands alone, as line ends do.
func isBreak(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// isExtender reports whether r belongs to the character before it.
func isExtender(r rune) bool {
	switch {
	case r < 0x300:
		return false
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc):
		return true // accents, vowel signs, variation selectors
	case r == zwnj, r == zwj:
		return true
	case r >= 0x1f3fb && r <= 0x1f3ff: // skin tones
		return true
	case r >= 0xe0020 && r <= 0xe007f: // tags, as in the flag of Scotland
		return true
	case r == 0x0e33, r == 0x0eb3: // Thai and Lao am
		return true
	case r == 0xff9e, r == 0xff9f: // halfwidth voiced sound marks
		return true
	}
	return false
}

// isRegional reports whether r is half a flag.
func isRegional(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }

// isPrefix reports whether r belongs to the character after it.
func isPrefix(r rune) bool {
	switch {
	case r < 0x600:
		return false
	case r <= 0x605, r == 0x6dd, r == 0x70f, r == 0x890, r == 0x891, r == 0x8e2: // Arabic, Syriac
		return true
	case r == 0xd4e, r == 0x110bd, r == 0x110cd, r == 0x111c2, r == 0x111c3: // Malayalam, Kaithi, Sharada
		return true
	case r == 0x1193f, r == 0x11941, r == 0x11a3a, r >= 0x11a84 && r <= 0x11a89, r == 0x11d46, r == 0x11f02:
		return true
	}
	return false
}

// isVirama reports whether r joins consonants of an Indic script.
func isVirama(r rune) bool {
	switch r {
	case 0x94d, 0x9cd, 0xacd, 0xb4d, 0xc4d, 0xd4d:
		return true
	}
	return false
}

// joinsJamo reports whether a and b are parts of one Hangul syllable.
func joinsJamo(a, b rune) bool {
	if a < 0x1100 || b < 0x1100 {
		return false
	}
	syllable := b >= 0xac00 && b <= 0xd7a3
	switch {
	case isLeadingJamo(a):
		return isLeadingJamo(b) || isFollowingJamo(b) || syllable
	case isFollowingJamo(a), a >= 0xac00 && a <= 0xd7a3:
		return isFollowingJamo(b)
	}
	return false
}

func isLeadingJamo(r rune) bool {
	return r >= 0x1100 && r < 0x1160 || r >= 0xa960 && r < 0xa97d
}

func isFollowingJamo(r rune) bool {
	return r >= 0x1160 && r < 0x1200 || r >= 0xd7b0 && r < 0xd7fc
}
