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
	"github.com/llmhttp/llmhttp/manage"
)

// A limitUse says how much of a limit of a key is used.
type limitUse struct {
	Name  string // such as "max completion tokens"
	Limit string // such as 60/m

	Known     bool // whether the fields below are known
	Used, Max float64
	IsMoney   bool          // whether Used and Max are amounts of llmhttp.Money
	FreeIn    time.Duration // until nothing is used, if there are no further requests; zero if not known
	Since     time.Time     // when the period of the quota began; zero if there is none
	Local     bool          // whether Used counts only requests of this process
}

// A limitReader reads how much of the limits of a key is used. Each of its fields
// but logger may be nil.
type limitReader struct {
	limiter llmhttp.Limiter
	usage   llmhttp.UsageStore
	monitor *Monitor
	logger  *slog.Logger
}

// read returns the limits of a key and how much of each is used. If the Limiter or
// the store fails, it logs the error and returns the limit without its use.
func (l *limitReader) read(ctx context.Context, info *manage.KeyInfo) []limitUse {
	var uses []limitUse
	for _, name := range keytext.LimitNames {
		text := keytext.FormatLimit(&info.Limits, name)
		if text == "" {
			continue
		}
		use := limitUse{Name: strings.ReplaceAll(name, "-", " "), Limit: text}
		var err error
		switch name {
		case "requests":
			err = l.readLevel(ctx, keySubject(info), llmhttp.BucketRequests, info.Limits.Requests, &use)
		case "tokens":
			err = l.readLevel(ctx, keySubject(info), llmhttp.BucketTokens, info.Limits.Tokens, &use)
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

func keySubject(info *manage.KeyInfo) llmhttp.SubjectID {
	return llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}
}

// readLevel sets how much of a token bucket is used. It takes no tokens.
func (l *limitReader) readLevel(ctx context.Context, key llmhttp.SubjectID, bucket string, rate llmhttp.Rate, use *limitUse) error {
	if l.limiter == nil {
		return nil
	}
	levels, err := l.limiter.Take(ctx, llmhttp.Draw{Subject: key, Bucket: bucket, Rate: rate})
	if err != nil {
		return err
	}
	use.Known, use.Max = true, float64(rate.WithDefaults().Burst)
	use.Used = use.Max - float64(levels[0].Remaining)
	if after := levels[0].ResetAfter; after != math.MaxInt64 { // that is the value for a rate that permits nothing
		use.FreeIn = after
	}
	return nil
}

// readQuota sets how much of the quota is used: of its tokens, or of its cost if
// more of that is used.
func (l *limitReader) readQuota(ctx context.Context, info *manage.KeyInfo, use *limitUse) error {
	if l.usage == nil {
		return nil
	}
	quota, now := info.Limits.Quota, time.Now()
	since := quota.Start(now)
	sums, err := l.usage.Query(ctx, llmhttp.UsageQuery{
		Account: info.Account, Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}, From: since, To: now.UTC().Truncate(day).Add(2 * day), // as the Handler does
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	var totals usageTotals
	for i := range sums {
		totals.Add(sums[i])
	}
	used, maxTokens, maxCost := float64(totals.Units.Tokens()), float64(max(quota.Tokens, 0)), float64(max(quota.Cost, 0))
	use.Known, use.Since, use.Used, use.Max = true, since, used, maxTokens
	if quota.Cost == 0 {
		return nil
	}
	cost := float64(totals.Cost.Total())
	if quota.Tokens == 0 || cost*maxTokens > used*maxCost { // the share of the cost is larger
		use.IsMoney, use.Used, use.Max = true, cost, maxCost
	}
	return nil
}

// readConcurrent sets how many requests are in progress. If the Limiter does not
// count them, it sets those that the Monitor of this process counts.
func (l *limitReader) readConcurrent(ctx context.Context, info *manage.KeyInfo, use *limitUse) error {
	use.Max = float64(max(info.Limits.Concurrent, 0))
	if counter, ok := l.limiter.(manage.ConcurrencyCounter); ok {
		n, err := counter.Concurrent(ctx, keySubject(info))
		use.Known, use.Used = err == nil, float64(n)
		return err
	}
	if l.monitor != nil {
		use.Known, use.Local, use.Used = true, true, float64(l.monitor.concurrent(info.ID))
	}
	return nil
}

// Amounts returns how much is used and how much is permitted, such as "1 of 60".
func (u limitUse) Amounts() string {
	if u.IsMoney {
		return formatMoney(llmhttp.Money(u.Used)) + " of " + formatMoney(llmhttp.Money(u.Max))
	}
	return formatCount(int64(u.Used)) + " of " + formatCount(int64(u.Max))
}

// High and VeryHigh are the values of Used from which the meter warns.
func (u limitUse) High() float64     { return 0.75 * u.Max }
func (u limitUse) VeryHigh() float64 { return 0.95 * u.Max }
