package option_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/option"
)

func TestBound(t *testing.T) {
	for _, test := range []struct{ n, want int64 }{
		{math.MinInt64, math.MaxInt64}, {-1, math.MaxInt64}, {0, 7}, {1, 1}, {8, 8}, {math.MaxInt64, math.MaxInt64},
	} {
		assert.Equal(t, test.want, option.Bound(test.n, 7), test.n)
	}
	assert.Equal(t, math.MaxInt, option.Bound(-1, 7))
	assert.Equal(t, time.Duration(math.MaxInt64), option.Bound(-time.Second, time.Second))
}
