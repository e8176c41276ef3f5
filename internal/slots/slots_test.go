package slots_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/slots"
)

type slot = slots.Slot[string]

func TestTable_TakesAllOrNone(t *testing.T) {
	var table slots.Table[string]
	first, _ := table.Acquire(slot{"a", 1, 2}, slot{"b", 2, 2})
	require.NotNil(t, first)

	release, full := table.Acquire(slot{"a", 1, 2}, slot{"b", 1, 2})
	assert.Nil(t, release)
	assert.Equal(t, 1, full)

	second, _ := table.Acquire(slot{"a", 1, 2}) // which the refused one has not taken
	require.NotNil(t, second)
	first()
	assert.Equal(t, 1, table.Len())
	second()
	assert.Zero(t, table.Len(), "what has nothing in use takes no memory")
}

func TestTable_Limits(t *testing.T) {
	for name, test := range map[string]struct {
		inUse, amount, limit int64
		fits                 bool
	}{
		"the last one":                 {1, 1, 2, true},
		"one too many":                 {2, 1, 2, false},
		"a limit that was lowered":     {5, 1, 2, false},
		"more than the limit":          {0, 3, 2, false},
		"none are permitted":           {0, 1, -1, false},
		"nothing of a full one":        {2, 0, 2, true},
		"an amount that overflows":     {math.MaxInt64, math.MaxInt64, math.MaxInt64, false},
		"an amount up to the largest":  {0, math.MaxInt64, math.MaxInt64, true},
		"the largest beside something": {1, math.MaxInt64, math.MaxInt64, false},
	} {
		t.Run(name, func(t *testing.T) {
			var table slots.Table[string]
			table.Acquire(slot{"a", test.inUse, math.MaxInt64})
			release, _ := table.Acquire(slot{"a", test.amount, test.limit})
			assert.Equal(t, test.fits, release != nil)
		})
	}
}
