package upstream

import (
	"bytes"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// minLogprob is the logprob that OpenAI sends for a token that is very unlikely.
const minLogprob = "-9999.0"

// replaceNonFinite returns JSON without the numbers NaN and Infinity, which
// servers in Python write, in logprobs for example, and which are not JSON:
// -Infinity becomes minLogprob, and the others become null. It does not change data.
func replaceNonFinite(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		n, replacement := nonFinite(data)
		if n > 0 {
			out = append(out, replacement...)
			data = data[n:]
			continue
		}
		n = 1
		if data[0] == '"' {
			n = jsonwire.StringLength(data) // a string may contain NaN
		}
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return out
}

// nonFinite returns the length of the non-finite number at the beginning of data, and
// its replacement. The length is 0 if there is none.
func nonFinite(data []byte) (n int, replacement string) {
	for number, replacement := range map[string]string{"NaN": "null", "Infinity": "null", "-Infinity": minLogprob} {
		if bytes.HasPrefix(data, []byte(number)) {
			return len(number), replacement
		}
	}
	return 0, ""
}
