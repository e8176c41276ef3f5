// Package keytext has the text forms of the settings and the usage of keys, which
// the console and llmhttpctl share. Unlike other internal packages it knows types of the root
// package.
package keytext

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

const day = 24 * time.Hour

// units are the names of periods. The first four are used in output.
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
	refused := fmt.Errorf("%q is not a period such as 90s, 12h or 30d", s)
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
			return 0, refused
		}
		return time.Duration(n) * unit.length, nil
	}
	return 0, refused
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
	refused := fmt.Errorf("%q is not a number such as 60, 1_000_000 or 1.5M", s)
	digits, factor := s, 1.0
	if s != "" {
		if f, ok := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9, 'B': 1e9}[s[len(s)-1]]; ok {
			digits, factor = s[:len(s)-1], f
		}
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, refused
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if factor == 1 {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return 0, refused
		}
		return n, nil
	}
	if strings.Trim(digits, "0123456789.-+") != "" { // ParseFloat accepts more, such as 1e3 and Inf
		return 0, refused
	}
	f, err := strconv.ParseFloat(digits, 64)
	f *= factor
	if err != nil || math.Abs(f) > 1<<53 || f != math.Trunc(f) {
		return 0, refused
	}
	return int(f), nil
}

var (
	errZero   = errors.New("the number must not be 0; none means no limit")
	errPeriod = errors.New("the period must be longer than 0")
)

// ParseRate parses N/PERIOD or N/PERIOD,burst=N. The text none means the zero
// Rate.
func ParseRate(s string) (llmhttp.Rate, error) {
	if s == "none" {
		return llmhttp.Rate{}, nil
	}
	rest, burst, hasBurst := strings.Cut(s, ",burst=")
	number, period, hasPeriod := strings.Cut(rest, "/")
	if !hasPeriod {
		return llmhttp.Rate{}, fmt.Errorf("%q has no period, unlike 60/m", s)
	}
	n, err := ParseCount(number)
	if err != nil {
		return llmhttp.Rate{}, err
	}
	if n == 0 {
		return llmhttp.Rate{}, errZero
	}
	per, err := ParsePeriod(period)
	if err != nil {
		return llmhttp.Rate{}, err
	}
	if per <= 0 {
		return llmhttp.Rate{}, errPeriod
	}
	r := llmhttp.Rate{N: n, Per: per}
	if hasBurst {
		if r.Burst, err = ParseCount(burst); err != nil || r.Burst < 1 {
			return llmhttp.Rate{}, fmt.Errorf("%q is not a burst of at least 1", burst)
		}
	}
	return r, nil
}

// FormatRate is the inverse of ParseRate, except that it returns "" for no limit.
func FormatRate(r llmhttp.Rate) string {
	if r.N == 0 {
		return ""
	}
	if r.Per <= 0 {
		r.Per = time.Minute
	}
	s := fmt.Sprint(r.N, "/", FormatPeriod(r.Per))
	if r.Burst > 0 {
		s += fmt.Sprint(",burst=", r.Burst)
	}
	return s
}

// ParseQuota parses AMOUNTS/PERIOD, where AMOUNTS is a number of tokens, an
// amount such as 20usd, or both with a comma, and PERIOD is month, all or the
// length of a sliding period. The text none means the zero Quota.
func ParseQuota(s string) (q llmhttp.Quota, err error) {
	if s == "none" {
		return q, nil
	}
	amounts, period, hasPeriod := strings.Cut(s, "/")
	if !hasPeriod {
		return q, fmt.Errorf("%q has no period, unlike 1M/month", s)
	}
	for amount := range strings.SplitSeq(amounts, ",") {
		if dollars, ok := strings.CutSuffix(amount, "usd"); ok && q.Cost == 0 {
			if q.Cost, err = strconv.ParseFloat(dollars, 64); err != nil || q.Cost == 0 || q.Cost-q.Cost != 0 {
				return q, fmt.Errorf("%q is not an amount other than 0", amount)
			}
		} else if q.Tokens != 0 {
			return q, fmt.Errorf("%q is more than a number of tokens and an amount in usd", amounts)
		} else if q.Tokens, err = ParseCount(amount); err != nil {
			return q, err
		} else if q.Tokens == 0 {
			return q, errZero
		}
	}
	switch period {
	case "month":
	case "all":
		q.Per = -1
	default:
		if q.Per, err = ParsePeriod(period); err == nil && q.Per <= 0 {
			err = errPeriod
		}
	}
	return q, err
}

// FormatQuota is the inverse of ParseQuota, except that it returns "" for no limit.
func FormatQuota(q llmhttp.Quota) string {
	var amounts []string
	if q.Tokens != 0 {
		amounts = append(amounts, strconv.Itoa(q.Tokens))
	}
	if q.Cost != 0 {
		amounts = append(amounts, strconv.FormatFloat(q.Cost, 'f', -1, 64)+"usd")
	}
	period := "month"
	switch {
	case amounts == nil:
		return ""
	case q.Per < 0:
		period = "all"
	case q.Per > 0:
		period = FormatPeriod(q.Per)
	}
	return strings.Join(amounts, ",") + "/" + period
}

// ParseExpiry parses a time, a date, a duration from now, or never, which is
// the zero time.
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

// FormatTime formats the zero time as "".
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// ParseScopes parses a list of endpoints, as ParseList does.
func ParseScopes(s string) ([]llmhttp.Endpoint, error) { return ParseList(s, llmhttp.Endpoints()...) }

// ParseList parses comma-separated items. The text all means nil, none means
// empty. If known is not empty, each item must be one of them.
func ParseList[T ~string](s string, known ...T) ([]T, error) {
	switch s {
	case "all":
		return nil, nil
	case "none":
		return []T{}, nil
	}
	var list []T
	for text := range strings.SplitSeq(s, ",") {
		item := T(strings.TrimSpace(text))
		switch {
		case item == "":
			return nil, errors.New("the list has an empty item; use all or none")
		case len(known) > 0 && !slices.Contains(known, item):
			return nil, fmt.Errorf("%q is not one of %v, all or none", item, known)
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

// LimitNames are the names of the limits, in the order in which they are shown.
var LimitNames = []string{"requests", "tokens", "quota", "max-completion-tokens", "concurrent"}

// SetLimit sets the limit with the given name to the value that s describes. The
// text none, or no text, means no limit. The Since of a quota stays.
func SetLimit(l *llmhttp.Limits, name, s string) (err error) {
	if s == "" {
		s = "none"
	}
	switch name {
	case "requests":
		l.Requests, err = ParseRate(s)
	case "tokens":
		l.Tokens, err = ParseRate(s)
	case "quota":
		since := l.Quota.Since
		l.Quota, err = ParseQuota(s)
		l.Quota.Since = since
	case "max-completion-tokens":
		if err = setCount(&l.MaxCompletionTokens, s); err == nil && l.MaxCompletionTokens < 0 {
			err = errors.New("the number must not be negative")
		}
	case "concurrent":
		err = setCount(&l.Concurrent, s)
	default:
		err = fmt.Errorf("there is no limit %q", name)
	}
	return err
}

func setCount(n *int, s string) (err error) {
	*n = 0
	if s != "none" {
		*n, err = ParseCount(s)
	}
	return err
}

// LimitText is the inverse of SetLimit. It returns "" for no limit.
func LimitText(l *llmhttp.Limits, name string) string {
	switch name {
	case "requests":
		return FormatRate(l.Requests)
	case "tokens":
		return FormatRate(l.Tokens)
	case "quota":
		return FormatQuota(l.Quota)
	case "max-completion-tokens":
		return formatLimit(max(l.MaxCompletionTokens, 0))
	}
	return formatLimit(l.Concurrent)
}

func formatLimit(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
