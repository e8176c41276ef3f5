package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
	"github.com/llmhttp/llmhttp/internal/reportsum"
	"github.com/llmhttp/llmhttp/llm"
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
	f.StringVar(&u.Model, "model", "", "only the usage of the model with this `name`, as clients write it")
	f.StringVar(&u.User, "user", "", "only the usage of this end `user`")
	f.Func("label", "only the usage with this label, `NAME=VALUE`", func(s string) (err error) {
		u.Label, err = parseLabel(s)
		return err
	})
	f.StringVar(
		&u.by,
		"by",
		u.by,
		"the `group` of each line: day, model, key, account, user, or label:NAME for the values of a label; each has a line for each model",
	)
	f.BoolVar(&u.totals, "totals", false, "add up the models: one line for each other group")
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
		report, err := s.Report(ctx, u.ReportQuery)
		if err != nil {
			return err
		}
		if !report.Since.IsZero() {
			fmt.Fprintf(
				c.out.stderr,
				"Users and labels are known from %s on: older usage is missing.\n",
				report.Since.Format(time.DateOnly),
			)
		}
		sums := report.Sums
		if u.totals {
			sums = addModels(u.By, sums)
		}
		return c.out.printUsage(&u, sums)
	})
}

// parseLabel parses NAME=VALUE.
func parseLabel(s string) (llmhttp.Label, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return llmhttp.Label{}, fmt.Errorf("%s is not a label such as project=search", quote(s))
	}
	return llmhttp.Label{Name: name, Value: value}, nil
}

// check completes the query and returns an error if the flags do not make one.
func (u *usageFlags) check() error {
	if u.From.IsZero() {
		u.From = u.To.Add(-30 * day)
	}
	if !u.From.Before(u.To) {
		return usageErrorf("the range is empty: --from %s is not before --to %s", u.From.Format(time.DateOnly), u.To.Format(time.DateOnly))
	}
	label, byLabel := strings.CutPrefix(u.by, "label:")
	switch {
	case slices.Contains([]string{"day", "model", "key", "account", "user"}, u.by):
		u.By = manage.ReportGroup(u.by)
	case byLabel && label != "":
		u.By, u.GroupLabel = manage.ByLabel, label
	default:
		return usageErrorf("--by %s is not day, model, key, account, user or label:NAME", quote(u.by))
	}
	if u.Account == "" && u.By == manage.ByDay {
		return usageErrorf("--account is missing")
	}
	if u.totals && u.By == manage.ByModel {
		return usageErrorf("--totals adds up the models; it cannot be used with --by model")
	}
	if u.Limit < 0 {
		return errNegativeLimit
	}
	return nil
}

// checkAccount returns an error if nothing in the store has the account, which is
// probably misspelled.
func checkAccount(ctx context.Context, s *sqlstore.Store, account string) error {
	if _, err := s.Account(ctx, account); !errors.Is(err, manage.ErrAccountNotFound) {
		return err
	}
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
func addModels(by manage.ReportGroup, sums []manage.ReportSum) (totals []manage.ReportSum) {
	for i := range sums {
		s := &sums[i]
		last := len(totals) - 1
		if last < 0 || reportsum.GroupOf(by, &totals[last]) != reportsum.GroupOf(by, s) {
			total := *s
			total.Model = ""
			totals = append(totals, total)
			continue
		}
		totals[last].Add(s.UsageSum)
	}
	return totals
}

// usageJSON is the JSON form of a sum. Only sums of all models have no model, and only those by
// user or label have a user or the value of a label.
type usageJSON struct {
	Start    string  `json:"start"`
	Account  string  `json:"account,omitempty"`
	Key      string  `json:"key,omitempty"`
	User     *string `json:"user,omitempty"`
	Label    *string `json:"label,omitempty"`
	Model    *string `json:"model,omitempty"`
	Requests int64   `json:"requests"`
	Unpriced int64   `json:"unpriced"`
	llmhttp.Units
	Cost      llm.Money    `json:"cost"`
	CostParts llmhttp.Cost `json:"cost_parts"`
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
	return p.writeTable(usageTable(u, sums))
}

// usageTable returns a table with a header, a row for each sum, and a row for their total. It
// has the numbers that most hosts use, and others that are not zero in the total.
func usageTable(u *usageFlags, sums []manage.ReportSum) [][]string {
	var total llmhttp.UsageSum
	for i := range sums {
		total.Add(sums[i].UsageSum)
	}
	var shown []int // indices in UsageNumbers
	header := u.columns()
	for i, n := range keytext.UsageNumbers(&total) {
		switch n.Name {
		case "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "images":
		default:
			if n.Text == "0" || n.Text == "" || strings.HasPrefix(n.Name, "cost_") {
				continue
			}
		}
		shown = append(shown, i)
		header = append(header, strings.TrimSuffix(n.Name, "_tokens"))
	}
	for i := range header {
		header[i] = strings.ToUpper(header[i])
	}
	row := func(values []string, s *llmhttp.UsageSum) []string {
		numbers := keytext.UsageNumbers(s)
		for _, i := range shown {
			values = append(values, numbers[i].Text)
		}
		return values
	}
	rows := [][]string{header}
	for i := range sums {
		rows = append(rows, row(u.values(&sums[i]), &sums[i].UsageSum))
	}
	if len(sums) > 0 {
		values := []string{"TOTAL"}
		for range len(u.columns()) - 1 {
			values = append(values, " ")
		}
		rows = append(rows, row(values, &total))
	}
	return rows
}

func (p *printer) printUsageJSON(u *usageFlags, sums []manage.ReportSum) error {
	for i := range sums {
		s := &sums[i]
		var user, label, model *string
		switch u.By {
		case manage.ByUser:
			user = &s.User
		case manage.ByLabel:
			label = &s.Label
		}
		if !u.totals {
			model = &s.Model
		}
		err := p.writeJSON(usageJSON{
			Start: keytext.FormatTime(
				s.Start,
			), Account: s.Account, Key: s.KeyID, User: user, Label: label, Model: model, Requests: s.Requests, Unpriced: s.Unpriced,
			Units: s.Units, Cost: s.Cost.Total(), CostParts: s.Cost,
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
	case manage.ByUser:
		columns = []string{"account", "user"}
	case manage.ByLabel:
		columns = []string{"label"}
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
	case manage.ByUser:
		values = []string{s.Account, s.User}
	case manage.ByLabel:
		values = []string{s.Label}
	}
	if u.totals {
		return values
	}
	return append(values, s.Model)
}
