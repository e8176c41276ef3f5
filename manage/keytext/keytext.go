// Package keytext parses and formats the settings of keys and accounts as people type and read them in
// flags, forms and tables:
//
//	rate, err := keytext.ParseRate("60/m,burst=10") // llmhttp.Rate{N: 60, Per: time.Minute, Burst: 10}
//	...
//	err = keytext.SetLimit(&params.Limits, "quota", "20usd/month")
//	text := keytext.FormatLimit(&params.Limits, "quota") // 20usd/month
//
// The command llmhttpctl and package console use these forms. The errors are for the person
// who typed the text: they quote it, show an example and do not name this package. Usage can be written as
// CSV: see [UsageCSV].
//
// Functions are safe for concurrent use.
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

// ParsePeriod parses a Go duration such as 1h30m, or an integer and a unit such as 30d, 15min or
// "2 weeks". A missing integer means 1: "day" is 24 hours. Zero is allowed; negative periods are
// allowed only as Go durations, such as -1s.
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

// FormatPeriod is the inverse of [ParsePeriod]. It uses the largest unit of which d is a multiple: d, h, m or
// s, without the number if it is 1.
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
// million. Decimals are allowed before a suffix, as in 1.5M, if the result is an integer. Zero and negative
// numbers are allowed.
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

// ParseExpiry parses when a key expires: a time in the format of RFC 3339, a date, which begins in UTC, a
// period from now as [ParsePeriod] parses it, or the text never, which means the zero time. A time that is
// not after now is an error.
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

// FormatTime returns t in the format of RFC 3339, in UTC and without fractions of a second. It returns "" for
// the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// ParseList parses the Models or another list of a key whose nil means all: comma-separated items, or the
// text all, which means nil, or none, which means an empty list. White space around items is removed; an empty
// item is an error. For scopes, use [ParseScopes].
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

// FormatList is the inverse of [ParseList].
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
