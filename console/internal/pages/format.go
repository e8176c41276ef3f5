package pages

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

const day = 24 * time.Hour

func FormatTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

func FormatDate(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// FormatUsed returns when a key was last used, relative to now. A use becomes known
// within about two minutes: see [manage.KeyInfo].
func FormatUsed(t time.Time) string {
	if t.IsZero() {
		return "never or just now"
	}
	return FormatAgo(t)
}

// FormatAgo returns how long ago t was, or will be, in the largest unit.
func FormatAgo(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t).Abs()
	format := "%s ago"
	if t.After(time.Now()) {
		format = "in %s"
	}
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"year", 365 * day}, {"month", 30 * day}, {"day", day}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := int64(d / unit.length); n > 0 {
			return fmt.Sprintf(format, plural(n, unit.name))
		}
	}
	return "now"
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return FormatCount(n) + " " + noun + "s"
}

// FormatCount separates the digits of n into groups of three with a narrow
// no-break space.
func FormatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}

// FormatMoney rounds amounts to two decimal places, and small ones to four. It returns those that
// are smaller still as they are.
func FormatMoney(m llm.Money) string {
	dollars, sign := m.Float64(), ""
	if m < 0 {
		dollars, sign = -dollars, "-"
	}
	switch {
	case m != 0 && dollars < 0.0001:
		return sign + "$" + strings.TrimPrefix(m.String(), "-")
	case m != 0 && dollars < 1:
		return sign + "$" + strconv.FormatFloat(dollars, 'f', 4, 64)
	}
	return sign + "$" + strconv.FormatFloat(dollars, 'f', 2, 64)
}

func FormatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return d.Round(time.Second).String()
}

func FormatPercent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}
