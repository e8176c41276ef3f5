package llmhttp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOptions_ZeroAndNegative(t *testing.T) {
	type numbers struct {
		maxBody, maxReply                           int64
		reserve                                     int
		timeout, keepAlive, readTimeout, writeLimit time.Duration
	}
	of := func(o *Options) numbers {
		n := o.withDefaults()
		return numbers{n.Bounds.MaxBody, n.Bounds.MaxReply, n.Estimates.ReserveCompletion, n.Bounds.Timeout, n.Bounds.KeepAlive, n.Bounds.ReadTimeout, n.Bounds.WriteTimeout}
	}
	defaults := numbers{16 << 20, 64 << 20, 512, 5 * time.Minute, 15 * time.Second, time.Minute, 30 * time.Second}
	assert.Equal(t, defaults, of(nil))
	assert.Equal(t, defaults, of(&Options{}))
	negative := &Options{Bounds: Bounds{MaxBody: -1, MaxReply: -1, Timeout: -1, KeepAlive: -1, ReadTimeout: -1, WriteTimeout: -1}, Estimates: TokenEstimates{ReserveCompletion: -1}}
	assert.Equal(t, numbers{math.MaxInt64, math.MaxInt64, 0, -1, -1, -1, -1}, of(negative))
}
