package main

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

// parsePeriod parses a Go duration or a number of days such as 30d. A missing
// number means 1.
func parsePeriod(s string) (time.Duration, error) {
	if s != "" && (s[0] < '0' || s[0] > '9') && s[0] != '.' {
		s = "1" + s
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(math.MaxInt64/day) {
			return 0, fmt.Errorf("%q is not a number of days", s)
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 12h or 30d", s)
	}
	return d, nil
}

// formatPeriod is the inverse of parsePeriod.
func formatPeriod(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d == unit.length {
			return unit.name
		}
		if d%unit.length == 0 {
			return fmt.Sprint(int64(d/unit.length), unit.name)
		}
	}
	return d.String()
}

// parseRate parses N/PERIOD or N/PERIOD,burst=N. The text none means the zero
// Rate.
func parseRate(s string) (llmhttp.Rate, error) {
	if s == "none" {
		return llmhttp.Rate{}, nil
	}
	rest, burst, hasBurst := strings.Cut(s, ",burst=")
	number, period, hasPeriod := strings.Cut(rest, "/")
	if !hasPeriod {
		return llmhttp.Rate{}, fmt.Errorf("%q has no period, unlike 60/m", s)
	}
	n, err := strconv.Atoi(number)
	if err != nil || n == 0 {
		return llmhttp.Rate{}, fmt.Errorf("%q is not a number other than 0", number)
	}
	per, err := parsePeriod(period)
	if err != nil {
		return llmhttp.Rate{}, err
	}
	if per <= 0 {
		return llmhttp.Rate{}, errors.New("the period must be longer than 0")
	}
	r := llmhttp.Rate{N: n, Per: per}
	if hasBurst {
		if r.Burst, err = strconv.Atoi(burst); err != nil || r.Burst < 1 {
			return llmhttp.Rate{}, fmt.Errorf("%q is not a burst of at least 1", burst)
		}
	}
	return r, nil
}

// formatRate is the inverse of parseRate, except that it returns "" for no limit.
func formatRate(r llmhttp.Rate) string {
	if r.N == 0 {
		return ""
	}
	if r.Per <= 0 {
		r.Per = time.Minute
	}
	s := fmt.Sprint(r.N, "/", formatPeriod(r.Per))
	if r.Burst > 0 {
		s += fmt.Sprint(",burst=", r.Burst)
	}
	return s
}

// parseQuota parses AMOUNTS/PERIOD, where AMOUNTS is a number of tokens, an
// amount such as 20usd, or both with a comma, and PERIOD is month, all or the
// length of a sliding period. The text none means the zero Quota.
func parseQuota(s string) (q llmhttp.Quota, err error) {
	if s == "none" {
		return q, nil
	}
	amounts, period, hasPeriod := strings.Cut(s, "/")
	if !hasPeriod {
		return q, fmt.Errorf("%q has no period, unlike 1000000/month", s)
	}
	for amount := range strings.SplitSeq(amounts, ",") {
		if dollars, ok := strings.CutSuffix(amount, "usd"); ok && q.Cost == 0 {
			if q.Cost, err = strconv.ParseFloat(dollars, 64); err != nil || q.Cost == 0 || q.Cost-q.Cost != 0 {
				return q, fmt.Errorf("%q is not an amount other than 0", amount)
			}
		} else if q.Tokens != 0 {
			return q, fmt.Errorf("%q is more than a number of tokens and an amount in usd", amounts)
		} else if q.Tokens, err = strconv.Atoi(amount); err != nil || q.Tokens == 0 {
			return q, fmt.Errorf("%q is not a number other than 0", amount)
		}
	}
	switch period {
	case "month":
	case "all":
		q.Per = -1
	default:
		if q.Per, err = parsePeriod(period); err == nil && q.Per <= 0 {
			err = errors.New("the period must be longer than 0")
		}
	}
	return q, err
}

// formatQuota is the inverse of parseQuota, except that it returns "" for no limit.
func formatQuota(q llmhttp.Quota) string {
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
		period = formatPeriod(q.Per)
	}
	return strings.Join(amounts, ",") + "/" + period
}

// parseExpiry parses a time, a date, a duration from now, or never, which is
// the zero time.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	if s == "never" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t, err = time.Parse(time.DateOnly, s)
	}
	if err != nil {
		d, err := parsePeriod(s)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not a time such as 2030-01-31, 2030-01-31T12:00:00Z, 30d or never", s)
		}
		t = now.Add(d)
	}
	if !t.After(now) {
		return time.Time{}, fmt.Errorf("%s is not in the future", formatTime(t))
	}
	return t, nil
}

// formatTime formats the zero time as "".
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// parseList parses comma-separated items. The text all means nil, none means
// empty. If known is not empty, each item must be one of them.
func parseList[T ~string](s string, known ...T) ([]T, error) {
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

// formatList is the inverse of parseList.
func formatList[T ~string](list []T) string {
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
