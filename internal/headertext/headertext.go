// Package headertext checks texts of clients that become a part of a header, of a request or of a part of a form.
package headertext

import (
	"errors"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsSafe reports whether s is UTF-8 without control characters. Others could end the header, or be the end of a
// line for servers that split headers at more than CRLF.
func IsSafe(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// MediaType returns the media type s in its normal form, which is ASCII without control characters. It returns
// false if s is not a media type. Parameters that are not valid, such as "codecs=vp8,opus" of browsers, are
// removed.
func MediaType(s string) (string, bool) {
	if !IsSafe(s) { // package mime takes line breaks between parameters for spaces
		return "", false
	}
	media, params, err := mime.ParseMediaType(s)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || media == "" {
		return "", false
	}
	if formatted := mime.FormatMediaType(media, params); formatted != "" && IsSafe(formatted) {
		return formatted, true
	}
	return media, true
}
