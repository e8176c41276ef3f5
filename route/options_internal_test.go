package route

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOptions_ZeroAndNegative(t *testing.T) {
	want := Options{
		Tries: 6, Rounds: 2, TryTimeout: 2 * time.Minute, Backoff: 250 * time.Millisecond, MaxWait: 5 * time.Second,
		Failures: 5, OpenFor: 10 * time.Second, ModelsTTL: time.Minute,
	}
	for _, o := range []*Options{nil, {}} {
		got := o.withDefaults()
		got.Logger = nil
		assert.Equal(t, want, got)
	}
	negative := Options{
		Tries: -1, Rounds: -1, TryTimeout: -1, Backoff: -1, MaxWait: -1, Failures: -1, OpenFor: -1, ModelsTTL: -1,
	}
	got := negative.withDefaults()
	got.Logger = nil
	assert.Equal(t, Options{Tries: math.MaxInt, Rounds: math.MaxInt, TryTimeout: -1, MaxWait: forever, Failures: -1}, got)
}
