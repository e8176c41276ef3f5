package usagebuffer

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

func TestOptions_ZeroAndNegative(t *testing.T) {
	for _, test := range []struct {
		opts           *Options
		size, capacity int
		delay          time.Duration
	}{
		{nil, 100, 10_000, time.Second},
		{&Options{}, 100, 10_000, time.Second},
		{&Options{BatchSize: -1, Delay: -1}, 1, 10_000, 0},
		{&Options{BatchSize: 1000, Delay: time.Hour}, 1000, 100_000, time.Hour},
		{&Options{BatchSize: math.MaxInt}, math.MaxInt, math.MaxInt / 100 * 100, time.Second},
	} {
		b := New(struct{ llmhttp.UsageStore }{}, test.opts)
		assert.Equal(t, test.size, b.size)
		assert.Equal(t, test.capacity, b.capacity)
		assert.Equal(t, test.delay, b.delay)
	}
}
