package llmhttp

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestErrRateLimit_Messages(t *testing.T) {
	hourly := Rate{N: 3, Per: time.Hour}
	for _, tc := range []struct {
		name        string
		draw        BucketAmount
		level       BucketLevel
		wantMessage string
		wantNoRetry bool
	}{
		{"a wait", BucketAmount{Subject: SubjectID{Kind: KindKey}, Bucket: BucketRequests, Rate: PerMinute(3), Amount: 1}, BucketLevel{RetryAfter: 20 * time.Second},
			"Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", false},
		{"tokens by the hour", BucketAmount{Subject: SubjectID{Kind: KindKey}, Bucket: BucketTokens, Rate: hourly, Amount: 2}, BucketLevel{Remaining: 1, RetryAfter: time.Minute},
			"Rate limit reached on tokens per 1h0m0s: Limit 3, Used 2, Requested 2. Please try again in 1m0s.", false},
		{"never", BucketAmount{Subject: SubjectID{Kind: KindKey}, Bucket: BucketTokens, Rate: PerMinute(3), Amount: 9}, BucketLevel{RetryAfter: never},
			"Rate limit reached on tokens per min (TPM): Limit 3.", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := errRateLimit(tc.draw, tc.level)
			assert.Equal(t, tc.wantMessage, e.Message)
			assert.Equal(t, tc.wantNoRetry, e.NoRetry)
		})
	}
}

// A request that is given back never makes what remains more than the limit, also if that is the largest one.
func TestLimitState_Refund(t *testing.T) {
	for _, test := range []struct{ limit, remaining, want int64 }{
		{10, 3, 4}, {10, 10, 10}, {math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		s := limitState{true, LimitInfo{Limit: test.limit, Remaining: test.remaining}}
		s.refund(PerMinute(10))
		assert.Equal(t, test.want, s.info.Remaining)
	}
}
