package upstream

import (
	"bytes"
	"regexp"
)

// minLogprob is the logprob that OpenAI sends for a token that is very unlikely.
const minLogprob = "-9999.0"

// nonFinitePattern matches the numbers that JSON does not have. It also matches strings,
// because they may contain the same words.
var nonFinitePattern = regexp.MustCompile(`(?s)"(\\.|[^"\\])*"|NaN|-?Infinity`)

// replaceNonFinite returns JSON without the numbers NaN and Infinity, which
// servers in Python write, in logprobs for example, and which are not JSON:
// -Infinity becomes minLogprob, and the others become null. It does not change data.
func replaceNonFinite(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	return nonFinitePattern.ReplaceAllFunc(data, func(match []byte) []byte {
		switch match[0] {
		case '"':
			return match
		case '-':
			return []byte(minLogprob)
		}
		return []byte("null")
	})
}
