package main

import (
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const day = 24 * time.Hour

// A usageView is a sum in JSON.
type usageView struct {
	Start            string `json:"start"`
	Model            string `json:"model"`
	Requests         int64  `json:"requests"`
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	Images           int64  `json:"images"`
}

func (c *command) usage(args []string) error {
	f := c.flags("")
	today := time.Now().UTC().Truncate(day)
	q := llmhttp.UsageQuery{To: today.Add(day), Step: day}
	f.StringVar(&q.Account, "account", "", "whose usage: an `account`, which is required")
	date := func(name, usage string, t *time.Time) {
		f.Func(name, usage, func(s string) (err error) {
			if *t, err = time.Parse(time.DateOnly, s); err != nil {
				err = fmt.Errorf("%q is no date, such as 2030-01-31", s)
			}
			return err
		})
	}
	date("from", "the first day, a `date` in UTC; without it, 30 days before the end", &q.From)
	date("to", "the day after the last, a `date` in UTC; without it, tomorrow", &q.To)
	total := f.Bool("total", false, "all days together")
	operands, err := c.parse(f, args)
	switch {
	case err != nil:
		return err
	case len(operands) > 0:
		return unexpected(operands)
	case q.Account == "":
		return usageErrorf("--account is missing")
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-30 * day)
	}
	if !q.From.Before(q.To) {
		return usageErrorf("there is no day from %s up to, not including, %s", q.From.Format(time.DateOnly), q.To.Format(time.DateOnly))
	}
	if *total {
		q.Step = 0
	}
	return c.open(func(s *sqlstore.Store) error {
		sums, err := s.Query(c.ctx, q)
		if err != nil {
			return err
		}
		rows := [][]string{{"FROM", "MODEL", "REQUESTS", "PROMPT", "COMPLETION", "IMAGES"}}
		for _, u := range sums {
			if !c.json {
				rows = append(rows, []string{
					u.Start.Format(time.DateOnly), u.Model,
					fmt.Sprint(u.Requests), fmt.Sprint(u.PromptTokens), fmt.Sprint(u.CompletionTokens), fmt.Sprint(u.Images),
				})
			} else if err := c.writeJSON(usageView{formatTime(u.Start), u.Model, u.Requests, u.PromptTokens, u.CompletionTokens, u.Images}); err != nil {
				return err
			}
		}
		if c.json {
			return nil
		}
		return c.table(rows)
	})
}
