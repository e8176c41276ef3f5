// Package saturating adds numbers whose sum may be more than their type holds.
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
