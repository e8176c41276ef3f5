// Package keytext formats and parses the settings of keys, and formats their usage,
// for the console and llmhttpctl. Unlike other internal packages it knows types of
// the root package.
package keytext

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// units are the names of periods. FormatPeriod uses the first four.
var units = []struct {
	name   string
	length time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"day", day}, {"days", day}, {"hour", time.Hour}, {"hours", time.Hour},
	{"min", time.Minute}, {"minute", time.Minute}, {"minutes", time.Minute},
	{"sec", time.Second}, {"second", time.Second}, {"seconds", time.Second},
	{"week", 7 * day}, {"weeks", 7 * day}, {"w", 7 * day},
}

// ParsePeriod parses a Go duration, or an integer and a unit such as 30d, 15min or
// day. A missing integer means 1.
func ParsePeriod(s string) (time.Duration, error) {
	errInvalid := fmt.Errorf("%q is not a period such as 90s, 12h or 30d", s)
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz ")
	for _, unit := range units {
		if strings.TrimSpace(s[len(number):]) != unit.name {
			continue
		}
		if number == "" {
			return unit.length, nil
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > int(math.MaxInt64/unit.length) {
			return 0, errInvalid
		}
		return time.Duration(n) * unit.length, nil
	}
	return 0, errInvalid
}

// FormatPeriod is the inverse of ParsePeriod.
func FormatPeriod(d time.Duration) string {
	for _, unit := range units[:4] {
		if d == unit.length {
			return unit.name
		}
		if d%unit.length == 0 {
			return fmt.Sprint(int64(d/unit.length), unit.name)
		}
	}
	return d.String()
}

// ParseCount parses an integer with optional underscores between digits and an
// optional suffix: k or K for a thousand, M for a million, G or B for a thousand
// million. Decimals are allowed before a suffix, as in 1.5M.
func ParseCount(s string) (int, error) {
	errInvalid := fmt.Errorf("%q is not a number such as 60, 1_000_000 or 1.5M", s)
	digits, factor := s, 1.0
	if s != "" {
		if f, ok := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9, 'B': 1e9}[s[len(s)-1]]; ok {
			digits, factor = s[:len(s)-1], f
		}
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, errInvalid
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if factor == 1 {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return 0, errInvalid
		}
		return n, nil
	}
	if strings.Trim(digits, "0123456789.-+") != "" { // ParseFloat accepts more, such as 1e3 and Inf
		return 0, errInvalid
	}
	f, err := strconv.ParseFloat(digits, 64)
	f *= factor
	if err != nil || math.Abs(f) > 1<<53 || f != math.Trunc(f) {
		return 0, errInvalid
	}
	return int(f), nil
}

// ParseExpiry parses a time, a date, a duration from now, or never, which is the zero time.
func ParseExpiry(s string, now time.Time) (time.Time, error) {
	if s == "never" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t, err = time.Parse(time.DateOnly, s)
	}
	if err != nil {
		d, err := ParsePeriod(s)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not a time such as 2030-01-31, 2030-01-31T12:00:00Z, 30d or never", s)
		}
		t = now.Add(d)
	}
	if !t.After(now) {
		return time.Time{}, fmt.Errorf("%s is not in the future", FormatTime(t))
	}
	return t, nil
}

// FormatTime formats t as RFC 3339 in UTC, and the zero time as "".
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// ParseList parses comma-separated items. The text all means nil, none means
// empty.
func ParseList[T ~string](s string) ([]T, error) {
	switch s {
	case "all":
		return nil, nil
	case "none":
		return []T{}, nil
	}
	var list []T
	for text := range strings.SplitSeq(s, ",") {
		item := T(strings.TrimSpace(text))
		if item == "" {
			return nil, errors.New("the list has an empty item; use all or none")
		}
		list = append(list, item)
	}
	return list, nil
}

// FormatList is the inverse of ParseList.
func FormatList[T ~string](list []T) string {
	switch {
	case list == nil:
		return "all"
	case len(list) == 0:
		return "none"
	}
	items := make([]string, len(list))
	for i, item := range list {
		items[i] = string(item)
	}
	return strings.Join(items, ",")
}
