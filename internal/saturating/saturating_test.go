package saturating_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/saturating"
)

func TestAddSub(t *testing.T) {
	numbers := []int64{0, 1, -1, 2, -2, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1, 1 << 62, -1 << 62}
	nearest := func(n *big.Int) int64 {
		switch {
		case n.IsInt64():
			return n.Int64()
		case n.Sign() > 0:
			return math.MaxInt64
		}
		return math.MinInt64
	}
	for _, a := range numbers {
		for _, b := range numbers {
			x, y := big.NewInt(a), big.NewInt(b)
			assert.Equal(t, nearest(new(big.Int).Add(x, y)), saturating.Add(a, b), "%d + %d", a, b)
			assert.Equal(t, nearest(new(big.Int).Sub(x, y)), saturating.Sub(a, b), "%d - %d", a, b)
		}
	}
}
