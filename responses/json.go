package responses

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte { return jsonwire.AppendString(b, s) }

// marshal returns v as JSON without white space between tokens.
func marshal(v any) ([]byte, error) {
	b, err := jsonv2.Marshal(v, jsonv2.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("responses: encoding %T: %w", v, err)
	}
	return escapeLineBreaks(b, 0), nil
}

// lineBreaks are characters that JSON need not escape, but at which some clients split
// the lines of a stream, as Python's splitlines does.
var lineBreaks = []string{"\u0085", "\u2028", "\u2029"}

// escapeLineBreaks escapes lineBreaks in the JSON b[start:].
func escapeLineBreaks(b []byte, start int) []byte {
	for _, c := range lineBreaks {
		if bytes.Contains(b[start:], []byte(c)) {
			escaped := fmt.Appendf(nil, `\u%04x`, []rune(c)[0])
			b = append(b[:start:start], bytes.ReplaceAll(b[start:], []byte(c), escaped)...)
		}
	}
	return b
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	raw := fmt.Appendf(nil, "%s", prefix)
	for range 2 {
		n := rand.Uint64()
		raw = hex.AppendEncode(raw, []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return string(raw)
}

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }
