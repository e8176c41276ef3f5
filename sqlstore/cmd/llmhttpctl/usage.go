package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const day = 24 * time.Hour

// usageFlags are the flags of the command usage.
type usageFlags struct {
	manage.ReportQuery
	by     string
	totals bool // whether the sums of all models are added up
	csv    bool
}

func (c *command) usage(ctx context.Context, args []string) error {
	u := usageFlags{by: "day"}
	u.To = time.Now().UTC().Truncate(day).Add(day)
	f := c.newFlags()
	f.StringVar(&u.Account, "account", "", "the `account`; required if --by is day; without it, all accounts")
	f.StringVar(&u.KeyID, "key", "", "only the usage of the key with this `ID`")
	f.StringVar(&u.by, "by", u.by, "the `group` of each line: day, model, key or account; each has a line for each model")
	f.BoolVar(&u.totals, "totals", false, "add up the models: one line for each day, key or account")
	f.IntVar(&u.Limit, "limit", 0, "the maximum `number` of groups, of which those with the most tokens are printed; 0 means all")
	f.BoolVar(&u.csv, "csv", false, "write comma-separated values")
	date := func(name, usage string, t *time.Time) {
		f.Func(name, usage, func(s string) (err error) {
			if *t, err = time.Parse(time.DateOnly, s); err != nil {
				err = fmt.Errorf("%q is not a date such as 2030-01-31", s)
			}
			return err
		})
	}
	date("from", "the first day, a `date` in UTC; the default is 30 days before the end", &u.From)
	date("to", "the day after the last, a `date` in UTC; the default is tomorrow", &u.To)
	if _, err := c.parse(f, "", args); err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return err
	}
	return c.withStore(ctx, func(s *sqlstore.Store) error {
		if u.Account != "" {
			if err := checkAccount(ctx, s, u.Account); err != nil {
				return err
			}
		}
		sums, err := s.Report(ctx, u.ReportQuery)
		if err != nil {
			return err
		}
		if u.totals {
			sums = addModels(sums)
		}
		return c.out.printUsage(&u, sums)
	})
}

// check completes the query and returns an error if the flags do not make one.
func (u *usageFlags) check() error {
	if u.From.IsZero() {
		u.From = u.To.Add(-30 * day)
	}
	if !u.From.Before(u.To) {
		return usageErrorf("the range is empty: --from %s is not before --to %s", u.From.Format(time.DateOnly), u.To.Format(time.DateOnly))
	}
	switch {
	case u.by == "model":
		u.By = manage.ByTotal
	case u.by == "day", u.by == "key", u.by == "account":
		u.By = manage.ReportGroup(u.by)
	default:
		return usageErrorf("--by %s is not day, model, key or account", quote(u.by))
	}
	if u.Account == "" && u.By == manage.ByDay {
		return usageErrorf("--account is missing")
	}
	if u.totals && u.By == manage.ByTotal {
		return usageErrorf("--totals adds up the models; it cannot be used with --by model")
	}
	if u.Limit < 0 {
		return usageErrorf("the limit is negative")
	}
	return nil
}

// checkAccount returns an error if nothing in the store has the account, which is
// probably misspelled.
func checkAccount(ctx context.Context, s *sqlstore.Store, account string) error {
	keys, err := s.ListKeys(ctx, manage.KeyQuery{Account: account, Limit: 1})
	if err != nil || len(keys) > 0 {
		return err
	}
	sums, err := s.Query(ctx, llmhttp.UsageQuery{Account: account, From: time.UnixMicro(0), To: time.Now().Add(day)})
	if err == nil && len(sums) == 0 {
		err = errors.New("no key and no usage has the account " + printable(account))
	}
	return err
}

// addModels adds up the sums of each group, which are adjacent. The results have no Model.
func addModels(sums []manage.ReportSum) (totals []manage.ReportSum) {
	for i := range sums {
		s := &sums[i]
		last := len(totals) - 1
		if last < 0 || !totals[last].Start.Equal(s.Start) || totals[last].Account != s.Account || totals[last].KeyID != s.KeyID {
			total := *s
			total.Model = ""
			totals = append(totals, total)
			continue
		}
		totals[last].Add(s.UsageSum)
	}
	return totals
}

// usageJSON is the JSON form of a sum. Only sums of all models have no model.
type usageJSON struct {
	Start            string  `json:"start"`
	Account          string  `json:"account,omitempty"`
	Key              string  `json:"key,omitempty"`
	Model            *string `json:"model,omitempty"`
	Requests         int64   `json:"requests"`
	PromptTokens     int64   `json:"prompt_tokens"`
	CachedTokens     int64   `json:"cached_tokens"`
	CompletionTokens int64   `json:"completion_tokens"`
	ReasoningTokens  int64   `json:"reasoning_tokens"`
	Images           int64   `json:"images"`
}

// printUsage prints a line for each sum, and in a table their total.
func (p *printer) printUsage(u *usageFlags, sums []manage.ReportSum) error {
	switch {
	case p.json:
		return p.printUsageJSON(u, sums)
	case u.csv:
		w := keytext.NewUsageCSV(p.stdout, u.columns())
		for i := range sums {
			w.Write(u.values(&sums[i]), &sums[i].UsageSum)
		}
		return w.Flush()
	}
	header := append(u.columns(), "requests", "prompt", "cached", "completion", "reasoning", "images")
	for i := range header {
		header[i] = strings.ToUpper(header[i])
	}
	rows := [][]string{header}
	var total llmhttp.UsageSum
	for i := range sums {
		s := &sums[i]
		rows = append(rows, append(u.values(s), keytext.UsageNumbers(&s.UsageSum)...))
		total.Add(s.UsageSum)
	}
	if len(sums) > 0 {
		row := []string{"TOTAL"}
		for range len(header) - 7 {
			row = append(row, " ")
		}
		rows = append(rows, append(row, keytext.UsageNumbers(&total)...))
	}
	return p.writeTable(rows)
}

func (p *printer) printUsageJSON(u *usageFlags, sums []manage.ReportSum) error {
	for i := range sums {
		s := &sums[i]
		var model *string
		if !u.totals {
			model = &s.Model
		}
		err := p.writeJSON(usageJSON{
			Start: keytext.FormatTime(s.Start), Account: s.Account, Key: s.KeyID, Model: model, Requests: s.Requests,
			PromptTokens: s.PromptTokens, CachedTokens: s.CachedTokens,
			CompletionTokens: s.CompletionTokens, ReasoningTokens: s.ReasoningTokens, Images: s.Images,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// columns returns the names of the columns that identify a sum.
func (u *usageFlags) columns() []string {
	columns := []string{"from"}
	switch u.By {
	case manage.ByKey:
		columns = []string{"account", "key"}
	case manage.ByAccount:
		columns = []string{"account"}
	}
	if u.totals {
		return columns
	}
	return append(columns, "model")
}

// values returns the values of columns for s.
func (u *usageFlags) values(s *manage.ReportSum) []string {
	values := []string{s.Start.Format(time.DateOnly)}
	switch u.By {
	case manage.ByKey:
		values = []string{s.Account, s.KeyID}
	case manage.ByAccount:
		values = []string{s.Account}
	}
	if u.totals {
		return values
	}
	return append(values, s.Model)
}
