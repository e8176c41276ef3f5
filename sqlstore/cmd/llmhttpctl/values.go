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

// parsePeriod parses a duration of Go, which may also be in days, and whose
// number may be left out if it is 1.
func parsePeriod(s string) (time.Duration, error) {
	if s != "" && (s[0] < '0' || s[0] > '9') && s[0] != '.' {
		s = "1" + s
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(math.MaxInt64/(24*time.Hour)) {
			return 0, fmt.Errorf("%q is no number of days", s)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration, such as 90s, 12h or 30d", s)
	}
	return d, nil
}

func formatPeriod(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d%unit.length == 0 {
			if d == unit.length {
				return unit.name
			}
			return fmt.Sprint(int64(d/unit.length), unit.name)
		}
	}
	return d.String()
}

// parseRate parses N/PERIOD or N/PERIOD,burst=N; none is the zero Rate.
func parseRate(s string) (r llmhttp.Rate, err error) {
	if s == "none" {
		return r, nil
	}
	rest, burst, hasBurst := strings.Cut(s, ",burst=")
	number, period, hasPeriod := strings.Cut(rest, "/")
	if !hasPeriod {
		return r, fmt.Errorf("%q has no period, as 60/m has", s)
	}
	if r.N, err = strconv.Atoi(number); err != nil || r.N == 0 {
		return llmhttp.Rate{}, fmt.Errorf("%q is no number other than 0", number)
	}
	if r.Per, err = parsePeriod(period); err == nil && r.Per <= 0 {
		err = errors.New("the period must be longer than 0")
	}
	if err != nil {
		return llmhttp.Rate{}, err
	}
	if hasBurst {
		if r.Burst, err = strconv.Atoi(burst); err != nil || r.Burst < 1 {
			return llmhttp.Rate{}, fmt.Errorf("%q is no burst of at least 1", burst)
		}
	}
	return r, nil
}

// formatRate is the inverse of parseRate, but for none, which is empty.
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

// parseExpiry parses a time, a date, how long from now on, or never.
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
			return time.Time{}, fmt.Errorf("%q is no time, such as 2030-01-31, 2030-01-31T12:00:00Z, 30d or never", s)
		}
		t = now.Add(d)
	}
	if !t.After(now) {
		return time.Time{}, fmt.Errorf("%s is not in the future", formatTime(t))
	}
	return t, nil
}

// parseList parses words between commas: all is nil, none is empty.
func parseList[T ~string](s string, known ...T) ([]T, error) {
	switch s {
	case "all":
		return nil, nil
	case "none":
		return []T{}, nil
	}
	var list []T
	for word := range strings.SplitSeq(s, ",") {
		item := T(strings.TrimSpace(word))
		switch {
		case item == "":
			return nil, errors.New("an empty word is in the list; say all, or none")
		case known != nil && !slices.Contains(known, item):
			return nil, fmt.Errorf("%q is none of %v, and neither all nor none", item, known)
		}
		list = append(list, item)
	}
	return list, nil
}

var scopes = []llmhttp.Endpoint{llmhttp.EndpointChat, llmhttp.EndpointImages, llmhttp.EndpointEmbeddings, llmhttp.EndpointModels, llmhttp.EndpointUsage}

// formatList is the inverse of parseList.
func formatList[T ~string](list []T) string {
	switch {
	case list == nil:
		return "all"
	case len(list) == 0:
		return "none"
	}
	words := make([]string, len(list))
	for i, item := range list {
		words[i] = string(item)
	}
	return strings.Join(words, ",")
}
