package sqlstore

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
)

// maxName is how long a name may be, in bytes. Three of them, written in
// hexadecimal, fit into an entry of an index.
const maxName = 512

// hexMark begins names that are written in hexadecimal.
const hexMark = `\x`

// storedName returns name as databases can keep, compare and index it. Names
// that differ are different when they are stored.
func storedName(name string) string {
	if len(name) > maxName {
		// The hash tells apart what begins alike.
		name = strings.ToValidUTF8(name[:maxName-1-hex.EncodedLen(32)], "") + "~" + llmhttp.HashSecret(name)
	}
	if strings.HasPrefix(name, hexMark) || !isText(name) {
		return hexMark + hex.EncodeToString([]byte(name))
	}
	return name
}

// originalName returns the name that was stored, unless it was too long.
func originalName(stored string) string {
	if digits, ok := strings.CutPrefix(stored, hexMark); ok {
		if name, err := hex.DecodeString(digits); err == nil {
			return string(name)
		}
	}
	return stored
}

// isText reports whether PostgreSQL keeps s.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checkName returns an error that names the field unless s can be kept as it is.
func checkName(field, s string) error {
	switch {
	case len(s) > maxName:
		return fmt.Errorf("%s is of %d bytes, and may have %d", field, len(s), maxName)
	case !isText(s):
		return fmt.Errorf("%s is not valid UTF-8, or has a NUL byte", field)
	}
	return nil
}

// isToken reports whether s is of printable ASCII, as secrets are.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Times are stored as microseconds since 1970, in UTC. Those of some ten
// thousand years ago or ahead are all one: differences of them do not overflow.
const maxMicros = 1 << 60

var maxTime, minTime = time.UnixMicro(maxMicros), time.UnixMicro(-maxMicros)

// micros returns t as it is stored: rounded down.
func micros(t time.Time) int64 {
	switch {
	case t.After(maxTime):
		return maxMicros
	case t.Before(minTime):
		return -maxMicros
	}
	return t.UnixMicro()
}

// fromMicros is the inverse of micros, in UTC.
func fromMicros(m int64) time.Time { return time.UnixMicro(m).UTC() }

const dayMicros = int64(day / time.Microsecond)

// dayOf returns when the day of a time began.
func dayOf(m int64) int64 { return m - (m%dayMicros+dayMicros)%dayMicros }
