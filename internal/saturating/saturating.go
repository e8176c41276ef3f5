// Package saturating adds and subtracts numbers whose result may be more than their type holds.
package saturating

import "math"

// Add returns a + b, or the nearest int64 if the sum is none.
func Add(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Sub returns a - b, or the nearest int64 if the difference is none.
func Sub(a, b int64) int64 {
	switch {
	case b < 0 && a > math.MaxInt64+b:
		return math.MaxInt64
	case b > 0 && a < math.MinInt64+b:
		return math.MinInt64
	}
	return a - b
}
