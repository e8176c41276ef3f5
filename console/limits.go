package console

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
)

// A limitUse says how much of a limit of a key is used.
type limitUse struct {
	Name string
	Text string // the limit, such as 60/m

	Known     bool // whether the fields below are known
	Used, Max float64
	Money     bool          // Used and Max are in US dollars
	Full      time.Duration // until the token bucket is full without further requests; zero if not known
	Since     time.Time     // when the period of the quota began; zero if it has none
	Local     bool          // Used counts only requests of this process
}

// A limitReader reads how much of the limits of a key is used. Each of its fields
// but logger may be nil.
type limitReader struct {
	limiter llmhttp.Limiter
	usage   llmhttp.UsageStore
	cost    func(llmhttp.UsageSum) float64
	monitor *Monitor
	logger  *slog.Logger
}

// read returns the limits of a key and how much of each is used. If the Limiter or
// the store fails, it logs the error and returns the limit without its use.
func (l *limitReader) read(ctx context.Context, info *llmhttp.KeyInfo) []limitUse {
	var uses []limitUse
	for _, name := range keytext.LimitNames {
		text := keytext.FormatLimit(&info.Limits, name)
		if text == "" {
			continue
		}
		use := limitUse{Name: strings.ReplaceAll(name, "-", " "), Text: text}
		var err error
		switch name {
		case "requests":
			err = l.readLevel(ctx, info.ID, llmhttp.BucketRequests, info.Limits.Requests, &use)
		case "tokens":
			err = l.readLevel(ctx, info.ID, llmhttp.BucketTokens, info.Limits.Tokens, &use)
		case "quota":
			err = l.readQuota(ctx, info, &use)
		case "concurrent":
			err = l.readConcurrent(ctx, info, &use)
		}
		if err != nil {
			l.logger.ErrorContext(ctx, "console: use of a limit not read", "key", info.ID, "limit", name, "error", err)
		}
		uses = append(uses, use)
	}
	return uses
}

// readLevel sets how much of a bucket is used.
func (l *limitReader) readLevel(ctx context.Context, keyID, bucket string, rate llmhttp.Rate, use *limitUse) error {
	if l.limiter == nil {
		return nil
	}
	levels, err := l.limiter.Take(ctx, keyID, llmhttp.Draw{Bucket: bucket, Rate: rate})
	if err != nil {
		return err
	}
	use.Known, use.Max = true, float64(rate.WithDefaults().Burst)
	use.Used = use.Max - float64(levels[0].Remaining)
	if use.Full = levels[0].ResetAfter; use.Full == math.MaxInt64 { // a rate that permits nothing
		use.Full = 0
	}
	return nil
}

// readQuota sets how much of the quota is used: of its tokens, or of its cost if
// more of that is used.
func (l *limitReader) readQuota(ctx context.Context, info *llmhttp.KeyInfo, use *limitUse) error {
	quota, now := info.Limits.Quota, time.Now()
	if l.usage == nil {
		return nil
	}
	sums, err := llmhttp.QueryKey(ctx, l.usage, info.ID, llmhttp.UsageQuery{
		Account: info.Account, From: quota.Start(now), To: now.UTC().Truncate(day).Add(2 * day), // as the Handler does
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	var totals usageTotals
	for i := range sums {
		totals.add(&sums[i], l.cost)
	}
	use.Known, use.Used, use.Max = true, float64(totals.Tokens()), float64(max(quota.Tokens, 0))
	if cost := max(quota.Cost, 0); quota.Cost != 0 && l.cost != nil && (quota.Tokens == 0 || totals.Cost*use.Max > use.Used*cost) {
		use.Money, use.Used, use.Max = true, totals.Cost, cost
	}
	use.Since = quota.Start(now)
	return nil
}

// readConcurrent sets how many requests are in progress. If the Limiter does not
// count them, it sets those that the Monitor of this process counts.
func (l *limitReader) readConcurrent(ctx context.Context, info *llmhttp.KeyInfo, use *limitUse) error {
	var n int
	counter, ok := l.limiter.(llmhttp.ConcurrencyCounter)
	switch {
	case ok:
		var err error
		if n, err = counter.Concurrent(ctx, info.ID); err != nil {
			return err
		}
	case l.monitor != nil:
		n, use.Local = l.monitor.concurrent(info.ID), true
	default:
		return nil
	}
	use.Known, use.Used, use.Max = true, float64(n), float64(max(info.Limits.Concurrent, 0))
	return nil
}

// Amounts returns what is used and what is permitted.
func (u limitUse) Amounts() string {
	if u.Money {
		return formatMoney(u.Used) + " of " + formatMoney(u.Max)
	}
	return formatCount(int64(u.Used)) + " of " + formatCount(int64(u.Max))
}

// High and VeryHigh are the bounds from which a limit is nearly used up.
func (u limitUse) High() float64     { return 0.75 * u.Max }
func (u limitUse) VeryHigh() float64 { return 0.95 * u.Max }
