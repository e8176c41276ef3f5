package usagebuffer_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// A usageLog is a UsageStore that keeps every record, including those with the same ID, and has no sums.
type usageLog struct {
	before func(ctx context.Context) error // called by Record first; its error is Record's

	mu   sync.Mutex
	kept []llmhttp.UsageRecord
}

func (u *usageLog) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept = append(u.kept, records...)
	return nil
}

func (u *usageLog) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// records returns what was recorded.
func (u *usageLog) records() []llmhttp.UsageRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.kept)
}

// noLog is a Logger that discards everything.
var noLog = slog.New(slog.DiscardHandler)
