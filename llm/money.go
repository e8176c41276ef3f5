package llm

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/saturating"
)

// Money is an amount in billionths of the unit of a currency, such as the US dollar. A program
// uses one currency for everything; the package does not know which. Sums that do not fit are
// the nearest amount that does. Amounts may be negative.
type Money int64

// MoneyUnit is one unit of the currency.
const MoneyUnit Money = 1e9

// USD returns an amount of US dollars, or of units of whatever currency the program uses, rounded to the
// nearest Money: USD(0.25) is a quarter of a dollar. An amount that does not fit is the nearest one that
// does. USD panics if dollars is not a number.
func USD(dollars float64) Money {
	units := math.Round(dollars * float64(MoneyUnit))
	switch {
	case math.IsNaN(units):
		panic("llmhttp: USD of NaN")
	case units >= math.MaxInt64:
		return math.MaxInt64
	case units <= math.MinInt64:
		return math.MinInt64
	}
	return Money(units)
}

// moneyDigits is the number of decimal places of a Money.
const moneyDigits = 9

// Add returns m + n.
func (m Money) Add(n Money) Money { return Money(saturating.Add(int64(m), int64(n))) }

// Sub returns m - n.
func (m Money) Sub(n Money) Money { return Money(saturating.Sub(int64(m), int64(n))) }

// Scale returns m * n / per, rounded to the nearest amount, and half away from zero: the price
// of n tokens if per tokens cost m. It panics if per is not positive.
func (m Money) Scale(n, per int64) Money {
	if per <= 0 {
		panic("llmhttp: Money.Scale: per is not positive")
	}
	negative := (m < 0) != (n < 0)
	hi, lo := bits.Mul64(magnitude(int64(m)), magnitude(n))
	lo, carry := bits.Add64(lo, uint64(per)/2, 0)
	hi += carry
	quotient := uint64(math.MaxUint64)
	if hi < uint64(per) {
		quotient, _ = bits.Div64(hi, lo, uint64(per))
	}
	switch {
	case negative && quotient > math.MaxInt64:
		return math.MinInt64
	case negative:
		return -Money(quotient)
	case quotient > math.MaxInt64:
		return math.MaxInt64
	}
	return Money(quotient)
}

// magnitude returns the absolute value of n.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// Float64 returns m in units of the currency. It rounds amounts above some nine million units.
func (m Money) Float64() float64 { return float64(m) / float64(MoneyUnit) }

// String returns m in units of the currency as a decimal number without an exponent or
// trailing zeros, such as "1.25".
func (m Money) String() string {
	b, _ := m.AppendText(nil) // never fails
	return string(b)
}

// AppendText appends the text of String to b. The error is nil.
func (m Money) AppendText(b []byte) ([]byte, error) {
	if m < 0 {
		b = append(b, '-')
	}
	n := magnitude(int64(m))
	b = strconv.AppendUint(b, n/uint64(MoneyUnit), 10)
	if fraction := n % uint64(MoneyUnit); fraction != 0 {
		b = append(b, '.')
		b = append(b, strings.TrimRight(fmt.Sprintf("%0*d", moneyDigits, fraction), "0")...)
	}
	return b, nil
}

// MarshalText returns the text of String. The error is nil.
func (m Money) MarshalText() ([]byte, error) { return m.AppendText(nil) }

var errMoney = errors.New("llmhttp: an amount of money must be a decimal number with at most 9 decimal places, such as 1.25")

// UnmarshalText reads a decimal number of units of the currency, such as "1.25" or "-3". It
// has an integer part, no exponent and at most 9 decimal places. Other texts and amounts that
// do not fit into a Money are errors.
func (m *Money) UnmarshalText(text []byte) error {
	s, negative := strings.CutPrefix(string(text), "-")
	whole, fraction, point := strings.Cut(s, ".")
	if !isDigits(whole) || point && !isDigits(fraction) || len(fraction) > moneyDigits {
		return errMoney
	}
	n, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", moneyDigits-len(fraction)), 10, 64)
	switch {
	case err != nil || n > math.MaxInt64+1 || n == math.MaxInt64+1 && !negative:
		return fmt.Errorf("llmhttp: the amount of money is too large: at most %s fits", Money(math.MaxInt64))
	case negative:
		n = -n
	}
	*m = Money(n)
	return nil
}

// isDigits reports whether s consists of one or more decimal digits.
func isDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}
