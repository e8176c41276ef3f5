package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// An accountStore sums for accounts only.
type accountStore struct{ *usageList }

func (s accountStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if q.Subject.Kind != "" {
		return nil, errors.ErrUnsupported
	}
	return s.usageList.Query(ctx, q)
}

func (accountStore) ClaimQuotaEvent(context.Context, string, time.Duration, time.Time) (bool, time.Duration, error) {
	return false, 0, errors.ErrUnsupported
}

func (accountStore) EndQuotaEvent(context.Context, string, bool) error { return errors.ErrUnsupported }

func TestUsageStore_AcceptsStoreForAccounts(t *testing.T) {
	newStore := usageFixture(func(*usageList) {})
	TestUsageStore(t, func(t testing.TB) llmhttp.UsageStore {
		return accountStore{newStore(t).UsageStore.(*usageList)}
	})
}
