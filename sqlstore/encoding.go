// How values are stored in columns.

package sqlstore

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
)

// maxName is the maximum length of a name in bytes. Three names of that length
// fit into an index entry of PostgreSQL even in hexadecimal.
const maxName = 512

// hexPrefix marks names that are stored in hexadecimal.
const hexPrefix = `\x`

// storedName returns name in a form that every database can store, compare and
// index. Different names have different stored forms.
//
// A name of more than maxName bytes is cut and ends with a hash of the whole. A name that
// PostgreSQL would refuse as text, or that begins with hexPrefix, is stored in hexadecimal.
func storedName(name string) string {
	if len(name) > maxName {
		hash := "~" + llmhttp.HashSecret(name)
		name = strings.ToValidUTF8(name[:maxName-len(hash)], "") + hash
	}
	if strings.HasPrefix(name, hexPrefix) || !isText(name) {
		return hexPrefix + hex.EncodeToString([]byte(name))
	}
	return name
}

// originalName is the inverse of storedName for names of at most maxName bytes.
func originalName(stored string) string {
	if digits, ok := strings.CutPrefix(stored, hexPrefix); ok {
		if name, err := hex.DecodeString(digits); err == nil {
			return string(name)
		}
	}
	return stored
}

// isText reports whether PostgreSQL accepts s as text.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checkName returns an error that names the field if s cannot be stored as it is.
func checkName(field, s string) error {
	switch {
	case len(s) > maxName:
		return fmt.Errorf("%s has %d bytes; the maximum is %d", field, len(s), maxName)
	case !isText(s):
		return fmt.Errorf("%s is not valid UTF-8 or contains a NUL byte", field)
	}
	return nil
}

// isPrintableASCII reports whether s consists of printable ASCII characters other than the space.
func isPrintableASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Times are stored as microseconds since 1970 in UTC. Times more than 36,000 years away from 1970
// are stored as ±maxMicros, so that adding a day to a stored time does not overflow.
const maxMicros = 1 << 60

var maxTime, minTime = time.UnixMicro(maxMicros), time.UnixMicro(-maxMicros)

// micros returns the stored form of t, rounded down.
func micros(t time.Time) int64 {
	switch {
	case t.After(maxTime):
		return maxMicros
	case t.Before(minTime):
		return -maxMicros
	}
	return t.UnixMicro()
}

// ceilMicros returns the smallest stored time that is not before t. Beyond
// maxTime that is a time after every stored one.
func ceilMicros(t time.Time) int64 {
	if t.After(maxTime) {
		return maxMicros + 1
	}
	return micros(t.Add(time.Microsecond - 1))
}

// fromMicros is the inverse of micros. The result is in UTC.
func fromMicros(m int64) time.Time { return time.UnixMicro(m).UTC() }

const dayMicros = int64(day / time.Microsecond)

// dayOf returns the stored form of the midnight before or at m, in UTC.
func dayOf(m int64) int64 { return m - (m%dayMicros+dayMicros)%dayMicros }

// dayOfTime is dayOf, of the column time, in SQL.
const dayOfTime = "time - ((time % 86400000000) + 86400000000) % 86400000000"
