// Package lifetime reads and writes how long a prompt cache keeps tokens, as names of prices and of
// numbers of tokens have it: 30s, 5m or 1h.
package lifetime

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// units are the units of lifetimes, the longest first.
var units = [...]struct {
	letter string
	length time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// IsValid reports whether d is a lifetime: a positive number of whole seconds.
func IsValid(d time.Duration) bool { return d > 0 && d%time.Second == 0 }

// Format returns the text of d, which is valid: a number of hours, or else of minutes or seconds.
func Format(d time.Duration) string {
	for _, u := range units[1:] {
		if d%u.length == 0 {
			return strconv.FormatInt(int64(d/u.length), 10) + u.letter
		}
	}
	return ""
}

// Parse is the inverse of Format. It also reads days, and a number of a shorter unit. It reports false if s is
// not the text of a lifetime.
func Parse(s string) (d time.Duration, ok bool) {
	for _, u := range units {
		digits, found := strings.CutSuffix(s, u.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 || n > uint64(math.MaxInt64/u.length) {
			return 0, false
		}
		return time.Duration(n) * u.length, true
	}
	return 0, false
}

// The names of numbers of tokens in the usage of Anthropic's and LiteLLM's APIs.
const tokensPrefix, tokensSuffix = "ephemeral_", "_input_tokens"

// TokensName returns the name of the number of tokens that a cache keeps for d, such as
// ephemeral_5m_input_tokens.
func TokensName(d time.Duration) string { return tokensPrefix + Format(d) + tokensSuffix }

// ParseTokensName is the inverse of TokensName.
func ParseTokensName(name string) (d time.Duration, ok bool) {
	name, hasPrefix := strings.CutPrefix(name, tokensPrefix)
	name, hasSuffix := strings.CutSuffix(name, tokensSuffix)
	if !hasPrefix || !hasSuffix {
		return 0, false
	}
	return Parse(name)
}
