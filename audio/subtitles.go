package audio

import (
	"math"
	"strconv"
	"strings"
)

// invalidText stands for what is not UTF-8 in replies that are texts.
const invalidText = "\uFFFD"

// appendSRT appends segments as SubRip subtitles: numbers, times with a comma, texts.
func appendSRT(b []byte, segments []TranscriptionSegment) []byte {
	for i := range segments {
		b = append(strconv.AppendInt(b, int64(i)+1, 10), '\n')
		b = appendCue(b, &segments[i], ',', srtText)
	}
	return append(b, '\n')
}

// appendVTT appends segments as WebVTT (https://www.w3.org/TR/webvtt1/): times with a point, texts.
func appendVTT(b []byte, segments []TranscriptionSegment) []byte {
	b = append(b, "WEBVTT\n\n"...)
	for i := range segments {
		b = appendCue(b, &segments[i], '.', vttText)
	}
	return append(b, '\n')
}

// srtText and vttText replace what is no text in a cue. An arrow would be one of times.
var (
	srtText = strings.NewReplacer("-->", "->")
	vttText = strings.NewReplacer("-->", "->", "&", "&amp;", "<", "&lt;")
)

// appendCue appends the times and the text of a segment, and the empty line that ends it.
func appendCue(b []byte, s *TranscriptionSegment, point byte, text *strings.Replacer) []byte {
	start := max(millis(s.Start), 0)
	b = appendCueTime(b, start, point)
	b = append(b, " --> "...)
	b = append(appendCueTime(b, max(millis(s.End), start), point), '\n')
	for line := range strings.FieldsFuncSeq(strings.ToValidUTF8(s.Text, invalidText), func(c rune) bool { return c == '\n' || c == '\r' }) { // an empty line would end the cue
		if line = strings.TrimSpace(line); line != "" {
			b = append(append(b, text.Replace(line)...), '\n')
		}
	}
	return append(b, '\n')
}

// appendCueTime appends a time as 01:02:03.456.
func appendCueTime(b []byte, ms int64, point byte) []byte {
	b = append(appendDigits(b, ms/3_600_000, 2), ':')
	b = append(appendDigits(b, ms/60_000%60, 2), ':')
	b = append(appendDigits(b, ms/1000%60, 2), point)
	return appendDigits(b, ms%1000, 3)
}

// appendDigits appends n with at least so many digits.
func appendDigits(b []byte, n int64, digits int) []byte {
	for limit := int64(math.Pow10(digits - 1)); limit > n && limit > 1; limit /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}
