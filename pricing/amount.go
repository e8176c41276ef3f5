// Exact amounts and sums, and how they are rounded.

package pricing

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// A rate is the price of one unit, such as a token, in 10^-30 of the currency's unit. That
// holds every price of the decimal texts that parseRate accepts exactly.
type rate struct{ hi, lo uint64 }

const (
	rateDigits = 30  // decimal places of a rate
	maxRate    = 1e8 // the largest price of a unit, in units of the currency; a rate then fits 127 bits
	maxDigits  = 60  // of the texts of numbers
)

var pow10 = func() (table [rateDigits + maxDigits + 1]*big.Int) {
	for i := range table {
		table[i] = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(i)), nil)
	}
	return table
}()

// parseRate returns the rate of one unit if per times 10^units of them cost s, a decimal number
// as in JSON.
func parseRate(s string, units int, per int64) (rate, error) {
	n, err := parseDecimal(s, rateDigits-units)
	if err != nil {
		return rate{}, err
	}
	return newRate(n.Mul(n, big.NewInt(per)))
}

// newRate returns the rate of n times 10^-30.
func newRate(n *big.Int) (rate, error) {
	if n.Cmp(new(big.Int).Mul(pow10[rateDigits], big.NewInt(maxRate))) > 0 {
		return rate{}, errors.New("the price is too large")
	}
	return rate{new(big.Int).Rsh(n, 64).Uint64(), new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64()}, nil
}

// times returns r * n.
func (r rate) times(n int64) (rate, error) {
	b := new(big.Int).Lsh(new(big.Int).SetUint64(r.hi), 64)
	b.Or(b, new(big.Int).SetUint64(r.lo))
	return newRate(b.Mul(b, big.NewInt(n)))
}

func (r rate) isZero() bool { return r == rate{} }

// compare returns a negative number if r is less than other, zero if they are equal, and else a
// positive number.
func (r rate) compare(other rate) int {
	switch {
	case r == other:
		return 0
	case r.hi < other.hi || r.hi == other.hi && r.lo < other.lo:
		return -1
	}
	return 1
}

// parseDecimal returns s * 10^places, which must be an integer and not negative.
func parseDecimal(s string, places int) (*big.Int, error) {
	if strings.HasPrefix(s, "-") {
		return nil, errors.New("the number is negative")
	}
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
		if err != nil || strings.HasPrefix(s[i+1:], "+-") || n < -maxDigits || n > maxDigits {
			return nil, errNumber(s)
		}
		mantissa, exponent = s[:i], n
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	if !isDigits(whole) || point && !isDigits(fraction) || len(mantissa) > maxDigits {
		return nil, errNumber(s)
	}
	fraction = strings.TrimRight(fraction, "0")
	digits, _ := new(big.Int).SetString(whole+fraction, 10)
	switch shift := places + exponent - len(fraction); {
	case digits.Sign() == 0:
		return digits, nil
	case shift >= len(pow10):
		return nil, errors.New("the number is too large")
	case shift >= 0:
		return digits.Mul(digits, pow10[shift]), nil
	case -shift < len(pow10):
		quotient, rest := new(big.Int).QuoRem(digits, pow10[-shift], new(big.Int))
		if rest.Sign() == 0 {
			return quotient, nil
		}
	}
	return nil, fmt.Errorf("the number has more than %d decimal places", places)
}

func errNumber(s string) error {
	if len(s) > maxDigits {
		s = s[:maxDigits] + "..."
	}
	return fmt.Errorf("%q is not a decimal number", s)
}

// isDigits reports whether s consists of one or more decimal digits.
func isDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// A factor is what all prices are multiplied with, in billionths.
type factor uint64

const (
	factorDigits        = 9
	one          factor = 1e9
	maxFactor           = 1e6
)

func parseFactor(s string) (factor, error) {
	n, err := parseDecimal(s, factorDigits)
	switch {
	case err != nil:
		return 0, err
	case n.Cmp(big.NewInt(maxFactor*int64(one))) > 0:
		return 0, errors.New("the factor is too large")
	}
	return factor(n.Uint64()), nil
}

// A sum is a sum of prices in 10^-30 of the currency's unit. The low words come first. Sums of
// any Units, times 3,600,000, times any factor, fit.
type sum [5]uint64

// add adds n units at the price r. n must not be negative.
func (s *sum) add(r rate, n int64) {
	if n == 0 || r.isZero() {
		return
	}
	middle, low := bits.Mul64(r.lo, uint64(n))
	high, middle2 := bits.Mul64(r.hi, uint64(n))
	middle, carry := bits.Add64(middle, middle2, 0)
	s.plus(&sum{low, middle, high + carry})
}

func (s *sum) plus(other *sum) {
	var carry uint64
	for i, word := range other {
		s[i], carry = bits.Add64(s[i], word, carry)
	}
}

func (s *sum) multiply(n uint64) {
	var carry uint64
	for i := range s {
		hi, lo := bits.Mul64(s[i], n)
		var c uint64
		s[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
}

func (s *sum) divide(n uint64) {
	var rest uint64
	for i := len(s) - 1; i >= 0; i-- {
		if rest != 0 || s[i] != 0 {
			s[i], rest = bits.Div64(rest, s[i], n)
		}
	}
}

// money returns s * f / per, rounded once to the nearest amount, and half up. Sums that do not
// fit are the largest amount. per must be at most 3,600,000.
func (s sum) money(f factor, per uint64) llm.Money {
	if s == (sum{}) {
		return 0
	}
	s.multiply(uint64(f))
	// A factor has 9 decimal places more than a rate, and a Money 9 decimal places. So the
	// quotient is s / (10^30 * per). Dividing in steps truncates as one division does.
	const step = 1e15
	var half sum
	half[1], half[0] = bits.Mul64(step/2, step)
	half.multiply(per)
	s.plus(&half)
	s.divide(step)
	s.divide(step)
	s.divide(per)
	if s[0] > math.MaxInt64 || s[1]|s[2]|s[3]|s[4] != 0 {
		return math.MaxInt64
	}
	return llm.Money(s[0])
}
