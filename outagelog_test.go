package llmhttp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// While a store is away, the log has a line every 10 seconds that counts the others, and not one or
// two for each request.
func TestOutage_IsLoggedOnceInAnInterval(t *testing.T) {
	fails := func(context.Context) error { return errCause }
	for name, c := range map[string]config{
		"Take": {keys: keysWithThousandTokens, opts: llmhttp.Options{Limiter: &stubLimiter{
			take:   func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, errCause },
			adjust: fails,
		}}},
		"Take of tokens, and Adjust": {keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(1000), Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: &stubLimiter{
			take: func(_ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
				if draws[0].Bucket == llmhttp.BucketTokens {
					return nil, errCause
				}
				return []llmhttp.BucketLevel{{Remaining: 1}}, nil
			},
			adjust: fails,
		}}},
		"Adjust": {keys: keysWithThousandTokens, opts: llmhttp.Options{Limiter: &stubLimiter{adjust: fails}}},
		"Lookup": {keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, errCause })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, c)
				lines := func() int { return strings.Count(s.log.String(), `"level":"ERROR"`) }
				for range 5 {
					s.chat(chatBody)
				}
				synctest.Wait()
				assert.Equal(t, 1, lines(), s.log.String())
				time.Sleep(10 * time.Second)
				s.chat(chatBody)
				synctest.Wait()
				assert.Equal(t, 2, lines(), s.log.String())
				assert.Regexp(t, `"skipped":[4-9]`, s.log.String())
			})
		})
	}
}
