package route

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The products that compareLoad compares may exceed 32 bits.
func TestCompareLoad_LargeWeights(t *testing.T) {
	light := load{weight: 1, inFlight: 2_999}
	heavy := load{weight: maxWeight, inFlight: 100_000}
	assert.Positive(t, compareLoad(light, heavy))
	assert.Negative(t, compareLoad(heavy, light))
	assert.Zero(t, compareLoad(heavy, heavy))
}
