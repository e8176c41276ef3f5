package route

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Loads are compared as fractions, also where a product of a count and a weight
// is larger than an int of 32 bits.
func TestCompareLoad(t *testing.T) {
	light := &target{weight: 1, inFlight: 2_999}
	heavy := &target{weight: maxWeight, inFlight: 100_000}
	assert.Positive(t, light.compareLoad(heavy))
	assert.Negative(t, heavy.compareLoad(light))
	assert.Zero(t, heavy.compareLoad(heavy))
}
