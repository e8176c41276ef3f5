package main

import (
	"context"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const day = 24 * time.Hour

func (c *command) usage(ctx context.Context, args []string) error {
	q := llmhttp.UsageQuery{To: time.Now().UTC().Truncate(day).Add(day), Step: day}
	f := c.newFlags()
	f.StringVar(&q.Account, "account", "", "the `account`; required")
	date := func(name, usage string, t *time.Time) {
		f.Func(name, usage, func(s string) (err error) {
			if *t, err = time.Parse(time.DateOnly, s); err != nil {
				err = fmt.Errorf("%q is not a date such as 2030-01-31", s)
			}
			return err
		})
	}
	date("from", "the first day, a `date` in UTC; the default is 30 days before the end", &q.From)
	date("to", "the day after the last, a `date` in UTC; the default is tomorrow", &q.To)
	total := f.Bool("total", false, "print one sum for all days")
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	if q.Account == "" {
		return usageErrorf("--account is missing")
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-30 * day)
	}
	if !q.From.Before(q.To) {
		return usageErrorf("the range is empty: --from %s is not before --to %s", q.From.Format(time.DateOnly), q.To.Format(time.DateOnly))
	}
	if *total {
		q.Step = 0
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		sums, err := s.Query(ctx, q)
		if err != nil {
			return err
		}
		return c.printUsage(sums)
	})
}
