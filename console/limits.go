// How much of the limits of a key or an account is used.

package console

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

// A limitUse says how much of a limit is used.
type limitUse struct {
	Name  string // such as "max completion tokens"
	Limit string // such as 60/m

	Known     bool // whether the fields below are known
	Used, Max float64
	Left      float64       // of a quota; negative if more than the credit of an account is used
	IsQuota   bool          // whether there is something Left
	IsMoney   bool          // whether Used and Max are amounts of llm.Money
	FreeIn    time.Duration // until nothing is used, if there are no further requests; zero if not known
	Since     time.Time     // when the period of the quota began; zero if there is none
	Local     bool          // whether Used counts only requests of this process
}

// A limitReader reads how much of limits is used. Each of its fields but logger may
// be nil.
type limitReader struct {
	limiter llmhttp.Limiter
	usage   llmhttp.UsageStore
	monitor *Monitor
	logger  *slog.Logger
}

// A limitedSubject is whose limits a limitReader reads.
type limitedSubject struct {
	llmhttp.Subject
	account string // of the usage that counts toward its Quota
}

func keySubject(info *manage.KeyInfo) limitedSubject {
	return limitedSubject{llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}, Limits: info.Limits}, info.Account}
}

// read returns the limits of a subject and how much of each is used. If the Limiter or
// the store fails, it logs the error and returns the limit without its use.
func (l *limitReader) read(ctx context.Context, s limitedSubject) []limitUse {
	uses := limitNames(&s.Limits)
	for i := range uses {
		use := &uses[i]
		var err error
		switch use.Name {
		case "requests":
			err = l.readLevel(ctx, s.ID, llmhttp.BucketRequests, s.Limits.Requests, use)
		case "tokens":
			err = l.readLevel(ctx, s.ID, llmhttp.BucketTokens, s.Limits.Tokens, use)
		case "quota":
			err = l.readQuota(ctx, s, use)
		case "concurrent":
			err = l.readConcurrent(ctx, s, use)
		}
		if err != nil {
			l.logger.ErrorContext(ctx, "console: use of a limit not read", "subject", s.ID.Kind+" "+s.ID.ID, "limit", use.Name, "error", err)
		}
	}
	return uses
}

// readAccount returns the limits of an account and how much of each is used. The first is
// the credit, if the account is prepaid.
func (l *limitReader) readAccount(ctx context.Context, a *manage.AccountInfo) []limitUse {
	subject := limitedSubject{a.Subject(), a.ID}
	if !a.Prepaid {
		return l.read(ctx, subject)
	}
	credit := l.readCredit(ctx, a)
	subject.Limits = a.Limits
	return append([]limitUse{credit}, l.read(ctx, subject)...)
}

// readCredit returns the credit of a prepaid account and how much of it is used.
func (l *limitReader) readCredit(ctx context.Context, a *manage.AccountInfo) limitUse {
	credit := limitUse{Name: "credit", Limit: pages.FormatMoney(a.Credit)}
	if err := l.readQuota(ctx, limitedSubject{a.Subject(), a.ID}, &credit); err != nil {
		l.logger.ErrorContext(ctx, "console: use of a credit not read", "account", a.ID, "error", err)
	}
	credit.Left = float64(a.Credit) - credit.Used
	return credit
}

// readLeft returns the use of the quota of a subject, or nil if it has none or that is not known.
func (l *limitReader) readLeft(ctx context.Context, s limitedSubject) *limitUse {
	s.Limits = llmhttp.Limits{Quota: s.Limits.Quota}
	if uses := l.read(ctx, s); len(uses) > 0 && uses[0].Known {
		return &uses[0]
	}
	return nil
}

// readAccountLeft is readLeft for an account, of which the credit is the quota if it is prepaid.
func (l *limitReader) readAccountLeft(ctx context.Context, a *manage.AccountInfo) *limitUse {
	if !a.Prepaid {
		return l.readLeft(ctx, limitedSubject{a.Subject(), a.ID})
	}
	if credit := l.readCredit(ctx, a); credit.Known {
		return &credit
	}
	return nil
}

// subjectLimits are the limits of a subject of a key other than the key.
type subjectLimits struct {
	Title  string // such as "account acme"
	Limits []limitUse
}

// readSubjects returns the limits of what a key belongs to, in the order in which the Handler gets it:
// of its subjects and of its account, which is nil if it is not known. perUser are those of each end user.
func (l *limitReader) readSubjects(ctx context.Context, info *manage.KeyInfo, account *manage.AccountInfo) (subjects []subjectLimits, perUser []limitUse) {
	perUser = limitNames(&info.PerUser)
	for _, s := range info.Subjects {
		if account != nil && s.ID == account.Subject().ID {
			continue // the account as the store of the key had it
		}
		if limits := l.read(ctx, limitedSubject{s, info.Account}); len(limits) > 0 {
			subjects = append(subjects, subjectLimits{s.ID.Kind + " " + s.ID.ID, limits})
		}
	}
	if account != nil {
		if limits := l.readAccount(ctx, account); len(limits) > 0 {
			subjects = append(subjects, subjectLimits{"account " + cmp.Or(account.Name, account.ID), limits})
		}
		perUser = limitNames(&account.PerUser)
	}
	return subjects, perUser
}

// less returns that of two uses of quotas of which the smaller share is left. Either may be nil.
func (u *limitUse) less(v *limitUse) *limitUse {
	switch {
	case u == nil:
		return v
	case v == nil || u.Left*v.Max <= v.Left*u.Max:
		return u
	}
	return v
}

// UsedUp reports whether nothing is left of a quota, so that requests are refused.
func (u limitUse) UsedUp() bool { return u.Known && u.IsQuota && u.Left <= 0 }

// limitNames returns limits of which nothing is known but their values.
func limitNames(l *llmhttp.Limits) (uses []limitUse) {
	for _, name := range keytext.LimitNames() {
		if text := keytext.FormatLimit(l, name); text != "" {
			uses = append(uses, limitUse{Name: strings.ReplaceAll(name, "-", " "), Limit: text})
		}
	}
	return uses
}

// readLevel sets how much of a token bucket is used. It takes no tokens.
func (l *limitReader) readLevel(ctx context.Context, subject llmhttp.SubjectID, bucket string, rate llmhttp.Rate, use *limitUse) error {
	if l.limiter == nil {
		return nil
	}
	levels, err := l.limiter.Take(ctx, llmhttp.BucketAmount{Subject: subject, Bucket: bucket, Rate: rate})
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
func (l *limitReader) readQuota(ctx context.Context, s limitedSubject, use *limitUse) error {
	if l.usage == nil {
		return nil
	}
	quota, now := s.Limits.Quota, time.Now()
	since := quota.Start(now)
	sums, err := l.usage.Query(ctx, llmhttp.UsageQuery{
		Account: s.account, Subject: s.ID, From: since, To: now.UTC().Truncate(day).Add(2 * day), // as the Handler does
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
	use.IsQuota, use.Left = true, max(maxTokens-used, 0)
	if quota.Cost == 0 {
		return nil
	}
	cost := float64(totals.Cost.Total())
	if quota.Tokens == 0 || cost*maxTokens > used*maxCost { // the share of the cost is larger
		use.IsMoney, use.Used, use.Max, use.Left = true, cost, maxCost, max(maxCost-cost, 0)
	}
	return nil
}

// readConcurrent sets how many requests are in progress. If the Limiter does not
// count them, it sets those that the Monitor of this process counts.
func (l *limitReader) readConcurrent(ctx context.Context, s limitedSubject, use *limitUse) error {
	use.Max = float64(max(s.Limits.Concurrent, 0))
	if counter, ok := llmhttp.LimiterAs[manage.ConcurrencyCounter](l.limiter); ok {
		n, err := counter.Concurrent(ctx, s.ID)
		use.Known, use.Used = err == nil, float64(n)
		return err
	}
	if l.monitor != nil && s.ID.Kind == llmhttp.KindKey {
		use.Known, use.Local, use.Used = true, true, float64(l.monitor.concurrent(s.ID.ID))
	}
	return nil
}

// Amounts returns how much is used and how much is permitted, such as "1 of 60".
func (u limitUse) Amounts() string { return u.format(u.Used) + " of " + u.format(u.Max) }

// LeftText returns what is left of a quota, or "".
func (u limitUse) LeftText() string {
	if !u.IsQuota {
		return ""
	}
	return u.format(u.Left)
}

func (u limitUse) format(n float64) string {
	if u.IsMoney {
		return pages.FormatMoney(llm.Money(n))
	}
	return pages.FormatCount(int64(n))
}

// High and VeryHigh are the values of Used from which the meter warns.
func (u limitUse) High() float64     { return 0.75 * u.Max }
func (u limitUse) VeryHigh() float64 { return 0.95 * u.Max }
