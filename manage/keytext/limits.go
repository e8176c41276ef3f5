package keytext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// LimitNames returns the names of the limits in the order in which they are shown: requests, tokens, quota,
// max-completion-tokens and concurrent. They are the names of flags and fields of forms. A later version may
// append more. The caller may change the slice.
func LimitNames() []string {
	return []string{"requests", "tokens", "quota", "max-completion-tokens", "concurrent"}
}

// SetLimit sets the limit of l with the given name, which is one of [LimitNames], to the value that s describes:
// see [ParseRate] for requests and tokens, [ParseQuota] for quota, and [ParseCount] for the others. The text
// none and an empty text mean no limit. Zero is an error; a negative number permits nothing. The Since of a quota
// stays, so that a new amount does not reset what was used. If SetLimit returns an error, do not use l.
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
		err = setCount(&l.MaxCompletionTokens, s)
	case "concurrent":
		err = setCount(&l.Concurrent, s)
	default:
		err = fmt.Errorf("there is no limit %q", name)
	}
	return err
}

func setCount(n *int, s string) (err error) {
	*n = 0
	if s == "none" {
		return nil
	}
	if *n, err = ParseCount(s); err == nil && *n == 0 {
		err = errZero
	}
	return err
}

// FormatLimit is the inverse of [SetLimit]. It returns "" for no limit. It panics if name is not one of
// [LimitNames].
func FormatLimit(l *llmhttp.Limits, name string) string {
	switch name {
	case "requests":
		return FormatRate(l.Requests)
	case "tokens":
		return FormatRate(l.Tokens)
	case "quota":
		return FormatQuota(l.Quota)
	case "max-completion-tokens":
		return formatCount(l.MaxCompletionTokens)
	case "concurrent":
		return formatCount(l.Concurrent)
	}
	panic(fmt.Sprintf("keytext: there is no limit %q", name))
}

func formatCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

var (
	errZero   = errors.New("the number must not be 0; none means no limit")
	errPeriod = errors.New("the period must be longer than 0")
)

// ParseRate parses N/PERIOD or N/PERIOD,burst=N, such as 60/m, 1M/day or 60/m,burst=10. The text none means
// the zero Rate, which is no limit. An N of zero, a PERIOD or a burst that is not positive are errors. A negative N
// permits nothing, as in a [llmhttp.Rate].
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

// FormatRate is the inverse of [ParseRate], except that it returns "" for no limit.
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

// ParseQuota parses AMOUNTS/PERIOD, such as 1M/month or 1M,20usd/30d. AMOUNTS is a number of tokens, an amount
// such as 20usd, or both with a comma; PERIOD is month, all, which means all time, or the length of a sliding
// period. The text none means the zero Quota, which is no limit. Amounts of zero, and a PERIOD that is not positive,
// are errors. A negative amount permits nothing, as in a [llmhttp.Quota]. The Since of the result is zero.
func ParseQuota(s string) (q llmhttp.Quota, err error) {
	if s == "none" {
		return q, nil
	}
	amounts, period, hasPeriod := strings.Cut(s, "/")
	if !hasPeriod {
		return q, fmt.Errorf("%q has no period, unlike 1M/month", s)
	}
	for amount := range strings.SplitSeq(amounts, ",") {
		if strings.HasSuffix(amount, "usd") && q.Cost == 0 {
			if q.Cost, err = ParseMoney(amount); err != nil {
				return q, err
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

// ParseMoney parses an amount such as 20usd or -0.5usd. Zero is an error: it neither limits nor adds anything.
func ParseMoney(s string) (m llm.Money, err error) {
	dollars, ok := strings.CutSuffix(s, "usd")
	if !ok || m.UnmarshalText([]byte(dollars)) != nil || m == 0 {
		return 0, fmt.Errorf("%q is not a nonzero amount such as 20usd", s)
	}
	return m, nil
}

// FormatMoney is the inverse of [ParseMoney], and returns 0usd for zero.
func FormatMoney(m llm.Money) string { return m.String() + "usd" }

// FormatQuota is the inverse of [ParseQuota], except that it returns "" for no limit and leaves out the Since.
func FormatQuota(q llmhttp.Quota) string {
	var amounts []string
	if q.Tokens != 0 {
		amounts = append(amounts, strconv.Itoa(q.Tokens))
	}
	if q.Cost != 0 {
		amounts = append(amounts, FormatMoney(q.Cost))
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
