package route

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The products that are compared exceed 32 bits.
func TestCompareLoad_LargeWeights(t *testing.T) {
	light := &member{weight: 1, inFlight: 2_999}
	heavy := &member{weight: maxWeight, inFlight: 100_000}
	assert.Positive(t, compareLoad(light, heavy))
	assert.Negative(t, compareLoad(heavy, light))
	assert.Zero(t, compareLoad(heavy, heavy))
}
